"""A thread for work that waits for a disk, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import ParamSpec, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class _Pool(ThreadPool):
    """A pool of one daemon thread: a program that crashes does not wait for it."""

    threadFactory = cast(type[Thread], partial(Thread, daemon=True))


class WorkerThread:
    """Runs functions in one thread, one after the other; *reactor* receives the results.

    The thread starts with the first function, so that the process can become a daemon before.
    """

    def __init__(self, reactor: IReactorFromThreads, name: str) -> None:
        self._reactor = reactor
        self._name = name
        self._pool: _Pool | None = None

    @property
    def started(self) -> bool:
        """Whether the thread exists."""
        return self._pool is not None

    def defer(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> Deferred[T]:
        """Call *function* in the thread; the Deferred fires with its result."""
        if self._pool is None:
            self._pool = _Pool(1, 1, self._name)
            self._pool.start()
        return deferToThreadPool(self._reactor, self._pool, function, *arguments, **more)

    def stop(self) -> None:
        """End the thread after its current work; blocks until then."""
        if self._pool is not None:
            self._pool.stop()
