"""Facts about agents' keys: whether each has connected, and which announcements its agent has confirmed.

They are part of the keys' records (`tower.clusters.join_tokens`), written in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import AGENT_KEYS, CLUSTERS
from tower.store.records import (
    Delete,
    Operation,
    Record,
    RecordChanged,
    RecordMissing,
    StoreFailed,
    Update,
    Value,
)

#: How long a key may stay enrolled without a connection, s; documented in docs/operations.md.
NEVER_CAME = 30 * 86400.0

#: Delay of a write, so that many agents cause few of them, s.
_DELAY = 0.2

#: Delay of the next attempt after a failed write, s.
_RETRY = 30.0

#: Most records in one transaction.
_BATCH = 500


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
    _noted: dict[str, dict[str, Any]] = field(factory=dict, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)

    def all(self) -> list[KeyFacts]:
        """Return the facts about all keys."""
        return [_facts(record) for record in self._store.snapshot(AGENT_KEYS).values()]

    def of(self, cluster: str, fingerprint: str) -> KeyFacts | None:
        """Return the facts about one key, or None if it does not exist."""
        record = self._find(cluster, fingerprint)
        return None if record is None else _facts(record)

    def connected(self, cluster: str, fingerprint: str) -> None:
        """Record that the agent with this key has connected; only the first time is written."""
        record = self._find(cluster, fingerprint)
        if record is not None and not record.value.get("connected", True):
            self._note(record.name, connected=True)

    def confirmed(self, cluster: str, fingerprint: str, pins: Collection[str]) -> None:
        """Record that the agent with this key has stored these host keys and CA hashes, and no others."""
        record = self._find(cluster, fingerprint)
        listed = sorted(pins)
        if record is not None and record.value.get("announced") != listed:
            self._note(record.name, announced=listed)

    @deferred
    async def purge(self) -> int:
        """Remove keys whose agents have not connected within `NEVER_CAME` s after their enrolment.

        :return: number of removed keys.
        """
        now = self._clock.seconds()
        operations: list[Operation] = []
        for record in list(self._store.snapshot(AGENT_KEYS).values()):
            if was_purged(record, now) and record.name not in self._noted:
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

    def stop(self) -> None:
        """Write no more; facts that are not written are noted again at the next connection."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._noted.clear()

    def _find(self, cluster: str, fingerprint: str) -> Record | None:
        owner = self._store.get(CLUSTERS, cluster)
        return None if owner is None else self._store.get(AGENT_KEYS, f"{owner.value['uid']}/{fingerprint}")

    def _note(self, name: str, **facts: Any) -> None:
        self._noted.setdefault(name, {}).update(facts)
        self._write_in(_DELAY)

    def _write_in(self, delay: float) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(delay, self._write)

    def _write(self) -> None:
        self._timer = None
        names = list(self._noted)[:_BATCH]
        batch = {name: self._noted.pop(name) for name in names}
        operations = list(self._updates(batch))
        if operations:
            Deferred.fromCoroutine(self._transact(operations, batch))
        if self._noted:
            self._write_in(_DELAY)

    def _updates(self, batch: dict[str, dict[str, Any]]) -> Iterable[Operation]:
        for name, facts in batch.items():
            record = self._store.get(AGENT_KEYS, name)
            if record is not None:
                value: Value = {**record.value, **facts}
                yield Update(AGENT_KEYS, name, value, record.version)

    async def _transact(self, operations: list[Operation], batch: dict[str, dict[str, Any]]) -> None:
        try:
            await self._store.transact(operations)
        except (RecordChanged, RecordMissing):  # one was changed or revoked concurrently
            self._retry(batch, _DELAY)
        except StoreFailed as e:
            self._log.warn("cannot write facts about agents' keys: {reason}", reason=str(e))
            self._retry(batch, _RETRY)
        else:
            self.on_confirmed()

    def _retry(self, batch: dict[str, dict[str, Any]], delay: float) -> None:
        if not self._stopped:
            for name, facts in batch.items():
                self._noted[name] = {**facts, **self._noted.get(name, {})}
            self._write_in(delay)


def was_purged(record: Record, now: float) -> bool:
    """Return whether the removed *record* was old enough for `AgentKeys.purge`."""
    end = _facts(record).purged
    return end is not None and now >= end


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
