"""Tests of `tower.reactor.memory`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.memory import WORTH, FreedMemory

PIECE = 60_000  # B, below what malloc asks the system for by itself
PIECES = 2_000


def resident() -> int:
    """Return how much memory of this process is there, B."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class FreedMemoryTests(SynchronousTestCase):
    def test_when(self) -> None:
        """Memory is released when more became free since the minimum, not for memory that is free anyway."""
        said, trims = 10 * WORTH, 0

        def trim() -> None:
            nonlocal trims
            trims += 1

        freed = FreedMemory(lambda: said, trim)
        for free, count in (
            (10, 0),  # at the start
            (11, 1),
            (11, 1),  # given back, and free for malloc all the same
            (2, 1),  # used again
            (2.9, 1),
            (3, 2),
            (3, 2),
            (4, 3),
        ):
            said = int(free * WORTH)
            freed.look()
            self.assertEqual(trims, count, free)

    def test_given_back(self) -> None:
        """Memory that is free between pieces in use is returned to the system."""
        freed = FreedMemory()
        freed.look()
        pieces = [os.urandom(PIECE) for _ in range(PIECES)]
        kept = pieces[::100]
        before = resident()
        del pieces
        freed.look()
        self.assertLess(resident(), before - PIECE * PIECES // 2)
        self.assertEqual(len(kept), PIECES // 100)
