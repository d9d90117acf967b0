"""The text of all metrics, written in pieces between which the reactor runs.

A proxy with a thousand clusters has nearly a hundred thousand samples, which take some tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.reactor.cooperate import yield_to_reactor

#: Media type of Prometheus' text format.
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

#: Longest time without the reactor, s; a collector's largest family of one cluster adds to it.
PIECE = 0.003


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with only these collectors."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


class MetricsPage:
    """The page with the metrics of a registry.

    Requests that come while the page is being written get the same one, so their number costs nothing.

    :param seconds: a clock with a fine resolution.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        registry: CollectorRegistry,
        seconds: Callable[[], float] = perf_counter,
    ) -> None:
        self._reactor = reactor
        self._registry = registry
        self._seconds = seconds
        self._waiting: list[Deferred[list[bytes]]] | None = None

    def add(self, collector: Collector) -> None:
        """Add metrics to the page."""
        self._registry.register(collector)

    def pieces(self) -> Deferred[list[bytes]]:
        """Return the metrics in Prometheus' text format 0.0.4, in pieces; a short page is there at once."""
        result: Deferred[list[bytes]] = Deferred(self._cancelled)
        if self._waiting is not None:
            self._waiting.append(result)
            return result
        self._waiting = [result]
        writing = Deferred.fromCoroutine(self._write())
        writing.addCallbacks(self._written, self._failed)
        return result

    async def _write(self) -> list[bytes]:
        pieces: list[bytes] = []
        lines: list[str] = []
        began = self._seconds()
        for text in _texts(self._registry.collect()):
            lines.append(text)
            if self._seconds() - began > PIECE:
                pieces.append("".join(lines).encode())
                lines.clear()
                await yield_to_reactor(self._reactor)
                began = self._seconds()
        pieces.append("".join(lines).encode())
        return pieces

    def _cancelled(self, result: Deferred[list[bytes]]) -> None:
        if self._waiting is not None and result in self._waiting:
            self._waiting.remove(result)

    def _written(self, page: list[bytes]) -> None:
        waiting, self._waiting = self._waiting, None
        for result in waiting or ():
            result.callback(page)

    def _failed(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting, None
        for result in waiting or ():
            result.errback(failure)


def _texts(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield the text of each metric; consecutive ones of the same name have one head.

    prometheus_client's writer appends ``_total`` to the name in ``TYPE`` of a counter; upstream's names of
    node tunnels do not have it, and all others have it already.
    """
    last = ""
    for metric in metrics:
        samples = metric.samples
        name = metric.name
        if metric.type == "counter" and samples and samples[0].name == f"{name}_total":
            name = samples[0].name  # a counter of prometheus_client itself
        head = ""
        if name != last:
            last = name
            head = f"# HELP {name} {_escaped(metric.documentation)}\n# TYPE {name} {metric.type}\n"
        yield head + "".join(
            [f"{sample.name}{_label_set(sample.labels)} {float(sample.value)!r}\n" for sample in samples]
        )


def _label_set(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    pairs = [f'{name}="{_escaped(value, quotes=True)}"' for name, value in sorted(labels.items())]
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
