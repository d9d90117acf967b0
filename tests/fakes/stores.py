"""A store that commits late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from tower.store import MemoryStore
from tower.store.records import Operation, Record
from tower.store.store import Committed


class DelayedStore(MemoryStore):
    """A store in memory that commits transactions in order when the test says, like those with a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Callable[[], object]] = []

    def _begin(self, operations: Sequence[Operation], committed: Committed) -> Deferred[list[Record | None]]:
        answer: Deferred[list[Record | None]] = Deferred()
        write = super()._begin
        self._waiting.append(lambda: write(operations, committed).chainDeferred(answer))
        return answer

    def commit(self) -> None:
        """Commit the waiting transactions."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()
