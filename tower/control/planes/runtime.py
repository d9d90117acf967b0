"""Surroundings of all planes: the options, the reactor, the clocks, and the reloads on SIGHUP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, Self

from attrs import frozen
from twisted.application.service import Service

from tower.control.proxy_options import Options
from tower.reactor.clock import TimeOfDay
from tower.reactor.interfaces import IReactor
from tower.reactor.poller import Poller
from tower.reactor.repeating import periodic
from tower.reactor.signals import Reloads


class RecordFollower(Protocol):
    """Follows the records."""

    def stop(self) -> None:
        """Stop."""


@frozen(eq=False)
class Runtime:
    """Surroundings of all planes.

    :ivar reloads: the planes add to it.
    :ivar day: its ``seconds()`` are since the epoch.
    :ivar sockets: of all connections.
    """

    options: Options
    reactor: IReactor
    reloads: Reloads
    day: TimeOfDay
    sockets: Poller

    @classmethod
    def of(cls, options: Options, reactor: IReactor, reloads: Reloads) -> Self:
        """Return the surroundings."""
        return cls(options, reactor, reloads, TimeOfDay(reactor), Poller(reactor))

    @property
    def epoch(self) -> Callable[[], float]:
        """Returns Unix time, s."""
        return self.day.seconds

    def every(self, period: float, *calls: Callable[[], Awaitable[object] | object]) -> Sequence[Service]:
        """Return a service for each of *calls*, which it calls every *period* s."""
        return [periodic(self.reactor, period, each) for each in calls]
