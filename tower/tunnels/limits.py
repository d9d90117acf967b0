"""How many tunnels one key and one cluster may have, and which of them make room for a new one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from attrs import define, field
from twisted.internet.defer import Deferred

from tower.conch.transport.limits import TooManyTunnels
from tower.errors import PeerError
from tower.reactor.timers import Clock, Deadline

#: How long a tunnel may take to answer when another one of its key has no place, s.
ANSWER_TIMEOUT = 4.0

#: How long after all tunnels of a key answered they are not asked again, s.
RECHECK_AFTER = 10.0


class Holder(Protocol):
    """What a place needs of a tunnel's end of SSH."""

    def received(self) -> object:
        """Return something that differs whenever something came in between two calls."""

    def nudge(self) -> None:
        """Ask the peer for a sign of life, now."""

    def fail(self, reason: Exception) -> None:
        """Close because of *reason*."""


class TunnelSilent(PeerError):
    """A tunnel did not answer while another one of its key waited for a place."""


class _Where(NamedTuple):
    """What a tunnel belongs to; the key is empty where there is none."""

    cluster: str
    key: str


class Connection(Holder, Protocol):
    """What an entrance needs of it.

    :ivar lost: fires when it is gone.
    """

    lost: Deferred[Exception]


@define(eq=False)
class _LivenessCheck:
    """The tunnels of one key are asked whether they live, for those that wait for their places.

    :ivar before: what each had received when it was asked, the oldest first.
    :ivar waiting: who waits for the outcome.
    """

    before: dict[Holder, object]
    deadline: Deadline
    waiting: dict[Holder, Deferred[None]] = field(factory=dict)


@define(eq=False)
class _Key:
    """The tunnels of one key into one cluster.

    :ivar holders: the oldest first.
    :ivar answered_at: when all of them had answered, s; None: they were not asked yet.
    """

    holders: dict[Holder, None] = field(factory=dict)
    round: _LivenessCheck | None = None
    answered_at: float | None = None


