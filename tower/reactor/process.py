"""What a long-running process of many connections asks of its system and its interpreter."""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import os
import resource
import sys
from itertools import count, takewhile

from twisted.internet.interfaces import IReactorCore

#: Allocations between two looks for cyclic garbage: connections leave none behind, so look seldom.
_GC_THRESHOLDS = (50_000, 20, 100)

#: Open files that connections leave to everything else: the records, keys, a health page.
RESERVE = 16


#: Of prctl(2): whether memory may be dumped, and looked at by who has the same user id.
_PR_SET_DUMPABLE = 4


def forbid_dumps() -> None:
    """Keep what is in our memory out of core dumps, and from other programs of our user (ptrace(2)).

    From then on what is below ``/proc/PID`` is root's, but for ourselves.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def forget_variable(name: str) -> None:
    """Take a variable out of the environment, and its bytes out of ``/proc/PID/environ``.

    To remove it is not enough for that: what the program was started with stays where it is in its memory.
    """
    begin = os.fsencode(f"{name}=")
    environment = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for address in takewhile(bool, map(environment.__getitem__, count())) if environment else ():
        entry = ctypes.string_at(address)
        if entry.startswith(begin):
            ctypes.memset(address + len(begin), 0, len(entry) - len(begin))
    os.environ.pop(name, None)


def raise_file_limit() -> int:
    """Allow as many open files as the system lets us; return how many that is.

    Every connection is one, and distributions start programs with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft  # what we have is what we get
    return hard


def is_scarce(descriptor: int) -> bool:
    """Say whether *descriptor*, just opened, is among the last: the system gives the lowest that is free."""
    return descriptor >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE


def are_scarce(descriptor: int) -> bool:
    """Say whether one opened now would be among the last.

    :param descriptor: any that is open.
    """
    try:
        probe = os.dup(descriptor)
    except OSError as e:
        if e.errno in (errno.EMFILE, errno.ENFILE):
            return True
        raise
    os.close(probe)
    return is_scarce(probe)


def settle_memory() -> None:
    """Keep what was loaded at the start out of every later search for garbage.

    Measured: a third off the slowest of small requests, because collections get short and rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def end_in_failure(reactor: IReactorCore) -> None:
    """Stop the program, with exit code 1: whoever started us should know that it did not end as asked.

    May be called before the reactor runs; it then stops as soon as it does.
    """
    atexit.register(_exit)  # twistd itself ends with 0 whenever the reactor was stopped
    reactor.callWhenRunning(reactor.stop)


def _exit() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
