"""Tests of `tower.durations`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.durations import describe_offset, human_duration


class DurationTests(SynchronousTestCase):
    """Durations have kubectl's format."""

    def test_steps(self) -> None:
        """Every unit, at its limits."""
        for seconds, text in (
            (-5, "0s"),
            (0, "0s"),
            (119.9, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (8 * 3600 - 60, "7h59m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (2 * 86400, "2d"),
            (7 * 86400 + 3600, "7d1h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (800 * 86400, "2y70d"),
        ):
            self.assertEqual(human_duration(seconds), text, seconds)

    def test_offset(self) -> None:
        """An offset is described in two units at most, with its direction."""
        for offset, text in (
            (-75, "75s behind"),
            (301, "5m1s ahead of"),
            (-3599.7, "60m behind"),
            (2 * 86400 + 3 * 3600 + 59, "2d3h ahead of"),
        ):
            self.assertEqual(describe_offset(offset), text)
