"""The agent's health page: liveness, and whether the tunnel is up."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IReactorTCP
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import Site

from tower.member.reconnecting import Reconnecting


class HealthPage(Resource):
    """`/healthz` is 200 while the process runs; `/readyz` is 200 while the tunnel is up, else 503."""

    isLeaf = True

    def __init__(self, subject: Reconnecting) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._subject = subject

    def render_GET(self, request: Any) -> bytes:
        """Answer GET and HEAD."""
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        request.setHeader(b"cache-control", b"no-store")
        if request.path == b"/healthz":
            return b"ok\n"
        if request.path != b"/readyz":
            request.setResponseCode(404)
            return b"not found: the paths are /healthz and /readyz\n"
        if self._subject.ready:
            return b"ok\n"
        request.setResponseCode(503)
        return f"not ready: {self._subject.state}\n".encode()


class _QuietSite(Site):
    """A site without an access log: kubelets probe every few seconds."""

    noisy = False

    def log(self, request: Request) -> None:
        """No-op."""


class HealthService(Service):
    """The server of the page, which listens from its construction on; timeout of requests: 10 s.

    :raise twisted.internet.error.CannotListenError: the port is in use or cannot be bound.
    """

    def __init__(self, reactor: IReactorTCP, host: str, port: int, subject: Reconnecting) -> None:
        site: Any = _QuietSite(HealthPage(subject), timeout=10)  # type: ignore[no-untyped-call]
        self._port: IListeningPort = reactor.listenTCP(port, site, interface=host)

    def stopService(self) -> Deferred[None]:
        """Stop listening."""
        super().stopService()  # type: ignore[no-untyped-call]
        return maybeDeferred(self._port.stopListening).addCallback(lambda _: None)
