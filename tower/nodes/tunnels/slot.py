"""One node in a list: its tunnel is opened, looked after, opened again when lost, and left in the end."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TooLate
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.clusters.node_status import NodeState, NodeStatus
from tower.errors import one_line
from tower.nodes.tunnels.interfaces import HealthCheck, ListContext, NodeTunnel
from tower.nodes.tunnels.limiter import Permit
from tower.reactor.timers import within

_log = Logger()


class NodeSlot:
    """A node's place in the list.

    :param node: at first; it may be described anew, but its address stays.
    :ivar tunnel: while it carries streams.
    """

    __slots__ = (
        "_checked",
        "_checking",
        "_degraded",
        "_error",
        "_host_key",
        "_left",
        "_next_check",
        "_opening",
        "_redialled",
        "_shared",
        "_since",
        "_state",
        "_suspicion",
        "_turn",
        "node",
        "tunnel",
    )

    def __init__(self, shared: ListContext, node: Node) -> None:
        self._shared = shared
        self.node = node
        self.tunnel: NodeTunnel | None = None
        self._turn: Permit | None = None  # while one is being opened, or waits for that
        self._opening: Deferred[None] | None = None
        self._checking: Deferred[Any] | None = None
        self._next_check: IDelayedCall | None = None
        self._redialled = self._left = False
        self._state: NodeState = "connecting"
        self._since = shared.epoch()
        self._checked: float | None = None
        self._degraded = self._suspicion = self._error = ""
        self._host_key = ""

    # What it looks like

    def describe(self, node: Node) -> None:
        """Call it by other names from now on; its address is the same."""
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
        """Whether it did not answer when it was last asked for a stream."""
        return bool(self._suspicion)

    @property
    def is_degraded(self) -> bool:
        """Whether what is behind it did not answer well when its health was looked at."""
        return bool(self._degraded)

    def status(self) -> NodeStatus:
        """Return what is known of it."""
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
            self._state, self._since = state, self._shared.epoch()
        self._error = error
        self._shared.changed()

    def _is_as_well_as_known(self) -> None:
        trouble = self._suspicion or self._degraded
        self._become("degraded" if trouble else "open", trouble)

    def _say(self, text: str, error: str = "", *, again: bool = False) -> None:
        """Log a line; one that says the same again and again is for those who look closely."""
        prefix = f"{self._shared.cluster}: " if self._shared.cluster else ""
        (_log.debug if again else _log.info)(
            "{prefix}" + text, prefix=prefix, address=self.node.address, node=self.node.name, error=error
        )

    # Up

    def renew(self) -> None:
        """Open a tunnel unless there is one or will be; to be called for each list that comes."""
        self._redialled = False
        self._open()

    def _open(self) -> None:
        if self.tunnel is None and self._turn is None:
            self._turn = Permit(self._shared.turns, self._begin)
            self._turn.ask()

    def _begin(self) -> None:
        self._say('Trying to add tunnel to "{address}"', again=self._state == "failed")
        try:
            tunnel = self._shared.create(self.node)
        except Exception as error:  # noqa: BLE001 (whatever it is, the node is tried again with the next list)
            self._not_opened('Failed to create tunnel for "{address}": {error}', one_line(error))
            return
        self._opening = opening = tunnel.open()
        opening.addCallbacks(self._opened, self._failed, callbackArgs=(tunnel,))

    def _opened(self, _: None, tunnel: NodeTunnel) -> None:
        self._shared.counters.open_count += 1
        if self._left:
            tunnel.close("the node is not in the list any more")
            return
        self._not_opening()
        self.tunnel = tunnel
        self._host_key = tunnel.host_key
        self._degraded = self._suspicion = ""
        self._say('Successfully added tunnel for "{address}"')
        self._become("open")
        tunnel.lost.addCallback(self._lost, tunnel)

    def _failed(self, failure: Failure) -> None:
        if self._left:
            return
        self._shared.counters.open_count += 1
        self._shared.counters.open_fail_count += 1
        self._not_opened('Failed to open tunnel to "{address}": {error}', one_line(failure.value))

    def _not_opened(self, text: str, error: str) -> None:
        self._say(text, error, again=(self._state, self._error) == ("failed", error))
        self._not_opening()
        self._become("failed", error)

    def _not_opening(self) -> None:
        self._opening = None
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    # Down

    def _lost(self, reason: Exception, tunnel: NodeTunnel) -> Exception:
        if tunnel is self.tunnel:
            self.tunnel = None
            if self._left:
                self._shared.gone(self)
            else:
                self._say('Lost tunnel to "{address}": {error}', one_line(reason))
                self._open_again(one_line(reason))
        return reason

    def _open_again(self, error: str) -> None:
        """Open it anew at once, if that was not done since the last list; else wait for the next one."""
        if self._redialled:
            self._become("failed", error)
            return
        self._redialled = True
        self._say('Attempting once to re-establish tunnel to "{address}"')
        self._become("connecting", error)
        self._open()

    def rest(self) -> None:
        """Look after it no more, until it is renewed; what is open stays open."""
        self._redialled = True
        call, self._next_check = self._next_check, None
        if call is not None:
            call.cancel()

    def leave(self, grace: float) -> None:
        """Take no new streams, and be gone when the last one ended, after *grace* s at the latest."""
        self._let_go()
        if self.tunnel is None:
            self._shared.gone(self)
            return
        self._say('Removing tunnel to deleted node at "{address}"')
        self._become("leaving")
        self.tunnel.retire(grace)

    def close(self, reason: str) -> None:
        """Be gone."""
        self._let_go()
        if self.tunnel is None:
            self._shared.gone(self)
        else:
            self.tunnel.close(reason)

    def _let_go(self) -> None:
        self._left = True
        self.rest()
        opening, checking = self._opening, self._checking
        self._not_opening()
        if opening is not None:
            opening.cancel()
        if checking is not None:
            checking.cancel()

    # Health

    def check_in(self, delay: float) -> None:
        """Look at its health in *delay* s, and not when that was planned before."""
        if self._next_check is not None:
            self._next_check.cancel()
        self._next_check = self._shared.clock.callLater(delay, self._check_now)

    def _check_now(self) -> None:
        self._next_check = None
        self.check()

    def check(self) -> None:
        """Look at its health now, unless that is being done; where nobody can, believe that it is well."""
        tunnel, health = self.tunnel, self._shared.health
        if tunnel is None or self._checking is not None:
            return
        if health is None:
            self.works()
            return
        asking = Deferred.fromCoroutine(_asked(health, tunnel))
        self._checking = checking = within(self._shared.clock, self._shared.check_timeout, asking, TooLate)
        checking.addCallbacks(self._answered, self._unanswered, callbackArgs=(tunnel,), errbackArgs=(tunnel,))

    def _answered(self, trouble: str, tunnel: NodeTunnel) -> None:
        self._checking = None
        if self._left or tunnel is not self.tunnel:
            return
        self._checked = self._shared.epoch()
        if trouble and trouble != self._degraded:
            self._say('What is behind the tunnel to "{address}" is not well: {error}', trouble)
        self._degraded, self._suspicion = trouble, ""
        self._is_as_well_as_known()

    def _unanswered(self, failure: Failure, tunnel: NodeTunnel) -> None:
        self._checking = None
        if self._left or tunnel is not self.tunnel:
            return
        self._checked = self._shared.epoch()
        error = one_line(failure.value)
        if failure.check(TooLate):
            error = f"no answer in {self._shared.check_timeout:g} s"
        self._say('Healthcheck failed for tunnel to "{address}": {error}', error)
        self.tunnel = None
        tunnel.close(f"its health check failed: {error}")
        self._open_again(error)

    def suspect(self, why: str) -> None:
        """Note that it did not answer, and look at its health at once."""
        if self.tunnel is not None and not self._left:
            self._suspicion = why
            self._is_as_well_as_known()
            if self._shared.health is not None:
                self.check()

    def works(self) -> None:
        """Note that something went through it."""
        if self._suspicion and self.tunnel is not None and not self._left:
            self._suspicion = ""
            self._is_as_well_as_known()


async def _asked(health: HealthCheck, tunnel: NodeTunnel) -> str:
    return await health(tunnel)
