"""The agent's health page: is it alive, and is the tunnel up."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import Site


class Healthy(Protocol):
    """Who is asked; `tower.member.reconnecting.Reconnecting` is one."""

    @property
    def ready(self) -> bool:
        """Whether the tunnel is up."""

    @property
    def state(self) -> str:
        """What goes on, for people."""


class HealthPage(Resource):
    """`/healthz` answers as long as the program runs; `/readyz` is 200 while the tunnel is up, else 503."""

    isLeaf = True

    def __init__(self, subject: Healthy) -> None:
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
            return b"there are /healthz and /readyz\n"
        if self._subject.ready:
            return b"ok\n"
        request.setResponseCode(503)
        return f"not ready: {self._subject.state}\n".encode()


class _QuietSite(Site):
    """A site that does not log that it was asked, which a kubelet does every few seconds."""

    noisy = False

    def log(self, request: Request) -> None:
        """Say nothing."""


class HealthService(Service):
    """Listens on *host*, *port* from the moment it is made until it is stopped; a client has 10 s to ask.

    :raise twisted.internet.error.CannotListenError: the port is taken or may not be bound.
    """

    def __init__(self, reactor: Any, host: str, port: int, subject: Healthy) -> None:
        site = _QuietSite(HealthPage(subject), timeout=10)  # type: ignore[no-untyped-call]
        self._port: IListeningPort = reactor.listenTCP(port, site, interface=host)

    def stopService(self) -> Deferred[None]:
        """Stop listening."""
        super().stopService()  # type: ignore[no-untyped-call]
        return maybeDeferred(self._port.stopListening).addCallback(lambda _: None)
