"""Facts about agents' keys: whether and where each was last seen, and what its agent has confirmed.

They are part of the records of keys (`tower.clusters.join_tokens`), written in batches.  Tokens of v1 agents
(`tower.clusters.v1_tokens`) have their last agent, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from attrs import asdict, define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.clusters.v1_tokens import ID_PREFIX
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import AGENT_KEYS, CLUSTERS, V1_TOKENS
from tower.store.records import (
    Delete,
    Operation,
    Record,
    RecordChanged,
    RecordMissing,
    StoreFailed,
    Update,
    Value,
    known_fields,
)

#: How long a key may stay enrolled without a connection, s; documented in docs/operations.md.
NEVER_CAME = 30 * 86400.0

#: Delay of a write, so that many agents cause few of them, s.
_DELAY = 0.2

#: Delay of the next attempt after a failed write, s.
_RETRY = 30.0

#: Most records in one transaction.
_BATCH = 500

#: Kind and name of a record.
_Name: TypeAlias = tuple[str, str]


@frozen
class LastAgent:
    """The last agent that connected with a key or a token.

    :ivar host: name of its host or pod; empty if unknown.
    :ivar seen: when it was lost, s since the epoch; None: it is connected, or was when the proxy ended.
    """

    host: str
    address: str
    version: str
    seen: float | None

    @property
    def place(self) -> tuple[str, str, str, bool]:
        """All but times and the port, which is another one for each connection."""
        return self.host, self.address.rpartition(":")[0], self.version, self.seen is None


@frozen
class KeyFacts:
    """Facts about one key of an agent.

    :ivar connected: whether its agent has ever connected; True for keys of earlier versions.
    :ivar purged: when the key is removed if its agent does not connect, s since the epoch; None: never.
    """

    cluster: str
    fingerprint: str
    connected: bool
    purged: float | None
    _confirmed: frozenset[str]

    def has(self, pin: str) -> bool:
        """Return whether its agent has confirmed the announcement of this host key or CA."""
        return pin in self._confirmed


@define(eq=False)
class AgentKeys:
    """The facts in a store.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    :ivar on_confirmed: called when confirmations are written.
    """

    _log = Logger()

    _store: IStore
    _clock: IReactorTime
    on_confirmed: Callable[[], None] = field(default=lambda: None, init=False)
    _noted: dict[_Name, dict[str, Any]] = field(factory=dict, init=False)
    _due: dict[_Name, float] = field(factory=dict, init=False)
    _away: dict[_Name, LastAgent] = field(factory=dict, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)

    @property
    def now(self) -> float:
        """The time, s since the epoch."""
        return self._clock.seconds()

    def all(self) -> list[KeyFacts]:
        """Return the facts about all keys."""
        return [_facts(record) for record in self._store.snapshot(AGENT_KEYS).values()]

    def of(self, cluster: str, fingerprint: str) -> KeyFacts | None:
        """Return the facts about one key, or None if it does not exist."""
        record = self._key(cluster, fingerprint)
        return None if record is None else _facts(record)

    def connected(self, cluster: str, fingerprint: str) -> None:
        """Record that the agent with this key has connected; only the first time is written."""
        record = self._key(cluster, fingerprint)
        if record is not None and not record.value.get("connected", True):
            self._note((AGENT_KEYS, record.name), connected=True)

    def confirmed(self, cluster: str, fingerprint: str, pins: Collection[str]) -> None:
        """Record that the agent with this key has stored these host keys and CA hashes, and no others."""
        record = self._key(cluster, fingerprint)
        listed = sorted(pins)
        if record is not None and record.value.get("announced") != listed:
            self._note((AGENT_KEYS, record.name), announced=listed)

    def last(self, cluster: str, credential: str) -> LastAgent | None:
        """Return the last agent with this key (fingerprint) or v1 token (ID); None: unknown."""
        record = self._find(cluster, credential)
        if record is None:
            return None
        name = _kind(credential), record.name
        return self._away.get(name) or self._known(name, record)

    def saw(self, cluster: str, credential: str, agent: LastAgent) -> None:
        """Record that *agent* has connected with this key or token, or was lost.

        A connection is only written if the agent was lost before or has changed.
        """
        record = self._find(cluster, credential)
        if record is None:
            return
        name = _kind(credential), record.name
        self._away.pop(name, None)
        known = self._known(name, record)
        if agent.seen is not None or known is None or known.place != agent.place:
            self._note(name, agent=asdict(agent))

    def resume(self, seen: Callable[[str], float | None]) -> None:
        """Regard the agents that were connected when the proxy ended as lost, until they connect.

        :param seen: returns when a cluster was last seen, s since the epoch.
        """
        for kind in (AGENT_KEYS, V1_TOKENS):
            for record in self._store.snapshot(kind).values():
                agent, time = _last(record.value), seen(record.value["cluster"])
                if agent is not None and agent.seen is None and time is not None:
                    self._away[kind, record.name] = evolve(agent, seen=time)

    async def settle(self) -> None:
        """Write which agents of the last run have not connected to this one."""
        while self._away:
            names = list(self._away)[:_BATCH]
            agents = {name: asdict(self._away[name]) for name in names}
            try:
                await self._store.transact(
                    list(self._updates({name: {"agent": agent} for name, agent in agents.items()}))
                )
            except (RecordChanged, RecordMissing):
                return  # the next call retries
            for name, agent in agents.items():
                if self._away.pop(name, None) is None and name not in self._noted:  # it came meanwhile
                    self._note(name, agent={**agent, "seen": None})

    @deferred
    async def purge(self) -> int:
        """Remove keys whose agents have not connected within `NEVER_CAME` s after their enrolment.

        :return: number of removed keys.
        """
        now = self._clock.seconds()
        operations: list[Operation] = []
        for record in list(self._store.snapshot(AGENT_KEYS).values()):
            if was_purged(record, now) and (AGENT_KEYS, record.name) not in self._noted:
                operations.append(Delete(AGENT_KEYS, record.name, record.version))
                self._log.info(
                    "key {key} of cluster {cluster} removed: its agent has not connected for {days:g} days",
                    key=record.value["fingerprint"],
                    cluster=record.value["cluster"],
                    days=NEVER_CAME / 86400,
                )
        if operations:
            try:
                await self._store.transact(operations)
            except (RecordChanged, RecordMissing):
                return 0  # the next purge retries
        return len(operations)

    async def flush(self) -> None:
        """Write all facts that are noted; before a stop."""
        self._due = dict.fromkeys(self._noted, 0.0)
        for _ in range(0, len(self._noted), _BATCH):
            await self._write_due()

    def stop(self) -> None:
        """Write no more; facts that are not written are noted again at the next connection."""
        self._stopped = True
        self._cancel()
        self._noted.clear()
        self._due.clear()

    def _known(self, name: _Name, record: Record) -> LastAgent | None:
        return _last({**record.value, **self._noted.get(name, {})})

    def _key(self, cluster: str, fingerprint: str) -> Record | None:
        return None if fingerprint.startswith(ID_PREFIX) else self._find(cluster, fingerprint)

    def _find(self, cluster: str, credential: str) -> Record | None:
        owner = self._store.get(CLUSTERS, cluster)
        if owner is None:
            return None
        name = f"{owner.value['uid']}/{credential.removeprefix(ID_PREFIX)}"
        return self._store.get(_kind(credential), name)

    def _note(self, name: _Name, **facts: Any) -> None:
        """Remember facts; a changed agent is written after the store's quiet period."""
        if not self._stopped:
            self._noted.setdefault(name, {}).update(facts)
            is_quiet = facts.keys() == {"agent"}
            self._write_in(max(_DELAY, self._store.quiet_period) if is_quiet else _DELAY, [name])

    def _write_in(self, delay: float, names: Iterable[_Name]) -> None:
        when = self._clock.seconds() + delay
        for name in names:
            self._due[name] = min(when, self._due.get(name, when))
        if self._timer is None or self._timer.getTime() > when:
            self._cancel()
            self._timer = self._clock.callLater(delay, self._write)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self) -> None:
        self._timer = None
        Deferred.fromCoroutine(self._write_due())

    async def _write_due(self) -> None:
        """Write the facts that are due, up to `_BATCH` records."""
        now = self._clock.seconds()
        names = [name for name, when in self._due.items() if when <= now][:_BATCH]
        for name in names:
            del self._due[name]
        batch = {name: self._noted.pop(name) for name in names}
        operations = list(self._updates(batch))
        if self._due:
            self._write_in(max(_DELAY, min(self._due.values()) - now), ())
        if operations:
            await self._transact(operations, batch)

    def _updates(self, batch: dict[_Name, dict[str, Any]]) -> Iterable[Operation]:
        for (kind, name), facts in batch.items():
            record = self._store.get(kind, name)
            if record is not None:
                value: Value = {**record.value, **facts}
                yield Update(kind, name, value, record.version)

    async def _transact(self, operations: list[Operation], batch: dict[_Name, dict[str, Any]]) -> None:
        try:
            await self._store.transact(operations)
        except (RecordChanged, RecordMissing):  # one was changed or revoked concurrently
            self._retry(batch, _DELAY)
        except StoreFailed as e:
            self._log.warn("cannot write facts about agents' keys: {reason}", reason=str(e))
            self._retry(batch, _RETRY)
        else:
            if any("announced" in facts for facts in batch.values()):
                self.on_confirmed()

    def _retry(self, batch: dict[_Name, dict[str, Any]], delay: float) -> None:
        if not self._stopped:
            for name, facts in batch.items():
                self._noted[name] = {**facts, **self._noted.get(name, {})}
            self._write_in(delay, batch)


def was_purged(record: Record, now: float) -> bool:
    """Return whether the removed *record* was old enough for `AgentKeys.purge`."""
    end = _facts(record).purged
    return end is not None and now >= end


def _kind(credential: str) -> str:
    """Return the kind of record of a key's fingerprint or a v1 token's ID."""
    return V1_TOKENS if credential.startswith(ID_PREFIX) else AGENT_KEYS


def _last(value: Value) -> LastAgent | None:
    agent = value.get("agent")
    return None if agent is None else LastAgent(**known_fields(LastAgent, agent))


def _facts(record: Record) -> KeyFacts:
    value = record.value
    connected = value.get("connected", True)
    return KeyFacts(
        value["cluster"],
        value["fingerprint"],
        connected,
        None if connected else value["enrolled"] + NEVER_CAME,
        frozenset(value.get("announced", ())),
    )
