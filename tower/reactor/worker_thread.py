"""A thread of its own for what has to wait for a disk, in order."""

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
    """The pool with that thread; a program that crashes does not wait for it."""

    threadFactory = cast(type[Thread], partial(Thread, daemon=True))


class WorkerThread:
    """Does one thing after the other.

    There is no thread before the first, so that until then the process may still become a daemon.

    :param reactor: gets the results.
    :param name: of the thread.
    """

    def __init__(self, reactor: IReactorFromThreads, name: str) -> None:
        self._reactor = reactor
        self._name = name
        self._pool: _Pool | None = None

    @property
    def started(self) -> bool:
        """Whether there is a thread."""
        return self._pool is not None

    def defer(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> Deferred[T]:
        """Have *function* called there; return its result."""
        if self._pool is None:
            self._pool = _Pool(1, 1, self._name)
            self._pool.start()
        return deferToThreadPool(self._reactor, self._pool, function, *arguments, **more)

    def stop(self) -> None:
        """End the thread; what it does now is waited for, so call this when it has nothing to do."""
        if self._pool is not None:
            self._pool.stop()
