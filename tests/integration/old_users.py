"""Users with access to details that ``http.client`` hides: the end of an answer, and a half-close."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.integration.person import Person
from tower.net.tls.session import TLSEnded, TLSSession


class Reading:
    """A request whose answer is read up to the end of the connection, in the background.

    :ivar was_cut: whether the connection ended without a proper end.
    """

    def __init__(self, person: Person) -> None:
        sock = socket.create_connection((person.host, person.port), 20)
        self._socket = person.tls.wrap_socket(sock, server_hostname=person.host, suppress_ragged_eofs=False)
        self._socket.sendall(b"GET /api HTTP/1.1\r\nHost: %b\r\n\r\n" % person.host.encode())
        self.was_cut = False
        self._got = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while data := self._socket.recv(1 << 16):
                self._got += data
        except OSError:
            self.was_cut = True
        finally:
            self._socket.close()

    def all(self) -> bytes:
        """Wait for the end, and return everything received before."""
        self._thread.join(20)
        return self._got


class HalfClosing:
    """A user who can end one side of TLS and read on, which Python's sockets cannot."""

    def __init__(self, person: Person) -> None:
        self._socket = socket.create_connection((person.host, person.port), 20)
        self._session = TLSSession(person.tls, server_side=False, server_hostname=person.host)
        self._buffer = memoryview(bytearray(1 << 20))
        self._got = b""
        while not self._session.handshake():
            self._socket.sendall(self._session.take())
            self._receive()
        self._socket.sendall(self._session.take())

    def _receive(self) -> None:
        data = self._socket.recv(1 << 16)
        assert data, "the connection was cut"
        self._session.feed(memoryview(data))

    def send(self, data: bytes) -> None:
        """Send plain text."""
        self._socket.sendall(self._session.encrypt(data))

    def end(self) -> None:
        """End our side (close_notify)."""
        self._socket.sendall(self._session.end())

    def until(self, mark: bytes) -> None:
        """Read up to *mark*."""
        while mark not in self._got:
            self._read()
        self._got = self._got.partition(mark)[2]

    def _read(self) -> None:
        while not (count := self._session.read_into(self._buffer)):
            self._receive()
        self._got += self._buffer[:count]

    def rest(self) -> bytes:
        """Return everything up to the end."""
        with contextlib.suppress(TLSEnded):
            while True:
                self._read()
        return self._got

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()
