"""Work that is in progress and can be cancelled."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

T = TypeVar("T")


class CancellableTasks:
    """Coroutines in progress, with their requests and delays.

    :ivar running: one for each.
    """

    def __init__(self) -> None:
        self.running: set[Deferred[Any]] = set()

    async def run(
        self, work: Coroutine[Deferred[Any], Any, T], timeout: float = 0.0, clock: IReactorTime | None = None
    ) -> T:
        """Return the result of *work*.

        :param timeout: s, of *clock*; without a clock there is none.
        :raise CancelledError: it was cancelled by `stop`.
        :raise twisted.internet.defer.TimeoutError: it took too long.
        """
        task = Deferred.fromCoroutine(work)
        if clock is not None:
            task.addTimeout(timeout, clock)
        self.running.add(task)
        try:
            return await task
        finally:
            self.running.discard(task)

    def stop(self) -> None:
        """Cancel all."""
        for task in list(self.running):
            task.cancel()
