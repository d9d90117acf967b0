"""What Prometheus is told of the tunnels to nodes, under the names that kube-apiserver gave it.

Each number has the label ``cluster``; without a name (`tower.nodes.dialer`) that is empty, which to
Prometheus is no label, as upstream has it.  There is no total beside them: ``sum`` makes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.protocols.policies import WrappingFactory
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

#: How many connections there may be to the port, and how long an idle one is kept, s.
CONNECTIONS = 32
IDLE = 30.0


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these and nothing else."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """Return what *registry* collects now in Prometheus' text format 0.0.4.

    prometheus_client's own writer says ``TYPE`` of each counter for its name with ``_total`` behind it, which
    upstream's names have not.
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
            said = f"{{{labels}}}" if labels else ""
            yield f"{sample.name}{said} {float(sample.value)!r}\n"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


class _MetricsPage(Resource):
    """The one page that there is."""

    isLeaf = True

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._registry = registry

    def render(self, request: Request) -> bytes:
        """Return the numbers; for HEAD how many bytes they are."""
        if request.method not in (b"GET", b"HEAD"):
            request.setResponseCode(405)
            request.setHeader(b"allow", b"GET, HEAD")
            return b""
        page = exposition(self._registry)
        request.setHeader(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
        request.setHeader(b"content-length", b"%d" % len(page))
        return page if request.method == b"GET" else b""


class _Request(Request):
    """A request whose body nobody wants."""

    def handleContentChunk(self, data: bytes) -> None:
        """Keep nothing."""


class _Site(Site):
    """Answers without a word in the log for each scrape."""

    requestFactory = _Request
    noisy = False
    displayTracebacks = False

    def log(self, request: Any) -> None:
        """Say nothing."""


class _Few(WrappingFactory):
    """Takes no more than `CONNECTIONS` at a time."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Take a connection, or close it at once."""
        return None if len(self.protocols) >= CONNECTIONS else super().buildProtocol(addr)

    def close_all(self) -> None:
        """Close what is open."""
        for protocol in list(self.protocols):
            protocol.abortConnection()


class MetricsPort(Service):
    """Serves ``/metrics``, to whoever asks.

    :param port: 0: any that is free.
    :ivar port: where it listens, once it does.
    """

    def __init__(self, reactor: Any, registry: CollectorRegistry, host: str, port: int) -> None:
        root = Resource()
        root.putChild(b"metrics", _MetricsPage(registry))
        self._reactor = reactor
        site = _Site(root, timeout=IDLE, reactor=reactor)  # type: ignore[no-untyped-call]
        self._site = _Few(site)  # type: ignore[no-untyped-call]
        self._host = host
        self._listening: Any = None
        self.port = port

    def startService(self) -> None:
        """Listen.

        :raise CannotListenError: the port is in use.
        """
        super().startService()  # type: ignore[no-untyped-call]
        self._listening = self._reactor.listenTCP(self.port, self._site, interface=self._host)
        self.port = self._listening.getHost().port

    def stopService(self) -> Deferred[None] | None:
        """Listen no more, and close what is open."""
        super().stopService()  # type: ignore[no-untyped-call]
        listening, self._listening = self._listening, None
        if listening is None:
            return None
        self._site.close_all()
        stopping: Deferred[None] | None = listening.stopListening()
        return stopping
