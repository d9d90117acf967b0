"""Tests of what the process asks of its system."""

from __future__ import annotations

import gc
import resource

from twisted.trial.unittest import SynchronousTestCase

from tower.process import raise_file_limit, settle_memory


class ProcessTests(SynchronousTestCase):
    """Limits and garbage."""

    def test_file_limit(self) -> None:
        """The soft limit becomes the hard one, and a second call changes nothing."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
        for _ in range(2):
            self.assertEqual(raise_file_limit(), before[1])
            self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), (before[1], before[1]))

    def test_settled(self) -> None:
        """What is there is frozen, and collections become rarer."""
        thresholds = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *thresholds)
        self.addCleanup(gc.unfreeze)
        gc.set_threshold(700, 10, 10)
        settle_memory()
        self.assertGreater(gc.get_freeze_count(), 1000)
        self.assertGreater(gc.get_threshold()[0], 700)
