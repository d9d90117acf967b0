"""Running kubectl within a deadline: to its end, in the background, or under a terminal."""

import fcntl
import json
import os
import pty
import queue
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MODES = {
    "ws": "true",
    "spdy": "false",
}  # values of kubectl's two switches for WebSockets


class FailedError(Exception):
    """An operation did not do what it should; the message includes its output."""


def take_terminal() -> None:
    """Make the standard input this process' controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Kubectl:
    """One kubectl binary with one kubeconfig.  Everything must end before `deadline` (of time.monotonic)."""

    def __init__(
        self, binary: Path, kubeconfig: Path, context: str | None, cache: Path, *options: str
    ) -> None:
        self._command = [str(binary), f"--kubeconfig={kubeconfig}", *options]
        self._command += [f"--context={context}"] if context else []
        self._environment = {
            **os.environ,
            "KUBECACHEDIR": str(cache),
            "HOME": str(cache),
        }
        self.mode = "ws"
        self.deadline = 0.0

    def left(self) -> float:
        """Return the seconds that are left before the deadline."""
        return max(0.001, self.deadline - time.monotonic())

    def argv(self, *arguments: str) -> list[str]:
        """Return the whole command line."""
        return [*self._command, *arguments]

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the environment for the current mode."""
        switch = MODES[self.mode]
        switches = {
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": switch,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": switch,
        }
        return {**self._environment, **switches, **extra}

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0, **extra: str) -> tuple[bytes, bytes]:
        """Run to the end; return both outputs.  Any exit code but `code` is a failure."""
        done = subprocess.run(
            self.argv(*arguments),
            check=False,
            input=stdin,
            capture_output=True,
            timeout=self.left(),
            env=self.environment(**extra),
        )
        if done.returncode != code:
            seen = done.stderr.decode(errors="replace").strip()[-200:]
            raise FailedError(f"{' '.join(arguments[:3])}: exit code {done.returncode}, not {code}: {seen}")
        return done.stdout, done.stderr

    def text(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run to the end; return the standard output as text."""
        return self.run(*arguments, stdin=stdin)[0].decode()

    def raw(self, path: str) -> str:
        """Get a path of the API server; return what it answers."""
        return self.text("get", "--raw", path)

    def json(self, *arguments: str, stdin: bytes = b"") -> dict:
        """Run to the end; return the standard output, parsed."""
        return json.loads(self.run(*arguments, "-o", "json", stdin=stdin)[0])

    @contextmanager
    def background(self, *arguments: str) -> Iterator["Background"]:
        """Run while the block lasts, then end it."""
        process = subprocess.Popen(
            self.argv(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
        )
        try:
            yield Background(self, process)
        finally:
            process.kill()
            process.wait()
            with suppress(BrokenPipeError):
                process.stdin.close()

    @contextmanager
    def terminal(self, *arguments: str, size: tuple[int, int]) -> Iterator["Terminal"]:
        """Run under a terminal of `size` (rows, columns) while the block lasts, then end it."""
        master, slave = pty.openpty()
        terminal = Terminal(self, master)
        terminal.resize(*size)
        process = subprocess.Popen(
            self.argv(*arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self.environment(),
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509 (one system call)
        )
        os.close(slave)
        terminal.process = process
        try:
            yield terminal
        finally:
            process.kill()
            process.wait()
            os.close(master)


class Background:
    """A running kubectl; its output is read as lines, each with the time it came."""

    def __init__(self, kubectl: Kubectl, process: subprocess.Popen[bytes]) -> None:
        self._kubectl = kubectl
        self._process = process
        self._lines: queue.Queue[tuple[float, str] | None] = queue.Queue()  # None: the end
        self.seen = ""  # all that `line` has passed
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self._process.stdout as output:
            for line in output:
                text = line.decode(errors="replace").rstrip("\n")
                self._lines.put((time.monotonic(), text))
        self._lines.put(None)

    def send(self, text: str) -> None:
        """Write to the standard input."""
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def line(self, pattern: str) -> tuple[float, re.Match[str]]:
        """Wait for a line that has `pattern` in it; return when it came, and the match."""
        while True:
            try:
                entry = self._lines.get(timeout=self._kubectl.left())
            except queue.Empty:
                entry = None
            if entry is None:
                raise FailedError(f"no line with {pattern!r}, but {self.seen[-200:]!r}")
            moment, text = entry
            self.seen += text + "\n"
            if match := re.search(pattern, text):
                return moment, match

    def end(self, patience: float) -> int | None:
        """Return the exit code, or None if kubectl still runs after `patience` seconds."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None


class Terminal:
    """A kubectl under a terminal."""

    process: subprocess.Popen[bytes]

    def __init__(self, kubectl: Kubectl, master: int) -> None:
        self._kubectl = kubectl
        self._master = master
        os.set_blocking(master, False)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size; the kernel notifies kubectl by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ask(self, line: str, pattern: str) -> None:
        """Type a line, again every second, until the screen shows `pattern`."""
        screen, next_time = "", 0.0
        while not re.search(pattern, screen):
            now = time.monotonic()
            if now > self._kubectl.deadline:
                raise FailedError(f"the terminal did not show {pattern!r}, but {screen[-200:]!r}")
            if now > next_time:
                os.write(self._master, line.encode() + b"\r")
                next_time = now + 1
            try:
                screen += os.read(self._master, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # kubectl has ended
                raise FailedError(f"kubectl ended; the terminal showed {screen[-200:]!r}") from None

    def end(self, line: str) -> int:
        """Type a last line and return kubectl's exit code."""
        os.write(self._master, line.encode() + b"\r")
        return self.process.wait(self._kubectl.left())
