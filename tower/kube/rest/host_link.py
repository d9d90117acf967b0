"""State of the access to a host cluster: its reflectors, and the number and duration of requests."""

from __future__ import annotations

from collections import Counter

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime

from tower.kube.rest.reflector_group import ReflectorGroup
from tower.metrics.histogram import Histogram

_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")


@define(eq=False)
class HostRequests:
    """Counts the requests to the API server.

    :ivar counts: by verb and class of the status code; ``none`` without an answer.
    :ivar durations: by verb; not of watches.
    """

    counts: Counter[tuple[str, str]] = field(factory=Counter, init=False)
    durations: dict[str, Histogram] = field(factory=dict, init=False)

    def observe(self, verb: str, code: int, seconds: float) -> None:
        """Count one request.

        :param code: status of the answer; 0 without one.
        """
        self.counts[verb, _CLASSES[min(code // 100, 5)]] += 1
        if verb != "watch":
            if verb not in self.durations:
                self.durations[verb] = Histogram()
            self.durations[verb].observe(seconds)


@frozen
class HostLink:
    """State that all clients and reflectors of one host cluster share."""

    reflectors: ReflectorGroup
    requests: HostRequests = field(factory=HostRequests)

    @classmethod
    def of(cls, reactor: IReactorTime) -> HostLink:
        """Return a new one."""
        return cls(ReflectorGroup(reactor))
