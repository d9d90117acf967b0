"""A clock for stand-ins in memory that do not answer at once, or never."""

from __future__ import annotations

from treq.testing import RequestTraversalAgent
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from .asking import START


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
