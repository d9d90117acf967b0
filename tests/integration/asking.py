"""A user's request that runs while a test goes on."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.integration.person import Person
from tests.integration.programs import PATIENCE


class Asking:
    """A user's request to the cluster of the hostile agent, in the background.

    :ivar status: of the answer, 0 before it, -1 if the connection was cut.
    """

    def __init__(self, person: Person, method: str = "GET", size: int = 0) -> None:
        self._person = person
        self._connection = person.connect()
        self._method, self._size = method, size
        self.status = 0
        self.body = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        person = self._person
        body = iter([bytes(65536)] * (self._size // 65536)) if self._size else None
        headers = person.headers() | ({"Content-Length": str(self._size)} if self._size else {})
        try:
            self._connection.request(self._method, person.prefix + "/api", body, headers)
            answer = self._connection.getresponse()
            self.body = answer.read()
            self.status = answer.status
        except Exception:  # noqa: BLE001 - how it was cut is of no interest
            self.status = -1

    def answer(self) -> int:
        """Wait for the answer, and return its status."""
        self._thread.join(PATIENCE)
        return self.status

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        self._connection.close()
