"""Continuous traffic of users while something happens to the programs: every byte of it is known."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.integration.marks import Follower, marked
from tests.integration.person import Person
from tests.integration.programs import wait_for

MIB = 2**20
PIECE = 64 * 1024  # B
RATE = 12 * MIB  # B/s at which users read and write, so that it takes its time
SIZE = 96 * MIB  # B, in each direction
ENDLESS = 4 << 30  # B; it is broken before, as that takes minutes
PATIENCE = 60.0  # s


class Use:
    """Continuous traffic of a user, in a thread.

    :param size: of one transfer, B.
    :ivar moved: bytes so far.
    """

    def __init__(
        self, person: Person, user: str = "jane", cluster: str = "alpha", *, size: int = SIZE
    ) -> None:
        self.size = size
        self.moved = 0
        self.owner = f"{user}@{cluster}"
        self._person = person
        self._outcome = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        return type(self).__name__.lower()

    def _run(self) -> None:
        connection = self._person.connect(timeout=PATIENCE)
        try:
            self.use(connection)
            self._outcome = "whole"
        except (OSError, http.client.HTTPException) as e:
            self._outcome = f"broken: {e!r}"
        except AssertionError as e:
            self._outcome = f"wrong: {e}"
        finally:
            connection.close()

    def use(self, connection: http.client.HTTPSConnection) -> None:
        """Do it, at no more than `RATE`."""
        raise NotImplementedError

    def wait_for_middle(self, timeout: float) -> None:
        """Return when something has moved, in time."""
        wait_for(f"the middle of {self}", lambda: self.moved > MIB, timeout)

    def wait_for_more(self, moved: int, timeout: float) -> None:
        """Return when more has moved than was then, or it is over."""
        wait_for(f"more of {self}", lambda: self.moved > moved or self._outcome, timeout)

    def result(self, timeout: float) -> str:
        """Return how it ended, in time: ``whole``, or what is wrong."""
        self._thread.join(timeout)
        return self._outcome or f"still going on, {self.moved} B"

    def broken(self, timeout: float) -> bool:
        """Return whether it broke in time, as it should."""
        return self.result(timeout).startswith("broken")


class Download(Use):
    """An answer whose bytes are known."""

    def use(self, connection: http.client.HTTPSConnection) -> None:
        """Read and compare."""
        path = f"{self._person.prefix}/marks/{self.owner}/1?size={self.size}"
        answer = self._person.ask(connection, path, "POST", b"")
        assert answer.status == 200, answer.status
        follower = Follower(f"{self.owner}/1/down")
        while data := answer.read(PIECE):
            follower.feed(data)
            self.moved += len(data)
            time.sleep(len(data) / RATE)
        if self.moved < self.size:
            raise http.client.IncompleteRead(b"", self.size - self.moved)


class Upload(Use):
    """A body that the API server compares."""

    def use(self, connection: http.client.HTTPSConnection) -> None:
        """Send, and wait for the confirmation."""
        path = f"{self._person.prefix}/marks/{self.owner}/2?size=1"
        headers = {**self._person.headers(), "Content-Length": str(self.size)}
        connection.request("POST", path, self._pieces(), headers)
        answer = connection.getresponse()
        if answer.status in (502, 503, 504):
            raise ConnectionResetError(answer.reason)
        assert answer.status == 200, answer.status
        answer.read()

    def _pieces(self) -> Iterator[bytes]:
        while self.moved < self.size:
            data = marked(f"{self.owner}/2/up", self.moved, self.moved + PIECE)
            yield data
            self.moved += len(data)
            time.sleep(len(data) / RATE)


class Upgrade(Use):
    """An upgraded connection that gives back what is sent."""

    def use(self, connection: http.client.HTTPSConnection) -> None:
        """Send and compare, for ever."""
        path = f"{self._person.prefix}/marks/{self.owner}/3?size=1"
        headers = {**self._person.headers(), "Connection": "Upgrade", "Upgrade": "echo"}
        connection.request("GET", path, headers=headers)
        sock: Any = connection.sock
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1) or self._end()
        assert head.startswith(b"HTTP/1.1 101 "), head
        while True:
            data = marked(f"{self.owner}/3/up", self.moved, self.moved + PIECE)
            sock.sendall(data)
            back = b""
            while len(back) < len(data):
                back += sock.recv(PIECE) or self._end()
            assert back == data, "other bytes"
            self.moved += len(data)
            time.sleep(len(data) / RATE)

    def _end(self) -> bytes:
        raise ConnectionResetError
