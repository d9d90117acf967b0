"""A scrape of many clusters, whose limit `benchmarks.scrape` shows with real connections."""

from __future__ import annotations

import gc
import re
from collections import Counter
from time import thread_time

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.scrape import busy
from tower.metrics.page import MetricsPage

CLUSTERS = 250
MOST_SERIES = 100  # every cluster has fewer
WATCHES = 20_000  # in progress; all of them together take half of the time

#: Most processor time of one turn of the reactor, s: several times what it takes, for slow machines.
LONGEST = 0.05


class ScrapeTests(SynchronousTestCase):
    """Processor time is measured, as the machine may have other work."""

    def test_pauses(self) -> None:
        """No turn of the reactor takes long, and each takes a small part of the whole."""
        clock = Clock()
        load = busy(clock, CLUSTERS, WATCHES)
        page = MetricsPage(clock, load.registry, thread_time)
        gc.collect()
        gc.freeze()  # as the proxy does; else the objects of other tests count
        self.addCleanup(gc.unfreeze)
        turns: list[float] = []
        writing = page.pieces()
        while not writing.called:
            began = thread_time()
            call = clock.calls.pop(0)
            call.func(*call.args, **call.kw)
            turns.append(thread_time() - began)
        pieces: list[bytes] = self.successResultOf(writing)
        text = b"".join(pieces)
        self.assertEqual(text.count(b"tower_tunnel_rtt_seconds{"), CLUSTERS)
        self.assertEqual(text.count(b'kind="watch"} %.1f' % (WATCHES / CLUSTERS)), CLUSTERS)
        self.assertEqual(text.count(b"TYPE tower_requests_inflight "), 1)
        series = Counter(re.findall(rb'cluster="([^"]+)"', text))
        # one of the protocols is never that of a cluster with nodes; two metrics need the member's status
        self.assertLess(series[b"cluster-0000"] - 1 + series[b"nodes-0000"] + 2, MOST_SERIES)
        self.assertGreater(len(turns), 5)
        self.assertLess(max(turns), LONGEST)
        self.assertLess(max(turns), sum(turns) / 4)
