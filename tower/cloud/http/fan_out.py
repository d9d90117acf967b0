"""Parallel work for many machines, with a limit; failures do not stop the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, FirstError, gatherResults

from tower.cloud.errors import CloudError

#: Maximum number of failures that an error names.
NAMED = 5

T = TypeVar("T")


@frozen
class Failed(Generic[T]):
    """An item whose work failed."""

    item: T
    reason: CloudError


async def fan_out(items: Iterable[T], work: Callable[[T], Awaitable[object]], limit: int) -> list[Failed[T]]:
    """Do *work* for each of *items*; return the items for which it raised `CloudError`.

    Any other exception, or a cancellation, cancels all.

    :param limit: maximum in parallel.
    """
    remaining = iter(items)
    failed: list[Failed[T]] = []

    async def run() -> None:
        for item in remaining:
            try:
                await work(item)
            except CloudError as e:
                failed.append(Failed(item, e))

    await gather(*(run() for _ in range(limit)))
    return failed


async def gather(*works: Coroutine[Deferred[Any], Any, T]) -> list[T]:
    """Return the results of coroutines that run in parallel; an exception or a cancellation cancels all."""
    running = [Deferred.fromCoroutine(work) for work in works]
    try:
        return await gatherResults(running, consumeErrors=True)
    except FirstError as e:
        e.subFailure.raiseException()
    finally:
        for each in running:
            each.cancel()


def describe(failed: Iterable[tuple[str, CloudError]]) -> str:
    """Return failures as text: the first `NAMED` with name and reason, and the number of the others."""
    failures = list(failed)
    named = [f"{name} ({reason})" for name, reason in failures[:NAMED]]
    more = len(failures) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
