"""Work for a cloud that has begun, and can be given up at any time."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


class CancellableTasks:
    """What a provider is doing, waits between requests included."""

    def __init__(self) -> None:
        self._doing: set[Deferred[Any]] = set()

    async def do(self, work: Coroutine[Deferred[Any], Any, T]) -> T:
        """Return what comes of *work*.

        :raise CancelledError: it was given up.
        """
        doing = Deferred.fromCoroutine(work)
        self._doing.add(doing)
        try:
            return await doing
        finally:
            self._doing.discard(doing)

    def stop(self) -> None:
        """Give up everything."""
        for doing in list(self._doing):
            doing.cancel()
