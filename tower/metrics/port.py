"""The port of ``/metrics`` for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IAddress, IListeningPort, IPullProducer, IReactorTCP
from twisted.logger import Logger
from twisted.protocols.policies import WrappingFactory
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from zope.interface import implementer

from tower.metrics.page import CONTENT_TYPE, MetricsPage

#: Maximum number of connections to the port, and idle timeout of one, s.
CONNECTIONS = 32
IDLE = 30.0

_log = Logger()


class MetricsResource(Resource):
    """The page ``/metrics``."""

    isLeaf = True

    def __init__(self, page: MetricsPage) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._page = page

    def render(self, request: Request) -> Any:
        """Return the metrics; for HEAD, only their length."""
        if request.method not in (b"GET", b"HEAD"):
            request.setResponseCode(405)
            request.setHeader(b"allow", b"GET, HEAD")
            return b""
        writing = self._page.pieces()
        request.notifyFinish().addErrback(lambda _: writing.cancel())
        writing.addCallbacks(_answer, _failed, callbackArgs=(request,), errbackArgs=(request,))
        return NOT_DONE_YET


@implementer(IPullProducer)
class _Pieces:
    """Writes the next piece of a page when the client has taken the last one."""

    def __init__(self, pieces: Iterable[bytes], request: Request) -> None:
        self._pieces = iter(pieces)
        self._request = request

    def resumeProducing(self) -> None:
        """Write a piece, or finish the answer."""
        piece = next(self._pieces, None)
        if piece is None:
            self._request.unregisterProducer()
            self._request.finish()
        else:
            self._request.write(piece)

    def stopProducing(self) -> None:
        """Stop: the client disconnected."""
        self._pieces = iter(())


def _answer(pieces: list[bytes], request: Request) -> None:
    request.setHeader(b"content-type", CONTENT_TYPE)
    request.setHeader(b"content-length", b"%d" % sum(map(len, pieces)))
    if request.method == b"GET" and len(pieces) > 1:
        request.registerProducer(_Pieces(pieces, request), streaming=False)
        return
    if request.method == b"GET":
        request.write(pieces[0])
    request.finish()


def _failed(failure: Failure, request: Request) -> None:
    """Answer 500, unless the client disconnected."""
    if failure.check(CancelledError):
        return
    _log.failure("cannot collect the metrics", failure)
    request.setResponseCode(500)
    request.finish()


class _Root(Resource):
    """Answers all paths that do not exist."""

    def getChild(self, path: bytes, request: Request) -> Resource:
        """Return the resource itself, also for paths below it."""
        return self

    def render(self, request: Request) -> bytes:
        """Answer with 404."""
        request.setResponseCode(404)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        return b"this port has /metrics only\n"


class _Request(Request):
    """A request whose body is discarded."""

    def handleContentChunk(self, data: bytes) -> None:
        """Discard the data."""


class _Site(Site):
    """A site without an access log."""

    requestFactory = _Request
    noisy = False
    displayTracebacks = False

    def log(self, request: Any) -> None:
        """No-op."""


class _LimitedFactory(WrappingFactory):
    """Accepts at most `CONNECTIONS` concurrent connections."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Accept a connection, or close it at once."""
        return None if len(self.protocols) >= CONNECTIONS else super().buildProtocol(addr)

    def close_all(self) -> None:
        """Abort all connections."""
        for protocol in list(self.protocols):
            protocol.abortConnection()


class MetricsPort(Service):
    """Serves ``/metrics`` without authentication.

    :param port: 0: any free port.
    :ivar port: the actual port, after the start.
    """

    def __init__(self, reactor: IReactorTCP, page: MetricsPage, host: str, port: int) -> None:
        root = _Root()  # type: ignore[no-untyped-call]
        root.putChild(b"metrics", MetricsResource(page))
        self._reactor = reactor
        site = _Site(root, timeout=IDLE, reactor=reactor)  # type: ignore[no-untyped-call]
        self._site: Any = _LimitedFactory(site)  # type: ignore[no-untyped-call]
        self._host = host
        self._listening: IListeningPort | None = None
        self.port = port

    def startService(self) -> None:
        """Listen; raise `CannotListenError` if the port is in use."""
        super().startService()  # type: ignore[no-untyped-call]
        self.listen()

    def listen(self) -> None:
        """Listen before the start, if not done yet; raise `CannotListenError` if the port is in use."""
        if self._listening is not None:
            return
        self._listening = self._reactor.listenTCP(self.port, self._site, interface=self._host)
        address: Any = self._listening.getHost()
        self.port = address.port

    def stopService(self) -> Deferred[None] | None:
        """Stop listening, and abort all connections."""
        super().stopService()  # type: ignore[no-untyped-call]
        listening, self._listening = self._listening, None
        if listening is None:
            return None
        self._site.close_all()
        stopping: Deferred[None] | None = listening.stopListening()
        return stopping
