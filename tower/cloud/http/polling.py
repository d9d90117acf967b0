"""Trying again at an even pace until it works, as Go's ``wait.Poll`` does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.task import deferLater

from tower.cloud.errors import CloudAnswerError, CloudError


class NotInTimeError(CloudError):
    """It did not work in time."""

    def __init__(self, last: CloudError | None = None) -> None:
        text = "timed out waiting for the condition"
        super().__init__(f"{text}: {last}" if last else text)


async def poll(
    clock: Any, attempt: Callable[[], Awaitable[object]], *, interval: float = 2.0, timeout: float = 30.0
) -> None:
    """Call *attempt* until it raises no `CloudError`: after *interval* s, and as long after each failure.

    A cloud that says when to come again is left alone until then.

    :param timeout: for everything, s; an attempt under way at its end is cancelled.
    :raise NotInTimeError: it never worked; says why the last attempt did not.
    """
    ends = clock.seconds() + timeout
    last: CloudError | None = None
    wait = interval
    while clock.seconds() + wait < ends:
        await deferLater(clock, wait)
        trying = Deferred.fromCoroutine(_call(attempt))
        trying.addTimeout(ends - clock.seconds(), clock)
        try:
            await trying
            return
        except TimedOut:
            break
        except CloudError as e:
            last = e
            wait = max(interval, e.retry_after if isinstance(e, CloudAnswerError) else 0.0)
    raise NotInTimeError(last)


async def _call(attempt: Callable[[], Awaitable[object]]) -> None:
    await attempt()
