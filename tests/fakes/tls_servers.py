"""An API server with TLS in memory, whose certificate the clock decides about."""

from __future__ import annotations

import ssl
from email.utils import formatdate

from twisted.internet.defer import Deferred, succeed

from tests.fakes.chains import family, issue, server_context
from tests.fakes.pipes import FakePipe
from tower.net.tls.session import TLSEnded, TLSSession

#: Longest request that is read, B.
_LONGEST = 1 << 16


class TLSServedPipe(FakePipe):
    """A pipe to a server with TLS, which `serve` lets answer.

    :ivar requests: the bytes of all requests on this pipe.
    """

    def __init__(self, context: ssl.SSLContext, date: float) -> None:
        super().__init__()
        self._session = TLSSession(context, server_side=True)
        self._is_ready = False
        self._answer = (
            b"HTTP/1.1 200 OK\r\nDate: %b\r\nContent-Length: 25\r\n\r\n"
            b'{"gitVersion": "v1.36.2"}' % formatdate(date, usegmt=True).encode()
        )
        self.requests = bytearray()

    def serve(self) -> None:
        """Read, and answer a request."""
        if not (data := self.taken()):
            return
        self._session.feed(memoryview(data))
        try:
            self._read()
        except (ssl.SSLError, TLSEnded):
            pass  # the client rejects the certificate, or has its answer
        if output := self._session.take():
            self.deliver(output)

    def _read(self) -> None:
        if not self._is_ready:
            self._is_ready = self._session.handshake()
        if not self._is_ready:
            return
        buffer = memoryview(bytearray(_LONGEST))
        if size := self._session.read_into(buffer):
            self.requests += buffer[:size]
            self.deliver(self._session.encrypt(self._answer))


class MisdatedServer:
    """A server whose certificate is valid from an hour after now on, as its own clock shows.

    :ivar now: the time of the test, s since the epoch.
    :ivar pipes: all connections.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        middle = family()[1]
        self._context = server_context(issue("tower.example", middle, begin=3600.0), middle[0])
        self.pipes: list[TLSServedPipe] = []

    def open(self, *_: object, **__: object) -> Deferred[TLSServedPipe]:
        """Return a new connection."""
        self.pipes.append(TLSServedPipe(self._context, self.now + 3600.0))
        return succeed(self.pipes[-1])

    def serve(self) -> None:
        """Serve all connections until nothing happens any more."""
        for _ in range(12):
            for pipe in list(self.pipes):
                pipe.serve()
