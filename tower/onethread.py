"""A thread of its own for what has to wait for a disk, in order."""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import cast

from twisted.python.threadpool import ThreadPool


class OneThread(ThreadPool):
    """A pool with one thread, for which a program that crashes does not wait.

    :param name: of the thread.
    """

    threadFactory = cast(type[Thread], partial(Thread, daemon=True))

    def __init__(self, name: str) -> None:
        super().__init__(1, 1, name)
