"""A few clusters in a real host cluster, as `tests.integration.host_scale` has 300 for ten minutes."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.host_scale import HostScale

COUNT, REPLACED = 10, 4
SECONDS, PERIOD = 6.0, 2.0
MOST_WRITES = 5  # for each cluster
ATTEMPTS = 4  # on a machine that is too busy to connect so many agents in that time


class HostScaleTests(SynchronousTestCase):
    """Ten clusters, with an agent each."""

    def test_scale(self) -> None:
        """No port is used twice, and agents that reconnect cost few writes."""
        folder = tempfile.TemporaryDirectory(prefix="tower-scale-")
        self.addCleanup(folder.cleanup)
        with ExitStack() as stack:
            scale = HostScale(Path(folder.name), stack, COUNT, REPLACED)
            scale.apply(scale.names)
            scale.connect()
            writes, reconnects = scale.steady(SECONDS, PERIOD)
            for _ in range(ATTEMPTS):
                if reconnects < COUNT * SECONDS / PERIOD / 2:
                    more, again = scale.steady(SECONDS, PERIOD)
                    writes, reconnects = writes + more, reconnects + again
            self.assertGreaterEqual(reconnects, COUNT * SECONDS / PERIOD / 2)
            self.assertLess(sum(writes.values()), MOST_WRITES * COUNT, writes)
            scale.delete(scale.names[:REPLACED])
            scale.apply(scale.others)
            self.assertEqual(len(scale.used), COUNT + REPLACED)
            self.assertNotIn("Traceback", scale.tower.proxy.output())
