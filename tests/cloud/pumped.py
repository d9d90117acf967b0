"""A clock for stand-ins in memory that do not answer at once, or never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from tests.cloud.asking import START


class PumpedClock(Clock):
    """Delivers the data of *agent* when time advances, also the ends of connections.

    :ivar agent: asks *resource* in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.agent: RequestTraversalAgent | None = None
        self.advance(START)

    def ask(self, resource: Resource) -> RequestTraversalAgent:
        """Return an agent that asks *resource*."""
        self.agent = RequestTraversalAgent(resource)
        return self.agent

    def advance(self, amount: float) -> None:
        """See `Clock`."""
        super().advance(amount)
        if self.agent is not None:
            self.agent.flush()


class CountingClock(PumpedClock):
    """Counts how often the reactor ran other work.

    :ivar turns: calls with no delay.
    """

    def __init__(self) -> None:
        self.turns = 0
        super().__init__()

    def callLater(
        self,
        delay: float,
        callable: Callable[..., Any],  # noqa: A002
        *args: object,
        **kw: object,
    ) -> IDelayedCall:
        """See `Clock`."""
        self.turns += delay == 0
        return super().callLater(delay, callable, *args, **kw)
