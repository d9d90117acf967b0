"""One node in a list: opens its tunnel, checks it, and reopens it when it is lost."""

from __future__ import annotations

from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.clusters.node_status import NodeState, NodeStatus
from tower.errors import one_line
from tower.nodes.tunnels.context import HealthCheck, ListContext
from tower.nodes.tunnels.limiter import Permit
from tower.nodes.tunnels.tunnel import NodeTunnel
from tower.reactor.timers import within

_log = Logger()


class NodeSlot:
    """A node in the list.

    :ivar node: may be replaced by one with other names; its address stays.
    :ivar tunnel: the open tunnel, else None.
    """

    __slots__ = (
        "_checked",
        "_checking",
        "_context",
        "_degraded",
        "_error",
        "_host_key",
        "_left",
        "_next_check",
        "_opening",
        "_permit",
        "_reopened",
        "_since",
        "_state",
        "_suspicion",
        "node",
        "tunnel",
    )

    def __init__(self, context: ListContext, node: Node) -> None:
        self._context = context
        self.node = node
        self.tunnel: NodeTunnel | None = None
        self._permit: Permit | None = None  # while a tunnel is being opened, or waits for that
        self._opening: Deferred[None] | None = None
        self._checking: Deferred[Any] | None = None
        self._next_check: IDelayedCall | None = None
        self._reopened = self._left = False
        self._state: NodeState = "connecting"
        self._since = context.epoch()
        self._checked: float | None = None
        self._degraded = self._suspicion = self._error = ""
        self._host_key = ""

    # State

    def describe(self, node: Node) -> None:
        """Replace the node by *node*, which has the same address."""
        self.node = node
        if self.tunnel is not None:
            self.tunnel.node = node

    @property
    def is_usable(self) -> bool:
        """Whether streams can be opened."""
        tunnel = self.tunnel
        return tunnel is not None and tunnel.is_open and not tunnel.draining

    @property
    def is_suspect(self) -> bool:
        """Whether the node did not answer the last dial."""
        return bool(self._suspicion)

    @property
    def is_degraded(self) -> bool:
        """Whether the last health check found a problem behind the tunnel."""
        return bool(self._degraded)

    def status(self) -> NodeStatus:
        """Return the current state."""
        tunnel = self.tunnel
        return NodeStatus(
            name=self.node.name,
            address=self.node.address,
            state=self._state,
            since=self._since,
            host_key=self._host_key,
            streams=0 if tunnel is None else tunnel.streams,
            round_trip=0.0 if tunnel is None else tunnel.round_trip,
            checked=self._checked,
            error=self._error,
        )

    def _become(self, state: NodeState, error: str = "") -> None:
        if (state, error) == (self._state, self._error):
            return
        if state != self._state:
            self._state, self._since = state, self._context.epoch()
        self._error = error
        self._context.changed()

    def _update_state(self) -> None:
        trouble = self._suspicion or self._degraded
        self._become("degraded" if trouble else "open", trouble)

    def _info(self, text: str, error: str = "", *, again: bool = False) -> None:
        """Log a line; repeated ones at debug level."""
        prefix = f"{self._context.cluster}: " if self._context.cluster else ""
        (_log.debug if again else _log.info)(
            "{prefix}" + text, prefix=prefix, address=self.node.address, node=self.node.name, error=error
        )

    # Opening

    def reopen(self) -> None:
        """Open a tunnel unless there is one or one is being opened; call this after each listing."""
        self._reopened = False
        self._open()

    def _open(self) -> None:
        if self.tunnel is None and self._permit is None:
            self._permit = Permit(self._context.limiter, self._begin)
            self._permit.ask()

    def _begin(self) -> None:
        self._info('Trying to add tunnel to "{address}"', again=self._state == "failed")
        try:
            tunnel = self._context.create(self.node)
        except Exception as error:  # noqa: BLE001 (the node is tried again after the next listing)
            self._record_failure('Failed to create tunnel for "{address}": {error}', one_line(error))
            return
        self._opening = opening = tunnel.open()
        opening.addCallbacks(self._opened, self._failed, callbackArgs=(tunnel,))

    def _opened(self, _: None, tunnel: NodeTunnel) -> None:
        self._context.counters.open_count += 1
        if self._left:
            tunnel.close("the node is no longer in the list")
            return
        self._end_opening()
        self.tunnel = tunnel
        self._host_key = tunnel.host_key
        self._degraded = self._suspicion = ""
        self._info('Successfully added tunnel for "{address}"')
        self._become("open")
        tunnel.lost.addCallback(self._lost, tunnel)

    def _failed(self, failure: Failure) -> None:
        if self._left:
            return
        self._context.counters.open_count += 1
        self._context.counters.open_fail_count += 1
        self._record_failure('Failed to open tunnel to "{address}": {error}', one_line(failure.value))

    def _record_failure(self, text: str, error: str) -> None:
        self._info(text, error, again=(self._state, self._error) == ("failed", error))
        self._end_opening()
        self._become("failed", error)

    def _end_opening(self) -> None:
        self._opening = None
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.end()

    # Loss and closing

    def _lost(self, reason: Exception, tunnel: NodeTunnel) -> Exception:
        if tunnel is self.tunnel:
            self.tunnel = None
            if self._left:
                self._context.gone(self)
            else:
                self._info('Lost tunnel to "{address}": {error}', one_line(reason))
                self._open_again(one_line(reason))
        return reason

    def _open_again(self, error: str) -> None:
        """Reopen the tunnel at once, but only once between two listings."""
        if self._reopened:
            self._become("failed", error)
            return
        self._reopened = True
        self._info('Attempting once to re-establish tunnel to "{address}"')
        self._become("connecting", error)
        self._open()

    def pause(self) -> None:
        """Open and check nothing until the next `reopen`; an open tunnel stays open."""
        self._reopened = True
        call, self._next_check = self._next_check, None
        if call is not None:
            call.cancel()

    def leave(self, grace: float) -> None:
        """Accept no new streams; close when the last one has ended, after *grace* s at the latest."""
        self._abandon()
        if self.tunnel is None:
            self._context.gone(self)
            return
        self._info('Removing tunnel to deleted node at "{address}"')
        self._become("leaving")
        self.tunnel.retire(grace)

    def close(self, reason: str) -> None:
        """Close the tunnel at once."""
        self._abandon()
        if self.tunnel is None:
            self._context.gone(self)
        else:
            self.tunnel.close(reason)

    def _abandon(self) -> None:
        self._left = True
        self.pause()
        opening, checking = self._opening, self._checking
        self._end_opening()
        if opening is not None:
            opening.cancel()
        if checking is not None:
            checking.cancel()

    # Health

    def check_in(self, delay: float) -> None:
        """Check the health in *delay* s instead of when it was scheduled before."""
        if self._next_check is not None:
            self._next_check.cancel()
        self._next_check = self._context.clock.callLater(delay, self._check_now)

    def _check_now(self) -> None:
        self._next_check = None
        self.check()

    def check(self) -> None:
        """Check the health now, unless one is running; without a health check, it counts as healthy."""
        tunnel, health = self.tunnel, self._context.health
        if tunnel is None or self._checking is not None:
            return
        if health is None:
            self.mark_working()
            return
        check = Deferred.fromCoroutine(_run(health, tunnel))
        self._checking = checking = within(
            self._context.clock, self._context.check_timeout, check, defer.TimeoutError
        )
        checking.addCallbacks(self._answered, self._unanswered, callbackArgs=(tunnel,), errbackArgs=(tunnel,))

    def _answered(self, trouble: str, tunnel: NodeTunnel) -> None:
        self._checking = None
        if self._left or tunnel is not self.tunnel:
            return
        self._checked = self._context.epoch()
        if trouble and trouble != self._degraded:
            self._info('Tunnel to "{address}" is degraded: {error}', trouble)
        self._degraded, self._suspicion = trouble, ""
        self._update_state()

    def _unanswered(self, failure: Failure, tunnel: NodeTunnel) -> None:
        self._checking = None
        if self._left or tunnel is not self.tunnel:
            return
        self._checked = self._context.epoch()
        error = one_line(failure.value)
        if failure.check(defer.TimeoutError):
            error = f"no answer within {self._context.check_timeout:g} s"
        self._info('Healthcheck failed for tunnel to "{address}": {error}', error)
        self.tunnel = None
        tunnel.close(f"its health check failed: {error}")
        self._open_again(error)

    def mark_suspect(self, why: str) -> None:
        """Record that the node did not answer, and check its health at once."""
        if self.tunnel is not None and not self._left:
            self._suspicion = why
            self._update_state()
            if self._context.health is not None:
                self.check()

    def mark_working(self) -> None:
        """Record that the node answered."""
        if self._suspicion and self.tunnel is not None and not self._left:
            self._suspicion = ""
            self._update_state()


async def _run(health: HealthCheck, tunnel: NodeTunnel) -> str:
    return await health(tunnel)
