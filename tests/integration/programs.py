"""Real processes for the integration tests: started, watched, and always stopped with the test."""

from __future__ import annotations

import ctypes
import http.client
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tower import native

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
PATIENCE = 100.0  # s for any expected event; the actual time depends on the machine
STOP_PATIENCE = 40.0  # s between SIGTERM and SIGKILL
_PAUSE, _PAUSES = 0.05, 10  # s without output after which all of it counts as written, and most of them
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class NotInTimeError(AssertionError):
    """Something did not happen in time; the message names it."""


def wait_for(what: str, ready: Callable[[], T], timeout: float = PATIENCE, every: float = 0.05) -> T:
    """Return the first true answer of *ready*; raise `NotInTimeError` after *timeout* s."""
    deadline = time.monotonic() + timeout
    while not (answer := ready()):
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not within {timeout:g} s: {what}")
        time.sleep(every)
    return answer


def is_ready(port: int, path: str = "/readyz/tunnel", host: str = LOOPBACK) -> bool:
    """Return whether a health page answers 200: by default that of an agent's tunnel; wait if it is slow."""
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def has_ipv6() -> bool:
    """Return whether ::1 can be listened on."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def script(name: str) -> str:
    """Return the path of a command that is installed in the same directory as this Python."""
    return str(Path(sys.executable).parent / name)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process' environment without variables of Tower or of clients, plus *extra*."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (not name.startswith("TOWER_") or name == native.VARIABLE)
        and name.lower() not in {"kubeconfig", "http_proxy", "https_proxy"}
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def die_with_parent() -> None:
    """Make the kernel end this process when its parent ends for any reason."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def reset_signals() -> None:
    """Also make it receive SIGINT, even if the shell that started the tests made them ignore it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """One process, its output in a file.

    :param user: to run as, if we are root.
    :ivar log: file of standard output and standard error.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        user: str | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._environment = clean_environment(environment)
        self._owner: dict[str, Any] = {}
        if user is not None and os.geteuid() == 0:
            account = pwd.getpwnam(user)
            self._owner = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False  # whether it has got SIGTERM

    @property
    def pid(self) -> int:
        """The process id of the running process."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the process; its output is appended to the log."""
        assert self._process is None, f"{self.name} runs already"
        self._asked = False
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
                **self._owner,
                preexec_fn=reset_signals,  # noqa: PLW1509 (two system calls)
            )

    def running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit code of a process that ends by itself; raise `NotInTimeError` if it goes on."""
        assert self._process is not None, f"{self.name} was not started"
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise NotInTimeError(f"{self.name} did not end within {timeout:g} s: {self.tail()}") from None
        self._process = None
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def pause(self) -> None:
        """Suspend the process (SIGSTOP)."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a suspended process (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask_to_end(self) -> None:
        """Send SIGTERM once, if it runs; `stop` waits for the end."""
        if self.running() and not self._asked:
            self._asked = True
            self.signal(signal.SIGTERM)
            self.resume()

    def stop(self) -> bool:
        """End the process with SIGTERM; return whether it ran, and ended properly and in time."""
        self.ask_to_end()
        process, self._process = self._process, None
        if process is None:
            return False
        if process.poll() is None:
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return False
        # Finally twistd ends itself by the same signal.
        return process.returncode in (0, -signal.SIGTERM)

    def output(self) -> str:
        """Return all output of the process so far; a thread writes it, so wait for a pause in it."""
        for _ in range(_PAUSES):
            before = self._size()
            time.sleep(_PAUSE)
            if self._size() == before:
                break
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def tail(self) -> str:
        """Return the end of the output of the process."""
        return self.output()[-3000:]

    def descriptors(self) -> int:
        """Return the number of open file descriptors of the process."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory(self) -> int:
        """Return the unshared resident memory of the process, B."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"{self.name} has ended: {self.tail()}")

    def holds(self, secret: bytes) -> bool:
        """Return whether *secret* is anywhere in the memory of the process."""
        return holds(self.pid, secret)


class ShellProgram(Program):
    """A shell that runs one program, maybe as the end of a pipe, and ends with it."""

    @property
    def inner_pid(self) -> int:
        """The process id of the program that the shell runs, or has become."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[-1]) if children else self.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program that the shell runs."""
        with suppress(ProcessLookupError):
            os.kill(self.inner_pid, number)


def holds(pid: int, secret: bytes) -> bool:
    """Return whether *secret* is anywhere in the memory of a process."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access = line.split()[:2]
            if not access.startswith("rw"):
                continue
            first, last = (int(part, 16) for part in span.split("-"))
            try:
                memory.seek(first)
                if secret in memory.read(last - first):
                    return True
            except OSError:  # a mapping of the kernel's
                continue
    return False


def run(
    argv: Sequence[str],
    *,
    timeout: float = PATIENCE,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end within *timeout* s."""
    try:
        return subprocess.run(
            list(argv),
            check=False,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env=clean_environment(environment),
            cwd=folder,
        )
    except subprocess.TimeoutExpired as late:
        raise NotInTimeError(
            f"{' '.join(argv[:6])} did not end within {timeout:g} s: {(late.stderr or b'')[-1000:]!r}"
        ) from None
