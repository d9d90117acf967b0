"""Tests of `tower.tunnels.version_skew`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.tunnels.version_skew import skew


class SkewTests(SynchronousTestCase):
    def test_supported(self) -> None:
        """One minor version newer, and two older, is supported; patches and stages do not count."""
        for agent in ("1.3.0", "1.4.0", "1.5.9", "1.6.0rc1", "v1.5", "1.3.0.dev0"):
            self.assertEqual(skew(agent, "1.5.0"), "", agent)

    def test_unsupported(self) -> None:
        """All others are named, with the program to upgrade."""
        for agent, old in (("1.2.9", "agent"), ("0.9", "agent"), ("1.7.0", "proxy"), ("2.0", "proxy")):
            text = skew(agent, "1.5.0")
            self.assertIn(f"upgrade the {old}", text)
            self.assertNotIn("\n", text)

    def test_unreadable(self) -> None:
        """Versions of other programs are not judged."""
        for agent in ("", "dirty", "20260101", "v", "\u0661.\u0662"):
            self.assertEqual(skew(agent, "1.5.0"), "", agent)
