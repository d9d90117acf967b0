"""Tests of `tower.metrics.process`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

import tower
from tower.metrics.page import registry_of
from tower.metrics.process import ProcessInfo


class ProcessInfoTests(SynchronousTestCase):
    """Metrics of this process."""

    def test_values(self) -> None:
        """There are versions, native or pure, and the process's memory, file descriptors and CPU time."""
        registry = registry_of(ProcessInfo("agent", "1.2.3"))
        names = {metric.name: metric for metric in registry.collect()}
        (build,) = names["tower_build_info"].samples
        self.assertEqual((build.labels["program"], build.labels["version"]), ("agent", "1.2.3"))
        self.assertEqual(build.labels["build"], tower.BUILD)
        self.assertEqual(build.value, 1)
        for name in ("process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"):
            value = registry.get_sample_value(name)
            self.assertIsNotNone(value)
            self.assertGreater(value or 0, 0)
