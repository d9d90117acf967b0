"""Tests for `tower.kube.access.go_texts`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.go_texts import go_duration, quoted_list


class GoTextsTests(SynchronousTestCase):
    """Values in Go's notation."""

    def test_list(self) -> None:
        """A list has a limit, and so has each text in it."""
        self.assertEqual(quoted_list(iter(("a", 'b"'))), '["a" "b\\""]')
        self.assertEqual(quoted_list([]), "[]")
        shown = quoted_list(["x" * 10**6] * 10**4)
        self.assertLess(len(shown), 5000)
        self.assertTrue(shown.endswith(" …]"))
        self.assertFalse(quoted_list(["x"] * 20).endswith(" …]"))

    def test_durations(self) -> None:
        """Durations are those of time.ParseDuration."""
        for text, seconds in (
            ("0", 0.0),
            ("-0", 0.0),
            ("1h2m3.5s", 3723.5),
            ("+.5s", 0.5),
            ("1.s", 1.0),
            ("-1m", -60.0),
            ("100ms", 0.1),
            ("3us", 3e-6),
            ("3µs", 3e-6),
            ("7ns", 7e-9),
        ):
            self.assertAlmostEqual(go_duration(text), seconds, 12, text)

    def test_bad_durations(self) -> None:
        """Errors have Go's texts."""
        for text in ("", "-", ".", ".s", "s", "1s.", "-.", "300000000h", "9" * 40 + "s"):
            error = self.assertRaises(ValueError, go_duration, text)
            self.assertEqual(str(error), f'time: invalid duration "{text}"')
        self.assertRaises(ValueError, go_duration, "0s" * 51)
        self.assertEqual(go_duration("0s" * 50), 0.0)
        error = self.assertRaises(ValueError, go_duration, "1s2")
        self.assertEqual(str(error), 'time: missing unit in duration "1s2"')
        error = self.assertRaises(ValueError, go_duration, "1s x")
        self.assertEqual(str(error), 'time: unknown unit "s x" in duration "1s x"')
        error = self.assertRaises(ValueError, go_duration, "1 s")
        self.assertEqual(str(error), 'time: unknown unit " s" in duration "1 s"')
