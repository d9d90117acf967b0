"""Starting and stopping the demo's programs."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HOST = "127.0.0.1"
PATIENCE = 60.0  # s for a program to become ready
STOP_PATIENCE = 10.0  # s between SIGTERM and SIGKILL
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class DemoError(Exception):
    """The demo cannot continue; the message has the reason."""


def script(name: str) -> str:
    """Return the path of a command in this Python's environment."""
    return str(Path(sys.executable).parent / name)


def port_near(wanted: int) -> int:
    """Return *wanted* if it is free, else another free port."""
    for port in (wanted, 0):
        try:
            with socket.create_server((HOST, port)) as listener:
                found: int = listener.getsockname()[1]
                return found
        except OSError:
            continue
    raise DemoError(f"no free port on {HOST}")


def die_with_parent() -> None:
    """Let the kernel terminate this process when the demo ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Programs:
    """The running programs; `stop` stops them in reverse order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, argv: Sequence[str], environment: dict[str, str] | None = None) -> None:
        """Start a program; its output goes to `log`."""
        with self.log(name).open("ab") as output:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "NO_PROXY": HOST, **(environment or {})},
                start_new_session=True,  # Ctrl-C reaches the demo only
                preexec_fn=die_with_parent,  # noqa: PLW1509 (one system call)
            )
        self._running.append((name, process))

    def log(self, name: str) -> Path:
        """Return the output file of a program."""
        return self._folder / f"{name}.log"

    def ended(self) -> str | None:
        """Return the name of a program that ended by itself, or None."""
        return next((name for name, process in self._running if process.poll() is not None), None)

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until *ready* returns True.

        :raise DemoError: a program ended, or `PATIENCE` s passed.
        """
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if name := self.ended():
                end = self.log(name).read_text(errors="replace")[-2000:]
                raise DemoError(f"{name} ended; last output:\n{end}")
            if time.monotonic() > deadline:
                raise DemoError(f"{what} was not ready within {PATIENCE:g} s; see {self._folder}/*.log")
            time.sleep(0.1)

    def stay(self) -> None:
        """Wait for `KeyboardInterrupt`.

        :raise DemoError: a program ended.
        """
        while not (name := self.ended()):
            time.sleep(0.2)
        raise DemoError(f"{name} ended; see {self.log(name)}")

    def stop(self) -> None:
        """Stop all programs, the last started first."""
        while self._running:
            _, process = self._running.pop()
            process.terminate()
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def output_of(argv: Sequence[str], stdin: str = "") -> str:
    """Run a command and return its output.

    :raise DemoError: it failed; the message has its output.
    """
    done = subprocess.run(
        list(argv), check=False, input=stdin, capture_output=True, text=True, timeout=PATIENCE
    )
    if done.returncode:
        raise DemoError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
