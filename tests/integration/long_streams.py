"""Long streams of users: ``kubectl exec`` that exchanges lines, and a large download with checked bytes."""

from __future__ import annotations

import http.client
import os
import select
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.integration.person import Person
from tests.integration.programs import PATIENCE, clean_environment, wait_for
from tests.integration.threaded import ThreadedServer

BLOCK = 1 << 20  # B; each block begins with its number
NUMBER = 8  # B
NOISE = os.urandom(BLOCK - NUMBER)
PAUSE = 0.05  # s between two lines
TARGET = "bulk"


def block(number: int) -> bytes:
    """Return a block of the download: a lost, repeated or moved byte makes it differ."""
    return number.to_bytes(NUMBER, "big") + NOISE


class BlockServer(ThreadedServer):
    """Answers each HTTP request with *size* bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self._size)
                for number in range(self._size // BLOCK):
                    connection.sendall(block(number))
            except OSError:  # the user disconnected
                return

    @property
    def option(self) -> str:
        """The agent's option that makes this the target `TARGET`."""
        host, port = self._listener.getsockname()
        return f"--target={TARGET}={host}:{port}"


class LongStream:
    """A stream in a thread that notes why it ended.

    :ivar failure: why it ended early; empty if it did not.
    """

    def __init__(self) -> None:
        self.failure = ""
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run()
        except (OSError, http.client.HTTPException, AssertionError) as e:
            self.failure = repr(e)

    def _run(self) -> None:
        raise NotImplementedError


class Download(LongStream):
    """A download of a `BlockServer` of *size* bytes; only the released part of it is read.

    :ivar received: number of correct bytes so far.
    """

    def __init__(self, person: Person, size: int) -> None:
        self.received = 0
        self._size = size
        self._released = 0
        self._more = threading.Condition()
        self._connection = person.connect(timeout=4 * PATIENCE)
        self._response = person.ask(self._connection, f"{person.prefix}/targets/{TARGET}/")
        assert self._response.status == 200, self._response.read()
        super().__init__()

    def _run(self) -> None:
        buffer = bytearray(BLOCK)
        view = memoryview(buffer)
        for number in range(self._size // BLOCK):
            with self._more:
                while self._released < (number + 1) * BLOCK:
                    self._more.wait()
            filled = 0
            while filled < BLOCK:
                count = self._response.readinto(view[filled:])
                assert count, f"the download ended after {self.received + filled} B"
                filled += count
            assert buffer == block(number), f"block {number} differs"
            self.received += BLOCK
        assert not self._response.read(1), "the download is too long"

    def release(self, count: int) -> None:
        """Let *count* bytes more be read, rounded to blocks."""
        with self._more:
            self._released = min(self._size, self._released + count // BLOCK * BLOCK)
            self._more.notify()

    def check(self) -> None:
        """Wait for all released bytes, which are correct."""
        wait_for("the download", lambda: self.failure or self.received >= self._released)
        assert not self.failure, self.failure

    def finish(self) -> None:
        """Read the rest; every byte must be there."""
        self.release(self._size)
        self._thread.join(4 * PATIENCE)
        assert not self.failure, self.failure
        assert self.received == self._size, f"{self.received} of {self._size} B"
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class Conversation(LongStream):
    """``kubectl exec -i`` of ``cat`` in the pod ``shell``: sends a line, waits for it, and so on.

    :ivar count: of the lines that came back.
    """

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self.count = 0
        self._stop = threading.Event()
        argv = [str(kubectl), f"--kubeconfig={kubeconfig}", "exec", "-i", "shell", "-c", "main", "--", "cat"]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment({"KUBECACHEDIR": str(kubeconfig.parent / "cache")}),
            bufsize=0,
        )
        super().__init__()

    def _run(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        while not self._stop.is_set():
            line = b"line %d of %d\n" % (self.count, process.pid)
            process.stdin.write(line)
            back = b""
            while not back.endswith(b"\n"):
                ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
                assert ready, f"no answer to {line!r} within {PATIENCE:g} s"
                data = process.stdout.read(4096)
                assert data, "the command ended"
                back += data
            assert back == line, (back, line)
            self.count += 1
            time.sleep(PAUSE)

    def check(self) -> None:
        """Wait until two lines more have come back."""
        wanted = self.count + 2
        wait_for("lines of the command", lambda: self.failure or self.count >= wanted)
        assert not self.failure, f"{self.failure}: {self._error()}"

    def wait_for_end(self) -> str:
        """Wait until the command was ended from outside; return kubectl's error."""
        wait_for("the end of the command", lambda: self.failure)
        return self._error()

    @property
    def code(self) -> int | None:
        """Exit code of kubectl, once it has ended."""
        return self._process.returncode

    def finish(self) -> None:
        """End the command's input; it must end with exit code 0."""
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self.failure, f"{self.failure}: {self._error()}"
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(PATIENCE)
        assert code == 0, f"kubectl exec: exit code {code}: {self._error()}"

    def _error(self) -> str:
        self.close()
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End kubectl if it still runs."""
        self._process.kill()
        self._process.wait(PATIENCE)
