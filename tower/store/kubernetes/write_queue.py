"""Transactions that wait for the host cluster, which are written one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime

from tower.store.kubernetes.object_codec import normal
from tower.store.records import Create, Operation, Record, StoreFailed, StoreStopped, Update
from tower.store.store import Committed

#: Most transactions that wait; more are rejected.
QUEUE_LIMIT = 1000

#: Longest wait of a transaction for earlier ones, s: each of them takes many seconds to fail while the API
#: server does not answer, and its caller should know early.
WAIT_LIMIT = 60.0

#: Longest time in which a stop finishes the writes in progress, s; the next start finishes others.
STOP_TIME = 1.5

#: Results of a transaction.
Answers: TypeAlias = list[Record | None]


@frozen
class _Waiting:
    """A transaction that waits.

    :ivar since: when it was added, s of the reactor.
    """

    operations: list[Operation]
    committed: Committed
    answer: Deferred[Answers]
    since: float


@define(eq=False)
class WriteQueue:
    """The waiting transactions of one store.

    :param write: writes one transaction.
    :param observe: is called with the duration of each, s, with its wait for earlier ones.
    :param on_idle: is called when none waits.
    :ivar is_stopped: whether new transactions are rejected.
    """

    _write: Callable[[list[Operation], Committed], Coroutine[Deferred[Any], Any, Answers]]
    _observe: Callable[[float], None]
    _on_idle: Callable[[], None]
    _reactor: IReactorTime
    _waiting: deque[_Waiting] = field(factory=deque, init=False)
    _working: Deferred[None] | None = field(default=None, init=False)
    _is_working: bool = field(default=False, init=False)  # also before the first wait
    is_stopped: bool = field(default=False, init=False)

    def add(self, operations: Sequence[Operation], committed: Committed) -> Deferred[Answers]:
        """Write *operations* after the earlier ones.  Canceling the answer does not undo the write."""
        if self.is_stopped:
            return fail(StoreStopped())
        if len(self._waiting) >= QUEUE_LIMIT:
            return fail(StoreFailed(f"{QUEUE_LIMIT} writes already wait for the host cluster: retry later"))
        # They are written later, when the caller may have modified the originals.
        copies = [
            evolve(o, value=normal(o.value)) if isinstance(o, Create | Update) else o for o in operations
        ]
        answer: Deferred[Answers] = Deferred()
        # The caller may cancel its answer, but not this one.
        written: Deferred[Answers] = Deferred()
        written.addCallbacks(answer.callback, answer.errback)
        self._waiting.append(_Waiting(copies, committed, written, self._reactor.seconds()))
        if not self._is_working:
            self._is_working = True
            self._working = Deferred.fromCoroutine(self._write_all())
            self._working.addBoth(self._worked)
        return answer

    async def stop(self) -> None:
        """Finish the waiting transactions within `STOP_TIME`; reject the rest, and new ones."""
        self.is_stopped = True
        if self._working is not None:
            done: Deferred[None] = Deferred()
            self._working.addBoth(lambda _: done.callback(None))
            timer = self._reactor.callLater(STOP_TIME, self._give_up)
            await done
            if timer.active():
                timer.cancel()

    def _worked(self, _: object) -> None:
        self._working, self._is_working = None, False
        self._on_idle()

    async def _write_all(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            waited = self._reactor.seconds() - waiting.since
            if waited > WAIT_LIMIT:
                waiting.answer.errback(_too_late(waited))
                continue
            try:
                answers = await self._write(waiting.operations, waiting.committed)
            except CancelledError:
                waiting.answer.errback(StoreStopped())
            except Exception as e:  # noqa: BLE001 - it is the caller's
                waiting.answer.errback(e)
            else:
                waiting.answer.callback(answers)
            finally:
                self._observe(self._reactor.seconds() - waiting.since)

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        if self._working is not None:
            self._working.cancel()
        for each in waiting:
            each.answer.errback(StoreStopped())


def _too_late(waited: float) -> StoreFailed:
    return StoreFailed(
        f"waited {waited:.0f} s for earlier writes to the host cluster, which answers slowly or not at all: "
        "retry later"
    )
