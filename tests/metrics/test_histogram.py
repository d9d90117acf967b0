"""Tests of `tower.metrics.histogram` and `tower.metrics.families`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.metrics.families import counters, gauges, histogram
from tower.metrics.histogram import DELAY_BOUNDS, REQUEST_BOUNDS, Histogram


class HistogramTests(SynchronousTestCase):
    """Durations in eight buckets."""

    def test_buckets(self) -> None:
        """A duration counts in the first bucket whose bound it does not exceed, or in the last."""
        values = Histogram((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))
        for seconds in (0.0, 1.0, 1.1, 7.0, 7.1, 1000.0):
            values.observe(seconds)
        self.assertEqual(values.counts, [2, 1, 0, 0, 0, 0, 1, 2])
        self.assertAlmostEqual(values.sum, 1016.2)

    def test_several(self) -> None:
        """Several durations at once count like each alone."""
        durations = [0.7, 0.005, 0.0, 61.0, 0.02, 0.0200001, 3.0, 3.0]
        one, all_at_once = Histogram(), Histogram()
        for seconds in durations:
            one.observe(seconds)
        all_at_once.observe_all(durations)
        all_at_once.observe_all([])
        self.assertEqual(all_at_once.counts, one.counts)
        self.assertAlmostEqual(all_at_once.sum, one.sum)

    def test_ascending(self) -> None:
        """The bounds ascend, as `Histogram.observe` requires."""
        for bounds in (REQUEST_BOUNDS, DELAY_BOUNDS):
            self.assertEqual(list(bounds), sorted(set(bounds)))

    def test_samples(self) -> None:
        """The samples of a histogram are cumulative: eight buckets, the count and the sum."""
        values = Histogram()
        for seconds in (0.001, 0.2, 61.0):
            values.observe(seconds)
        metric = histogram("wait_seconds", "Waits.", values, cluster="alpha")
        found = [(s.name, s.labels.get("le"), s.value) for s in metric.samples]
        buckets = [(le, value) for name, le, value in found if name == "wait_seconds_bucket"]
        self.assertEqual(len(buckets), 8)
        self.assertEqual(buckets[0], ("0.005", 1))
        self.assertEqual(buckets[-1], ("+Inf", 3))
        self.assertEqual([value for _, value in buckets], sorted(value for _, value in buckets))
        self.assertIn(("wait_seconds_count", None, 3), found)
        self.assertIn(("wait_seconds_sum", None, 61.201), found)
        self.assertEqual({s.labels["cluster"] for s in metric.samples}, {"alpha"})


class FamiliesTests(SynchronousTestCase):
    """Families with one sample for each value of a label."""

    def test_several(self) -> None:
        """Counters and gauges have one sample for each key."""
        for make, kind in ((counters, "counter"), (gauges, "gauge")):
            metric = make("ends_total", "Ends.", "reason", {"timeout": 2, "closed": 0}, cluster="a")
            self.assertEqual(metric.type, kind)
            self.assertEqual(
                [(s.labels, s.value) for s in metric.samples],
                [({"cluster": "a", "reason": "timeout"}, 2), ({"cluster": "a", "reason": "closed"}, 0)],
            )
