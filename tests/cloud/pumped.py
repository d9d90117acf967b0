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
    """When time goes by, what is on its way through *agent* arrives, the end of a connection too.

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
    """Counts how often somebody let others have their turn.

    :ivar turns: calls that were asked for at once.
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
