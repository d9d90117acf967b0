"""Building, starting, measuring and stopping the programs under test."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from tower import native

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent

#: Time limits for becoming ready, stopping and building, s.
PATIENCE = 20.0
STOP_PATIENCE = 15.0
BUILD_PATIENCE = 600.0

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_CPUCLOCK_SCHED = 2
_LIBC = ctypes.CDLL(None)


class BenchmarkFailed(Exception):
    """A program does not run; the text names it and ends with its last output."""


class NotHere(BenchmarkFailed):
    """A system to compare with is not installed."""


def free_port() -> int:
    """Return a free loopback port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def free_ports(count: int) -> range:
    """Return *count* consecutive free loopback ports."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                socket.create_server((LOOPBACK, port)).close()
        except (OSError, OverflowError):
            continue
        return range(first, first + count)


def wait_for(what: str, ready: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Return when *ready* returns a true value.

    :raise BenchmarkFailed: it did not within *timeout* s.
    """
    until = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > until:
            raise BenchmarkFailed(f"{what}: not ready within {timeout:g} s")
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Return whether a loopback port accepts connections."""
    try:
        socket.create_connection((LOOPBACK, port), 1).close()
    except OSError:
        return False
    return True


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without variables for Tower and HTTP proxies, and with Tower importable."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (not name.startswith("TOWER_") or name == native.VARIABLE) and not name.lower().endswith("_proxy")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **(extra or {})}


def build(source: str, *flags: str, package: str = ".") -> Path:
    """Return the program built from the Go sources in folder *source*; rebuild it only if they changed.

    :param package: of the program; a package outside the folder is a requirement in its ``go.mod``.
    :raise BenchmarkFailed: Go is not installed, or the sources do not compile.
    """
    folder = ROOT / source
    built = cached_result(folder, {".go", ".mod", ".sum"}, repr(flags))
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise BenchmarkFailed("Go is not installed: run 'make go', or install Go 1.26 or newer")
    print(f"building {folder.name} ...", file=sys.stderr, flush=True)
    built.parent.mkdir(parents=True, exist_ok=True)
    draft = built.with_suffix(f".{os.getpid()}")
    done = run([go, "build", *flags, "-o", str(draft), package], folder=folder, timeout=BUILD_PATIENCE)
    if done.returncode:
        raise BenchmarkFailed(f"{folder.name} does not compile: {done.stderr}")
    draft.replace(built)
    return built


def cached_result(folder: Path, suffixes: Collection[str], more: str = "") -> Path:
    """Return a path for the result of the files in a folder; it changes with their content."""
    digest = hashlib.sha256(more.encode())
    for path in sorted(folder.iterdir()):
        if path.suffix in suffixes:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubesphere-tower"
    return cache / f"{folder.name}-{digest.hexdigest()[:16]}"


def run(
    argv: Sequence[str],
    *,
    folder: Path | None = None,
    extra: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for its end.

    :raise BenchmarkFailed: it takes more than *timeout* s.
    """
    try:
        return subprocess.run(
            list(argv),
            cwd=folder,
            env=environment(extra),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as e:
        raise BenchmarkFailed(f"{' '.join(argv[:4])} did not end within {timeout:g} s") from e


def _die_with_parent() -> None:
    """Let the kernel terminate this process when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Watched:
    """A process whose resources are measured from outside."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def cpu(self) -> float:
        """CPU time used by the process and its descendants, s."""
        return sum(map(_cpu_time, _family(self._pid)))

    @property
    def memory(self) -> float:
        """Resident memory, MiB."""
        fields = Path(f"/proc/{self._pid}/statm").read_text().split()
        return int(fields[1]) * _PAGE / 2**20


def _cpu_time(pid: int) -> float:
    """Return the CPU time of a process, s, from its nanosecond clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


class Process(Watched):
    """A program that runs until `stop`; its output goes to a file in *folder*.

    :param uid: user to run as; None: the current user.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        folder: Path,
        extra: Mapping[str, str] | None = None,
        uid: int | None = None,
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment(extra),
                user=uid,
                group=None if uid is None else pwd.getpwuid(uid).pw_gid,
                extra_groups=None if uid is None else (),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call
            )
        super().__init__(self._process.pid)

    def wait_until(self, ready: Callable[[], object], what: str) -> None:
        """Return when *ready* returns a true value.

        :raise BenchmarkFailed: the process ended, or took too long.
        """

        def looked() -> object:
            if self._process.poll() is not None:
                raise BenchmarkFailed(f"{self.name} ended: {self.said()[-2000:]}")
            return ready()

        try:
            wait_for(f"{self.name}: {what}", looked)
        except BenchmarkFailed as e:
            raise BenchmarkFailed(f"{e}; output: {self.said()[-2000:]}") from None

    def said(self) -> str:
        """Return its output."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Terminate it; kill it after `STOP_PATIENCE` s."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
