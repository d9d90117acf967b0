"""Tests of `tower.kube.timestamps`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.timestamps import micro_time, parse_timestamp, timestamp


class TimestampTests(SynchronousTestCase):
    """Times as kube-apiserver writes them."""

    def test_whole_seconds(self) -> None:
        """Times are in UTC, without fractions."""
        self.assertEqual(timestamp(0.0), "1970-01-01T00:00:00Z")
        self.assertEqual(timestamp(1_790_000_010.99), "2026-09-21T14:13:30Z")

    def test_microseconds(self) -> None:
        """Times of Leases have microseconds, also if they are 0."""
        self.assertEqual(micro_time(1_790_000_010.25), "2026-09-21T14:13:30.250000Z")
        self.assertEqual(micro_time(0.0), "1970-01-01T00:00:00.000000Z")

    def test_parsed(self) -> None:
        """A time is read back, in any zone; text that is not a time is None."""
        self.assertEqual(parse_timestamp(timestamp(1_790_000_010)), 1_790_000_010)
        self.assertIsInstance(parse_timestamp("2026-09-21T14:13:30Z"), int)
        self.assertEqual(parse_timestamp("2026-09-21T16:13:30.5+02:00"), 1_790_000_010.5)
        for odd in (None, 7, "", "soon", "2026-09-21", "2026-09-21T14:13:30", "2026-09-31T14:13:30Z"):
            self.assertIsNone(parse_timestamp(odd))