class TunnelSlots:
    """The places of all tunnels, from authentication until the connection is gone.

    A tunnel that is one too many is refused, unless one of the same key is dead, which its proxy learns only
    after three keepalives: then that one goes.  So an agent that comes back after its network was cut does
    not wait for its own dead tunnels.

    :param clock: for those that wait.
    :param per_key: how many one key may have into one cluster; 0: any number.
    :param per_cluster: how many one cluster may have; 0: any number.
    """

    def __init__(self, clock: Clock, *, per_key: int = 0, per_cluster: int = 0) -> None:
        self._clock = clock
        self._per_key = per_key
        self._per_cluster = per_cluster
        self._counts: dict[str, int] = {}
        self._keys: dict[_Where, _Key] = {}
        self._held: dict[Holder, _Where] = {}
        self._waiting: dict[Holder, _Where] = {}

    def enter(self, cluster: str, key: str, holder: Holder) -> Deferred[None] | None:
        """Give *holder* a place, now (None) or within `ANSWER_TIMEOUT`; `leave` gives it back.

        :param key: fingerprint of the agent's key; empty for agents that have none, of which the cluster's
            limit alone counts.
        :raise TooManyTunnels: also through the Deferred; its text names the limit and the cure.
        """
        where = _Where(cluster, key)
        problem = self._problem(where)
        if not problem:
            self._take(where, holder)
            return None
        own = self._keys.get(where)
        if own is None or self._is_assured(own):
            raise TooManyTunnels(problem)
        if own.round is None:
            self._ask(where, own)
        asked = own.round
        assert asked is not None
        self._waiting[holder] = where
        waiting = asked.waiting[holder] = Deferred()
        return waiting

    def leave(self, holder: Holder) -> None:
        """Take the place of *holder* back, or stop its wait; one that has neither is ignored."""
        where = self._held.pop(holder, None)
        if where is not None:
            self._give_back(where, holder)
            return
        where = self._waiting.pop(holder, None)
        if where is not None:
            asked = self._keys[where].round
            assert asked is not None
            asked.waiting.pop(holder).errback(TooManyTunnels("the agent is gone"))
            self._tidy(where)

    def _problem(self, where: _Where) -> str:
        """Return why there is no place, or nothing."""
        own = self._keys.get(where)
        if own is not None and 0 < self._per_key <= len(own.holders):
            return (
                f"key {where.key} has {len(own.holders)} tunnels into cluster {where.cluster}, the limit of "
                "--max-tunnels-per-key: give each agent its own state directory"
            )
        count = self._counts.get(where.cluster, 0)
        if 0 < self._per_cluster <= count:
            return (
                f"cluster {where.cluster} has {count} tunnels, the limit of --max-tunnels-per-cluster: "
                "stop some of its agents, or raise the limit"
            )
        return ""

    def _take(self, where: _Where, holder: Holder) -> None:
        self._held[holder] = where
        self._counts[where.cluster] = self._counts.get(where.cluster, 0) + 1
        if where.key:
            self._keys.setdefault(where, _Key()).holders[holder] = None

    def _give_back(self, where: _Where, holder: Holder) -> None:
        count = self._counts[where.cluster] = self._counts[where.cluster] - 1
        if not count:
            del self._counts[where.cluster]
        own = self._keys.get(where)
        if own is not None:
            del own.holders[holder]
            if own.round is not None:
                own.round.before.pop(holder, None)
            self._tidy(where)

    def _is_assured(self, own: _Key) -> bool:
        return own.answered_at is not None and self._clock.seconds() - own.answered_at < RECHECK_AFTER

    def _ask(self, where: _Where, own: _Key) -> None:
        before = {holder: holder.received() for holder in own.holders}
        own.round = _LivenessCheck(
            before, Deadline(self._clock, ANSWER_TIMEOUT, lambda: self._judge(where, own))
        )
        for holder in list(before):
            holder.nudge()

    def _judge(self, where: _Where, own: _Key) -> None:
        """Give the places of the silent ones, the oldest first, to those that wait."""
        asked = own.round
        assert asked is not None
        silent = [holder for holder, before in asked.before.items() if holder.received() == before]
        if not silent:
            own.answered_at = self._clock.seconds()
        while asked.waiting:
            newcomer = next(iter(asked.waiting))
            if self._problem(where) and silent:
                dead = silent.pop(0)
                self.leave(dead)
                dead.fail(TunnelSilent("it did not answer, and another tunnel of its key needed its place"))
                continue
            waiting = asked.waiting.pop(newcomer)
            del self._waiting[newcomer]
            problem = self._problem(where)
            if problem:
                waiting.errback(TooManyTunnels(problem))
            else:
                self._take(where, newcomer)
                waiting.callback(None)
        self._tidy(where)

    def _tidy(self, where: _Where) -> None:
        """Ask no more for those that do not wait any more, and forget a key without tunnels."""
        own = self._keys.get(where)
        if own is None:
            return
        if own.round is not None and not own.round.waiting:
            own.round.deadline.cancel()
            own.round = None
        if own.round is None and not own.holders:
            del self._keys[where]


class TunnelSlot:
    """The way of one connection to its place, and back when it is gone."""

    __slots__ = ("_connection", "_places")

    def __init__(self, places: TunnelSlots) -> None:
        self._places = places
        self._connection: Connection | None = None

    def attach(self, connection: Connection) -> None:
        """Stand for *connection* until it is gone."""
        self._connection = connection
        connection.lost.addCallback(self._lost)

    def enter(self, cluster: str, key: str) -> Deferred[None] | None:
        """See `TunnelSlots.enter`; a connection that is gone meanwhile gets nothing."""
        if self._connection is None:
            return None
        return self._places.enter(cluster, key, self._connection)

    def _lost(self, reason: Exception) -> Exception:
        connection, self._connection = self._connection, None
        assert connection is not None
        self._places.leave(connection)
        return reason
