"""Tests of `tower.metrics.page`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from prometheus_client import Counter, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pages import page_of
from tower.metrics.families import counter, gauge, histogram
from tower.metrics.histogram import Histogram
from tower.metrics.page import PIECE, MetricsPage, registry_of


class _Clusters(Collector):
    """One metric of each of many clusters; each takes *seconds* to make."""

    def __init__(self, count: int = 3, seconds: float = 0.0) -> None:
        self.count = count
        self.took = 0.0
        self.collected = 0
        self._seconds = seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for number in range(self.count):
            self.took += self._seconds
            self.collected += 1
            yield gauge("tower_up", "Up.", number, cluster=f"c{number}")


class MetricsPageTests(SynchronousTestCase):
    """The text, and the pieces in which it is written."""

    def page(self, collector: Collector) -> str:
        """Return the page of *collector*, which is short."""
        return page_of(registry_of(collector)).decode()

    def test_one_head(self) -> None:
        """Consecutive metrics of one name have one head."""
        page = self.page(_Clusters())
        self.assertEqual(page.count("# HELP tower_up Up.\n# TYPE tower_up gauge\n"), 1)
        self.assertEqual(page.splitlines()[-1], 'tower_up{cluster="c2"} 2.0')
        (family,) = text_string_to_metric_families(page)
        self.assertEqual(len(family.samples), 3)

    def test_parsed(self) -> None:
        """Prometheus' own parser reads counters, histograms and escaped labels back."""

        class Mixed(Collector):
            def collect(self) -> Iterator[Metric]:
                yield counter("tower_ends_total", "Ends\nof \\ streams.", 2, reason='a"b\\c\nd')
                yield histogram("tower_lag_seconds", "Lag.", Histogram())

        ends, lag = text_string_to_metric_families(self.page(Mixed()))
        self.assertEqual((ends.name, ends.type), ("tower_ends", "counter"))
        self.assertEqual(ends.samples[0].labels, {"reason": 'a"b\\c\nd'})
        self.assertEqual((lag.type, len(lag.samples)), ("histogram", 10))

    def test_library_counter(self) -> None:
        """A counter of prometheus_client has the name of its samples in its head."""

        class Library(Collector):
            def collect(self) -> Iterator[Metric]:
                yield next(iter(Counter("tower_things", "Things.", registry=None).collect()))

        self.assertIn("# TYPE tower_things_total counter\n", self.page(Library()))

    def test_pieces(self) -> None:
        """After `PIECE` the reactor runs before the page goes on, and the page is complete."""
        clock, clusters = Clock(), _Clusters(100, PIECE / 10)
        page = MetricsPage(clock, registry_of(clusters), lambda: clusters.took)
        writing = page.pieces()
        seen = [clusters.collected]

        def other_work() -> None:
            seen.append(clusters.collected)
            if not writing.called:
                clock.callLater(0, other_work)

        other_work()
        clock.advance(0)
        self.assertGreaterEqual(len(seen), 8)
        self.assertLessEqual(max(b - a for a, b in pairwise(seen)), 11)
        pieces: list[bytes] = self.successResultOf(writing)
        self.assertEqual(b"".join(pieces).count(b"tower_up{"), 100)

    def test_shared(self) -> None:
        """Requests during the writing get the same page, which is written once."""
        clock, clusters = Clock(), _Clusters(30, PIECE)
        page = MetricsPage(clock, registry_of(clusters), lambda: clusters.took)
        first, second, third = page.pieces(), page.pieces(), page.pieces()
        second.cancel()
        self.failureResultOf(second, CancelledError)
        for _ in range(40):
            clock.advance(0)
        self.assertEqual(self.successResultOf(first), self.successResultOf(third))
        self.assertEqual(clusters.collected, 30)

    def test_new_page(self) -> None:
        """A request after the end of the writing gets a new page."""
        clusters = _Clusters(1)
        page = MetricsPage(Clock(), registry_of(clusters), lambda: 0.0)
        self.successResultOf(page.pieces())
        clusters.count = 2
        (text,) = self.successResultOf(page.pieces())
        self.assertIn(b'"c1"', text)
