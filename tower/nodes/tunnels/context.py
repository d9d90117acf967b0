"""State shared by the slots of one list of nodes, and the types of their callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from attrs import define, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.clusters.node import Node
from tower.conch.connection.channel import Channel
from tower.nodes.tunnels.limiter import Limiter
from tower.nodes.tunnels.tunnel import NodeTunnel


class NodeDialer(Protocol):
    """Opens streams through nodes: one tunnel, all tunnels of a cluster, or a health check's probe."""

    def dial(self, host: str, port: int) -> Deferred[Channel]:
        """Return a channel to *host*, *port*, both as the node sees them."""


#: Checks a tunnel: returns an empty text if it works, or the problem of the server behind it; raises if the
#: tunnel itself does not work.
HealthCheck: TypeAlias = Callable[[NodeTunnel], Awaitable[str]]


@define
class OpenCounters:
    """Attempts to open a tunnel since the process started.

    :ivar open_count: finished attempts.
    :ivar open_fail_count: failed ones.
    """

    open_count: int = 0
    open_fail_count: int = 0


@frozen
class ListContext:
    """State shared by the slots of one list.

    :ivar epoch: returns the time of day, s since the epoch.
    :ivar create: returns a new tunnel to a node, not open yet.
    :ivar health: None: an open tunnel counts as healthy.
    :ivar check_timeout: of a health check, s.
    :ivar cluster: prefix of log lines; empty without several clusters.
    :ivar changed: called when the state of a slot changed.
    :ivar gone: called with each slot that is completely closed after it left the list.
    """

    clock: IReactorTime
    epoch: Callable[[], float]
    create: Callable[[Node], NodeTunnel]
    health: HealthCheck | None
    check_timeout: float
    counters: OpenCounters
    limiter: Limiter
    cluster: str
    changed: Callable[[], None]
    gone: Callable[[Any], None]
