"""The port of ``/metrics`` for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IListeningPort, IReactorTCP
from twisted.protocols.policies import WrappingFactory
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

#: Maximum number of connections to the port, and idle timeout of one, s.
CONNECTIONS = 32
IDLE = 30.0


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with only these collectors."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """Return the metrics of *registry* in Prometheus' text format 0.0.4.

    prometheus_client's writer appends ``_total`` to the name in ``TYPE`` of a counter; upstream's names of
    node tunnels do not have it.
    """
    return "".join(_lines(registry.collect())).encode()


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        yield f"# HELP {metric.name} {_escaped(metric.documentation)}\n"
        yield f"# TYPE {metric.name} {metric.type}\n"
        for sample in metric.samples:
            labels = ",".join(
                f'{name}="{_escaped(value, quotes=True)}"' for name, value in sorted(sample.labels.items())
            )
            label_set = f"{{{labels}}}" if labels else ""
            yield f"{sample.name}{label_set} {float(sample.value)!r}\n"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


class _MetricsPage(Resource):
    """The page ``/metrics``."""

    isLeaf = True

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._registry = registry

    def render(self, request: Request) -> bytes:
        """Return the metrics; for HEAD, only their length."""
        if request.method not in (b"GET", b"HEAD"):
            request.setResponseCode(405)
            request.setHeader(b"allow", b"GET, HEAD")
            return b""
        page = exposition(self._registry)
        request.setHeader(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
        request.setHeader(b"content-length", b"%d" % len(page))
        return page if request.method == b"GET" else b""


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

    def __init__(self, reactor: IReactorTCP, registry: CollectorRegistry, host: str, port: int) -> None:
        root = Resource()
        root.putChild(b"metrics", _MetricsPage(registry))
        self._reactor = reactor
        site = _Site(root, timeout=IDLE, reactor=reactor)  # type: ignore[no-untyped-call]
        self._site: Any = _LimitedFactory(site)  # type: ignore[no-untyped-call]
        self._host = host
        self._listening: IListeningPort | None = None
        self.port = port

    def startService(self) -> None:
        """Listen; raise `CannotListenError` if the port is in use."""
        super().startService()  # type: ignore[no-untyped-call]
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
