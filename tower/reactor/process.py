"""Settings of the process: limits, core dumps, garbage collection, exit code."""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import os
import resource
import sys
from itertools import count, takewhile
from typing import Any

from twisted.internet.interfaces import IReactorCore

#: Thresholds of the garbage collector: connections leave no cyclic garbage, so collect seldom.
_GC_THRESHOLDS = (50_000, 20, 100)

#: Open files that connections leave to everything else: the records, keys, a health page.
RESERVE = 16

#: Of prctl(2): allows core dumps, and access to the memory by processes of the same user.
_PR_SET_DUMPABLE = 4


def forbid_dumps() -> None:
    """Forbid core dumps, and access to our memory by other processes of our user (ptrace(2)).

    Only root and this process can read ``/proc/PID`` afterwards.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def forget_variable(name: str) -> None:
    """Remove a variable from the environment, and overwrite its value in ``/proc/PID/environ``.

    Removal alone is not enough: the initial environment stays in the process's memory.
    """
    begin = os.fsencode(f"{name}=")
    environment = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for address in takewhile(bool, map(environment.__getitem__, count())) if environment else ():
        entry = ctypes.string_at(address)
        if entry.startswith(begin):
            ctypes.memset(address + len(begin), 0, len(entry) - len(begin))
    os.environ.pop(name, None)
    handlers: Any = sys.modules.get("wsgiref.handlers")  # prometheus-client imports it; it has a copy
    if handlers is not None:
        handlers.BaseHandler.os_environ.pop(name, None)


def raise_file_limit() -> int:
    """Raise the limit of open files to the hard limit; return the new limit.

    Every connection is an open file, and distributions start programs with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def is_scarce(descriptor: int) -> bool:
    """Return whether the new *descriptor* is among the last `RESERVE`: the lowest free one is assigned."""
    return descriptor >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE


def are_scarce(descriptor: int) -> bool:
    """Return whether a descriptor opened now would be among the last; *descriptor* is any open one."""
    try:
        probe = os.dup(descriptor)
    except OSError as e:
        if e.errno in (errno.EMFILE, errno.ENFILE):
            return True
        raise
    os.close(probe)
    return is_scarce(probe)


def settle_memory() -> None:
    """Exclude the objects that exist now from garbage collection.

    Measured: a third off the slowest of small requests, because collections get short and rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def end_in_failure(reactor: IReactorCore) -> None:
    """Stop the program with exit code 1; before the reactor runs: as soon as it does."""
    atexit.register(_exit)  # twistd itself exits with 0 when the reactor was stopped
    reactor.callWhenRunning(reactor.stop)


def _exit() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
