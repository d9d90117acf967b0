"""Limits of tunnels per agent key and per cluster, and the replacement of dead tunnels."""

from __future__ import annotations

from typing import NamedTuple

from attrs import define, field
from twisted.internet.defer import Deferred

from tower.conch.connection.liveness import LivenessTransport, PeerDead
from tower.conch.transport.limits import TooManyTunnels
from tower.reactor.timers import Clock, Deadline

#: How long a tunnel may take to answer if another tunnel of its key waits for a slot, s.
ANSWER_TIMEOUT = 4.0

#: How long tunnels that all answered are not checked again, s.
RECHECK_AFTER = 10.0


class TunnelSilent(PeerDead):
    """A tunnel did not answer while another tunnel of its key waited for a slot."""


class _Group(NamedTuple):
    """The cluster and key fingerprint of tunnels; the fingerprint is empty without a key."""

    cluster: str
    key: str


@define(eq=False)
class _LivenessCheck:
    """A check of all tunnels of one key, on behalf of connections that wait for a slot.

    :ivar before: what each tunnel had received when the check began, oldest tunnel first.
    :ivar waiting: connections that wait for the result.
    """

    before: dict[LivenessTransport, object]
    deadline: Deadline
    waiting: dict[LivenessTransport, Deferred[None]] = field(factory=dict)


@define(eq=False)
class _KeyTunnels:
    """The tunnels of one key into one cluster.

    :ivar holders: oldest first.
    :ivar answered_at: when all of them last answered, s; None: not checked yet.
    """

    holders: dict[LivenessTransport, None] = field(factory=dict)
    check: _LivenessCheck | None = None
    answered_at: float | None = None


@define(eq=False)
class TunnelSlots:
    """The slots of all tunnels, each held from authentication until the connection is lost.

    A tunnel above a limit is rejected, unless a tunnel of the same key is dead.  Then it replaces the dead
    one, which the proxy would notice only after three keepalives.  So an agent that reconnects after a
    network failure does not wait for its own dead tunnels.

    :param per_key: tunnels of one key into one cluster; 0: unlimited.
    :param per_cluster: tunnels into one cluster; 0: unlimited.
    """

    _clock: Clock
    _per_key: int = field(default=0, kw_only=True)
    _per_cluster: int = field(default=0, kw_only=True)
    _counts: dict[str, int] = field(factory=dict, init=False)
    _keys: dict[_Group, _KeyTunnels] = field(factory=dict, init=False)
    _held: dict[LivenessTransport, _Group] = field(factory=dict, init=False)
    _waiting: dict[LivenessTransport, _Group] = field(factory=dict, init=False)

    def acquire(self, cluster: str, key: str, holder: LivenessTransport) -> Deferred[None] | None:
        """Give *holder* a slot, now (None) or within `ANSWER_TIMEOUT`; `release` frees it.

        :param key: fingerprint of the agent's key; empty for agents without one, for which only the
            cluster's limit applies.
        :raise TooManyTunnels: with the limit and the cure; also through the Deferred.
        """
        group = _Group(cluster, key)
        problem = self._problem(group)
        if not problem:
            self._take(group, holder)
            return None
        own = self._keys.get(group)
        if own is None or self._answered_lately(own):
            raise TooManyTunnels(problem)
        check = own.check or self._start_check(group, own)
        self._waiting[holder] = group
        waiting = check.waiting[holder] = Deferred()
        return waiting

    def release(self, holder: LivenessTransport) -> None:
        """Free the slot of *holder*, or end its wait; unknown holders are ignored."""
        group = self._held.pop(holder, None)
        if group is not None:
            self._free(group, holder)
            return
        group = self._waiting.pop(holder, None)
        if group is not None:
            check = self._keys[group].check
            assert check is not None
            check.waiting.pop(holder).errback(TooManyTunnels("the agent disconnected"))
            self._clean_up(group)

    def _problem(self, group: _Group) -> str:
        """Return why no slot is free; empty if one is."""
        own = self._keys.get(group)
        if own is not None and 0 < self._per_key <= len(own.holders):
            return (
                f"key {group.key} has {len(own.holders)} tunnels into cluster {group.cluster}, the limit of "
                "--max-tunnels-per-key: give each agent its own state directory"
            )
        count = self._counts.get(group.cluster, 0)
        if 0 < self._per_cluster <= count:
            return (
                f"cluster {group.cluster} has {count} tunnels, the limit of --max-tunnels-per-cluster: "
                "stop some of its agents, or raise the limit"
            )
        return ""

    def _take(self, group: _Group, holder: LivenessTransport) -> None:
        self._held[holder] = group
        self._counts[group.cluster] = self._counts.get(group.cluster, 0) + 1
        if group.key:
            self._keys.setdefault(group, _KeyTunnels()).holders[holder] = None

    def _free(self, group: _Group, holder: LivenessTransport) -> None:
        count = self._counts[group.cluster] = self._counts[group.cluster] - 1
        if not count:
            del self._counts[group.cluster]
        own = self._keys.get(group)
        if own is not None:
            del own.holders[holder]
            if own.check is not None:
                own.check.before.pop(holder, None)
            self._clean_up(group)

    def _answered_lately(self, own: _KeyTunnels) -> bool:
        return own.answered_at is not None and self._clock.seconds() - own.answered_at < RECHECK_AFTER

    def _start_check(self, group: _Group, own: _KeyTunnels) -> _LivenessCheck:
        before = {holder: holder.received() for holder in own.holders}
        deadline = Deadline(self._clock, ANSWER_TIMEOUT, lambda: self._end_check(group, own))
        check = own.check = _LivenessCheck(before, deadline)
        for holder in list(before):
            holder.nudge()
        return check

    def _end_check(self, group: _Group, own: _KeyTunnels) -> None:
        """Give the slots of silent tunnels, oldest first, to the waiting connections."""
        check = own.check
        assert check is not None
        silent = [holder for holder, before in check.before.items() if holder.received() == before]
        if not silent:
            own.answered_at = self._clock.seconds()
        while check.waiting:
            newcomer = next(iter(check.waiting))
            if self._problem(group) and silent:
                dead = silent.pop(0)
                self.release(dead)
                dead.fail(TunnelSilent("it did not answer, and another tunnel of its key needed the slot"))
                continue
            waiting = check.waiting.pop(newcomer)
            del self._waiting[newcomer]
            problem = self._problem(group)
            if problem:
                waiting.errback(TooManyTunnels(problem))
            else:
                self._take(group, newcomer)
                waiting.callback(None)
        self._clean_up(group)

    def _clean_up(self, group: _Group) -> None:
        """End a check without waiting connections; forget a key without tunnels."""
        own = self._keys.get(group)
        if own is None:
            return
        if own.check is not None and not own.check.waiting:
            own.check.deadline.cancel()
            own.check = None
        if own.check is None and not own.holders:
            del self._keys[group]


@define(eq=False)
class TunnelSlot:
    """The slot of one connection, released when the connection is lost."""

    _slots: TunnelSlots
    _connection: LivenessTransport | None = field(default=None, init=False)

    def attach(self, connection: LivenessTransport) -> None:
        """Set the connection that will hold the slot."""
        self._connection = connection
        connection.lost.addCallback(self._lost)

    def acquire(self, cluster: str, key: str) -> Deferred[None] | None:
        """See `TunnelSlots.acquire`; no-op if the connection is lost."""
        if self._connection is None:
            return None
        return self._slots.acquire(cluster, key, self._connection)

    def _lost(self, reason: Exception) -> Exception:
        connection, self._connection = self._connection, None
        assert connection is not None
        self._slots.release(connection)
        return reason
