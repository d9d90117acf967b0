"""Limits of memory and connections that all ports share."""

from __future__ import annotations

from typing import Self

from attrs import frozen

from tower.control.planes.runtime import Runtime
from tower.net.budget import UNAUTHENTICATED_MINIMUM, UNAUTHENTICATED_PART, Budget
from tower.net.connection_slots import Slots
from tower.net.load_balancers import Balancers
from tower.web.gateway.gateway import SharedLimits


@frozen(eq=False)
class ConnectionLimits:
    """The limits.

    :ivar budget: memory for what waits to be sent.
    :ivar shared: those of clients that are not authenticated.
    :ivar slots: number of connections.
    :ivar balancers: may name the clients of their connections.
    """

    budget: Budget
    shared: SharedLimits
    slots: Slots
    balancers: Balancers

    @classmethod
    def of(cls, runtime: Runtime) -> Self:
        """Return the limits of the options."""
        options, reactor = runtime.options, runtime.reactor
        budget = Budget(options["buffer-budget"])
        unauthenticated = max(budget.capacity // UNAUTHENTICATED_PART, UNAUTHENTICATED_MINIMUM)
        return cls(
            budget,
            SharedLimits.of(runtime.sockets, unauthenticated),
            Slots(reactor, options["max-connections"], options["max-connections-per-address"]),
            Balancers(reactor, options["proxy-protocol-from"] or ()),
        )
