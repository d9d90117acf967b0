"""Removes the records of clusters that another program removed from the host cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.errors import Conflict, NotFound
from tower.store.kinds import CLUSTER_KINDS, PORTS
from tower.store.records import Delete, Operation, StoreFailed
from tower.store.store import IStore

#: Kinds whose records are removed; ports stay reserved, see `tower.clusters.ports`.
SWEPT_KINDS = tuple(kind for kind in CLUSTER_KINDS if kind != PORTS)

#: Most records in one transaction.
_BATCH = 100

#: Delay of the next attempt after a failed write, s.
_RETRY = 30.0


@define(eq=False)
class Orphans:
    """The records in a store whose owner does not exist.

    :param owners: returns the uids of all clusters.
    """

    _log = Logger()

    _store: IStore
    _owners: Callable[[], Collection[str]]
    _clock: IReactorTime
    _timer: IDelayedCall | None = field(default=None, init=False)
    _running: Deferred[None] | None = field(default=None, init=False)

    def sweep(self, delay: float = 0.0) -> None:
        """Remove the orphans after a *delay*, s; repeat it after a failure."""
        if self._timer is None:
            self._timer = self._clock.callLater(delay, self._start)

    def stop(self) -> None:
        """Stop; the next start removes the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._timer = None
        if self._running is None:
            self._running = Deferred.fromCoroutine(self._sweep())
            self._running.addErrback(lambda failure: self._log.failure("cannot remove orphans", failure))
            self._running.addBoth(self._ended)

    def _ended(self, _: object) -> None:
        self._running = None

    async def _sweep(self) -> None:
        while operations := list(islice(self._deletions(), _BATCH)):
            try:
                await self._store.transact(operations)
            except (StoreFailed, NotFound, Conflict) as e:
                self._log.warn("records of removed clusters are not removed yet: {reason}", reason=str(e))
                self.sweep(_RETRY)
                return
            self._log.info("removed {count} records of removed clusters", count=len(operations))

    def _deletions(self) -> Iterator[Operation]:
        owners = self._owners()
        for kind in SWEPT_KINDS:
            for record in self._store.snapshot(kind).values():
                uid = record.value.get("cluster_uid")
                if uid and uid not in owners:
                    yield Delete(kind, record.name)
