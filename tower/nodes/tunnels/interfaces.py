"""What the places of one list of nodes have in common, and what they need of tunnels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from attrs import define, frozen
from twisted.internet.defer import Deferred

from tower.clusters.node import Node
from tower.nodes.tunnels.limiter import Limiter


class NodeTunnel(Protocol):
    """What a list needs of a tunnel; `tower.nodes.tunnels.tunnel.NodeTunnel` is one.

    :ivar lost: fires with the reason when a tunnel that was open is gone.
    :ivar host_key: fingerprint of the node's; empty before it is known.
    :ivar draining: whether it takes no new streams.
    :ivar node: where it leads, as texts and others call it.
    """

    lost: Deferred[Exception]
    node: Node

    @property
    def host_key(self) -> str:
        """The node's fingerprint."""

    @property
    def round_trip(self) -> float:
        """To the node, s; 0 while unknown."""

    @property
    def streams(self) -> int:
        """How many are open."""

    @property
    def draining(self) -> bool:
        """Whether it takes no new streams."""

    @property
    def is_open(self) -> bool:
        """Whether streams can be opened."""

    def open(self) -> Deferred[None]:
        """Connect and log in; cancelling leaves nothing behind."""

    def dial(self, host: str, port: int, timeout: float = ...) -> Deferred[Any]:
        """Have the node connect to *host*, *port*; fires with a paused `tower.conch.connection.channel.Channel`.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        """

    def close(self, reason: str) -> Any:
        """Close at once, with all streams."""

    def retire(self, grace: float) -> Any:
        """Take no new streams; close when the last has ended, after *grace* s at the latest."""


#: Looks whether a tunnel works: returns an empty text if it does, or why what is behind it does not answer
#: well; raises what is wrong when the tunnel is of no use.
HealthCheck: TypeAlias = Callable[[Any], Awaitable[str]]


@define
class OpenCounters:
    """How many tunnels were opened since the process began; shared by all lists.

    :ivar open_count: attempts that ended.
    :ivar open_fail_count: those of them that failed.
    """

    open_count: int = 0
    open_fail_count: int = 0


@frozen
class ListContext:
    """What the places of one list have in common.

    :ivar clock: an ``IReactorTime``.
    :ivar epoch: returns the time of day, s since the epoch.
    :ivar create: makes a node's tunnel, not open yet.
    :ivar health: None: tunnels are taken for healthy as long as they are there.
    :ivar cluster: in front of log lines, where there are several.
    :ivar changed: called when the state of a place changed.
    :ivar gone: called with each place of which nothing is left after it was left or closed.
    """

    clock: Any
    epoch: Callable[[], float]
    create: Callable[[Node], NodeTunnel]
    health: HealthCheck | None
    check_timeout: float
    counters: OpenCounters
    turns: Limiter
    cluster: str
    changed: Callable[[], None]
    gone: Callable[[Any], None]
