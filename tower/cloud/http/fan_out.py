"""The same work for many machines, some at a time; one that fails does not hold up the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, FirstError, gatherResults

from tower.cloud.errors import CloudError

#: Most failures that an error tells of by name.
NAMED = 5

T = TypeVar("T")


@frozen
class Failed(Generic[T]):
    """One for whom the work could not be done."""

    item: T
    reason: CloudError


async def fan_out(items: Iterable[T], work: Callable[[T], Awaitable[object]], limit: int) -> list[Failed[T]]:
    """Do *work* for each of *items*; return those for whom it raised `CloudError`.

    Any other exception, or a cancellation, ends all that is under way.

    :param limit: most at a time.
    """
    left = iter(items)
    failed: list[Failed[T]] = []

    async def go_on() -> None:
        for item in left:
            try:
                await work(item)
            except CloudError as e:
                failed.append(Failed(item, e))

    workers = [Deferred.fromCoroutine(go_on()) for _ in range(limit)]
    try:
        await gatherResults(workers, consumeErrors=True)
    except FirstError as e:
        e.subFailure.raiseException()
    finally:
        for worker in workers:
            worker.cancel()
    return failed


async def together(*works: Coroutine[Deferred[Any], Any, T]) -> list[T]:
    """Do several things at the same time; return what comes of each.

    Any exception, or a cancellation, ends all that is under way.
    """
    doing = [Deferred.fromCoroutine(work) for work in works]
    try:
        return await gatherResults(doing, consumeErrors=True)
    except FirstError as e:
        e.subFailure.raiseException()
    finally:
        for each in doing:
            each.cancel()


def describe(failed: Iterable[tuple[str, CloudError]]) -> str:
    """Return the failures as part of a sentence: each with its reason, the first few by name."""
    everybody = list(failed)
    named = [f"{name} ({reason})" for name, reason in everybody[:NAMED]]
    more = len(everybody) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
