"""Delay of the event loop's timers, which every request has in it, too."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tower.metrics.families import histogram
from tower.metrics.histogram import DELAY_BOUNDS, Histogram

LAG = "tower_event_loop_lag_seconds"

#: Interval of the samples, s.
PERIOD = 0.25


class LoopLag(Service, Collector):
    """Sets a timer every `PERIOD` s and measures by how much it is late."""

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._timer: IDelayedCall | None = None
        self._due = 0.0
        self.lag = Histogram(DELAY_BOUNDS)

    def startService(self) -> None:
        """Start to measure."""
        super().startService()  # type: ignore[no-untyped-call]
        self._set_timer()

    def stopService(self) -> None:
        """Stop to measure."""
        super().stopService()  # type: ignore[no-untyped-call]
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _set_timer(self) -> None:
        self._due = self._reactor.seconds() + PERIOD
        self._timer = self._reactor.callLater(PERIOD, self._measure)

    def _measure(self) -> None:
        self.lag.observe(max(0.0, self._reactor.seconds() - self._due))
        self._set_timer()

    def collect(self) -> Iterable[Metric]:
        """Yield the histogram."""
        yield histogram(LAG, "Delay of timers behind their time, sampled four times a second.", self.lag)
