"""A queue of keys to work on, as client-go's ``workqueue``.

A key is in the queue at most once, and no two workers have the same key.  A key that is added while it is
worked on is worked on again afterwards.  A failed key is retried with exponential backoff.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from tower.metrics.histogram import Histogram

#: Keys that are worked on concurrently.
WORKERS = 8

#: First and longest time until a failed key is retried, s.
FIRST_RETRY = 0.1
LONGEST_RETRY = 30.0

#: Time after which the work on one key is cancelled, s; longer than a few requests that get no answer.
TIMEOUT = 90.0


@define(eq=False)
class WorkQueue:
    """The queue with its workers; see the module's docstring.

    :param work: works on a key; returns the time until the next work, s, or None.  If it fails, the key is
        retried.
    :param on_failure: called with the key, the failure and the time until the retry, s.
    :ivar adds: number of keys that were added; not those that were in the queue already.
    :ivar retries: number of failures.
    :ivar durations: of the work on each key.
    """

    _clock: IReactorTime
    _work: Callable[[str], Awaitable[float | None]]
    _on_failure: Callable[[str, Failure, float], None]
    _workers: int = WORKERS
    _ready: dict[str, None] = field(factory=dict, init=False)  # in the order of arrival
    _working: dict[str, Deferred[Any]] = field(factory=dict, init=False)
    _again: set[str] = field(factory=set, init=False)  # added while they were worked on
    _timers: dict[str, IDelayedCall] = field(factory=dict, init=False)
    _failures: dict[str, int] = field(factory=dict, init=False)
    _call: IDelayedCall | None = field(default=None, init=False)
    _is_running: bool = field(default=False, init=False)
    adds: int = field(default=0, init=False)
    retries: int = field(default=0, init=False)
    durations: Histogram = field(factory=Histogram, init=False)

    @property
    def depth(self) -> int:
        """Number of keys that wait for a worker."""
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        """Whether no key is worked on or waits for a worker; keys may wait for their time."""
        return not self._ready and not self._working

    @property
    def failing(self) -> list[str]:
        """Keys whose last work failed."""
        return list(self._failures)

    def start(self) -> None:
        """Start working on the keys."""
        self._is_running = True
        self._schedule()

    def stop(self) -> Deferred[Any]:
        """Cancel the current work and forget all keys; fires when no work is left."""
        self._is_running = False
        if self._call is not None:
            self._call.cancel()
            self._call = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        self._again.clear()
        self._failures.clear()
        working = list(self._working.values())
        ended = DeferredList(working, consumeErrors=True)
        for each in working:
            each.cancel()
        return ended

    def add(self, key: str) -> None:
        """Work on *key* as soon as a worker is free."""
        if key in self._working:
            self.adds += key not in self._again
            self._again.add(key)
        else:
            self.adds += key not in self._ready
            self._ready[key] = None
            self._schedule()

    def add_after(self, key: str, delay: float) -> None:
        """Work on *key* after *delay* s; an earlier time that was set before stays."""
        timer = self._timers.get(key)
        if timer is not None:
            if timer.getTime() <= self._clock.seconds() + delay:
                return
            timer.cancel()
        self._timers[key] = self._clock.callLater(delay, self._due, key)

    def retry_failed(self) -> None:
        """Work on all failed keys now, as after the cause has been removed."""
        for key in self.failing:
            self._failures[key] = 0
            self.add(key)

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)

    def _schedule(self) -> None:
        """Give keys to free workers in the next iteration of the reactor: many at once must not block it."""
        if self._is_running and self._call is None and self._ready and len(self._working) < self._workers:
            self._call = self._clock.callLater(0, self._next)

    def _next(self) -> None:
        self._call = None
        key = next(iter(self._ready))
        del self._ready[key]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        # In the dictionary before the work begins, which may add the key again.
        working: Deferred[Any] = Deferred()
        self._working[key] = working
        began = self._clock.seconds()
        working.addCallback(lambda _: Deferred.fromCoroutine(self._attempt(key)))
        working.addTimeout(TIMEOUT, self._clock)
        working.addCallbacks(self._succeeded, self._failed, callbackArgs=(key,), errbackArgs=(key,))
        working.addBoth(self._done, key, began)
        working.callback(None)
        self._schedule()

    async def _attempt(self, key: str) -> float | None:
        return await self._work(key)

    def _succeeded(self, delay: float | None, key: str) -> None:
        self._failures.pop(key, None)
        if delay is not None and self._is_running:
            self.add_after(key, delay)

    def _failed(self, failure: Failure, key: str) -> None:
        if not self._is_running:
            return  # it was cancelled
        self.retries += 1
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(FIRST_RETRY * 2 ** min(count, 30), LONGEST_RETRY)
        self.add_after(key, delay)
        self._on_failure(key, failure, delay)

    def _done(self, outcome: object, key: str, began: float) -> object:
        self.durations.observe(self._clock.seconds() - began)
        del self._working[key]
        if key in self._again:
            self._again.discard(key)
            self._ready[key] = None
        self._schedule()
        return outcome
