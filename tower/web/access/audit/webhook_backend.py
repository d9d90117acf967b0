"""The webhook of audit events: they are queued, and posted in batches.

A slow, refusing or dead webhook delays no request in the mode ``batch``: events are queued up to a limit;
beyond it they are dropped, counted and logged.  Batches that a webhook fails to take for a time are posted
again until it takes them; if it rejects a batch, only the events that it cannot take are dropped.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.errors import TowerError
from tower.kube.client import APIError
from tower.reactor.coroutines import deferred
from tower.web.access.audit.batches import BatchSettings, Throttle, event_list

#: Most batches that are posted at a time.
PARALLEL = 4

#: Attempts of a batch that the webhook rejects, growth of the delay between them, its variation and limit, s.
ATTEMPTS = 5
FACTOR = 1.5
JITTER = 0.2
LONGEST_DELAY = 60.0

#: Rejections, of a batch, its halves and so on, after which its remaining events are dropped.
REJECTED_PIECES = 40

#: Most bytes of events that wait for the webhook.
QUEUE_LIMIT = 32 * 1024 * 1024

#: Longest time for which a request waits until its event is stored, s.
WAIT_LIMIT = 30.0

#: Result of a flush.
NOT_STORED = False

#: Least time between two messages about lost events, s.
LOSS_PERIOD = 60.0

#: Time for the last batches, s.
STOP_TIMEOUT = 5.0


class EventWebhook(Protocol):
    """A client of the webhook; see `tower.kube.rest.webhook_client.WebhookClient`."""

    async def send(self, data: bytes) -> None:
        """Post *data*, once.

        :raise APIError: the webhook does not answer with success.
        """

    def close(self) -> None:
        """Close idle connections."""


class WebhookBackend:
    """A queue of events, and the batches that are being posted.

    :param address: of the webhook, for log messages.
    :ivar lost: number of events that were dropped.
    :ivar waiting: number of events that were neither stored nor dropped.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        webhook: EventWebhook,
        settings: BatchSettings,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._reactor, self._webhook, self._settings, self._chance = reactor, webhook, settings, chance
        self._queue: deque[bytes] = deque()
        self._size = 0  # of waiting events, B
        self._posting: set[Deferred[None]] = set()
        self._due: IDelayedCall | None = None
        self._is_due = self._failing = self._stopped = False
        self._accepted = True  # the last event
        self._number = 0  # of the last event in the queue
        self._waiters: deque[tuple[int, Deferred[bool]]] = deque()
        self._throttle = Throttle(settings.qps, settings.burst, reactor.seconds)
        self._loss_logged: float | None = None
        self.waiting = self.lost = 0

    def put(self, line: bytes, count: int = 1) -> None:
        """Queue an event, or *count* events together."""
        if count > 1:
            for each in line.splitlines(keepends=True):
                self.put(each)
            return
        has_room = self.waiting < self._settings.capacity and self._size + len(line) <= QUEUE_LIMIT
        self._accepted = has_room and not self._stopped
        if not self._accepted:
            self._lose(1)
            return
        self._queue.append(line)
        self._number += 1
        self.waiting += 1
        self._size += len(line)
        if self._due is None:
            self._due = self._reactor.callLater(self._settings.max_wait, self._now)
        if len(self._queue) == self._settings.max_size:
            self._due.reset(0)

    def hasten(self) -> None:
        """No-op: events wait for ``--audit-webhook-batch-max-wait``."""

    def flush(self) -> Deferred[bool]:
        """Return whether the last event is stored; while the webhook fails, False without delay."""
        if self._failing or not self._accepted:
            return succeed(NOT_STORED)
        done: Deferred[bool] = Deferred()
        self._waiters.append((self._number, done))
        return done.addTimeout(WAIT_LIMIT, self._reactor, lambda *_: False)

    async def stop(self) -> None:
        """Post the queued events in limited time, then drop the rest."""
        self._is_due = True
        self._post_some()
        limit = self._reactor.seconds() + STOP_TIMEOUT
        while self.waiting and not self._failing and self._reactor.seconds() < limit:
            await deferLater(self._reactor, 0.05)
            self._is_due = True
            self._post_some()
        self._stopped = True
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self.waiting:
            self._log.error("audit webhook: the last {count} events are lost", count=self.waiting)
        for each in list(self._posting):
            each.cancel()
        self.lost += len(self._queue)
        self._webhook.close()

    def _now(self) -> None:
        """Post all events that are queued now."""
        self._due = None
        self._is_due = True
        self._post_some()

    def _post_some(self) -> None:
        """Begin as many batches as may be posted."""
        settings = self._settings
        while self._queue and len(self._posting) < PARALLEL and not self._stopped:
            if not (self._is_due or len(self._queue) >= settings.max_size):
                break
            if delay := self._throttle.take():
                self._schedule(delay)
                return
            batch, size = self._batch()
            posting = deferred(self._post)(batch, size, self._number - len(self._queue))
            self._posting.add(posting)
            posting.addBoth(self._posted, posting)
        if not self._queue:
            self._is_due = False
        elif not self._is_due:
            self._schedule(settings.max_wait)

    def _schedule(self, delay: float) -> None:
        if self._due is None:
            self._due = self._reactor.callLater(delay, self._now)

    def _batch(self) -> tuple[list[bytes], int]:
        settings, queue = self._settings, self._queue
        batch = [queue.popleft()]
        size = len(batch[0])
        while queue and len(batch) < settings.max_size:
            more = len(queue[0])
            if size + more > settings.max_bytes:
                break
            batch.append(queue.popleft())
            size += more
        return batch, size

    def _posted(self, result: object, posting: Deferred[None]) -> None:
        self._posting.discard(posting)
        if isinstance(result, Failure) and not result.check(CancelledError):
            self._log.failure("audit webhook: cannot post a batch", result)
        self._post_some()

    async def _post(self, batch: list[bytes], size: int, last: int) -> None:
        """Post *batch* until it is stored, or rejected for good; *last* is the number of its last event.

        A rejected batch is posted in halves, so that an event that the webhook cannot read loses few others.
        """
        left = len(batch)
        pieces, attempts, rejected = [(batch, last)], ATTEMPTS, 0
        try:
            while pieces and rejected < REJECTED_PIECES:
                piece, end = pieces.pop()
                begin = end - len(piece)
                if await self._deliver(piece, begin, end, attempts):
                    left -= len(piece)
                    self._answer(begin, end, is_stored=True)
                    continue
                attempts, rejected = 1, rejected + 1
                if middle := len(piece) // 2:
                    pieces += (piece[middle:], end), (piece[:middle], begin + middle)
        finally:
            self.waiting -= len(batch)
            self._size -= size
            if left:
                self._lose(left)
        if left < len(batch):
            self._recovered()

    async def _deliver(self, events: list[bytes], first: int, last: int, attempts: int) -> bool:
        """Post *events* until they are stored, or rejected *attempts* times; return whether they are."""
        data = event_list(events)
        delay = self._settings.initial_backoff
        while True:
            try:
                await self._webhook.send(data)
            except TowerError as e:
                self._failed(e, first, last)
                attempts -= _is_rejection(e)
                wait = max(delay, getattr(e, "retry_after", 0.0))
                delay *= FACTOR
            else:
                return True
            if not attempts:
                return False
            await deferLater(self._reactor, min(wait, LONGEST_DELAY) * (1 + JITTER * self._chance()))

    def _recovered(self) -> None:
        if self._failing:
            self._failing = False
            self._log.info(
                "the audit webhook answers again; {lost} events lost so far, {waiting} wait",
                lost=self.lost,
                waiting=self.waiting,
            )

    def _failed(self, error: TowerError, first: int, last: int) -> None:
        if not self._failing:
            self._failing = True
            self._log.error(
                "the audit webhook failed: {error}; up to {count} events are queued",
                error=str(error),
                count=self._settings.capacity,
            )
        self._answer(first, last, is_stored=False)

    def _answer(self, first: int, last: int, *, is_stored: bool) -> None:
        """Answer the requests that wait for the events after *first*, up to *last*."""
        rest: deque[tuple[int, Deferred[bool]]] = deque()
        while self._waiters:
            number, done = self._waiters.popleft()
            if first < number <= last or not is_stored:
                if not done.called:
                    done.callback(is_stored)
            else:
                rest.append((number, done))
        self._waiters = rest

    def _lose(self, count: int) -> None:
        """Count lost events, and log it from time to time."""
        self.lost += count
        now = self._reactor.seconds()
        if self._loss_logged is not None and now - self._loss_logged < LOSS_PERIOD:
            return
        self._loss_logged = now
        self._log.error(
            "audit webhook: events lost so far: {lost}; it is too slow, or rejects them", lost=self.lost
        )


def _is_rejection(error: TowerError) -> bool:
    """Return whether the webhook would reject the batch again, to judge by its answer."""
    return isinstance(error, APIError) and 400 <= error.code < 500 and error.code not in (401, 403, 408, 429)
