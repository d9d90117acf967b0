"""Tests of `tower.web.access.reported_failure`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.reported_failure import FEW, PERIOD, ReportedFailure, without_secret


class ReportedFailureTests(SynchronousTestCase):
    """A program that fails."""

    def setUp(self) -> None:
        """It has not failed yet."""
        self.clock = Clock()
        self.failure = ReportedFailure(self.clock.seconds)

    def test_same(self) -> None:
        """The same failure is new once, and again after its end."""
        self.assertFalse(self.failure.ends())
        self.assertEqual([self.failure.is_new("down") for _ in range(3)], [True, False, False])
        self.assertTrue(self.failure.ends())
        self.assertFalse(self.failure.ends())
        self.assertTrue(self.failure.is_new("down"))

    def test_flood(self) -> None:
        """A program whose failures all differ, or which fails now and then, does not fill the log."""
        self.assertEqual(sum(self.failure.is_new(f"request {number}") for number in range(1000)), FEW)
        self.clock.advance(PERIOD)
        news = ends = 0
        for _ in range(1000):
            news += self.failure.is_new("down")
            ends += self.failure.ends()
        self.assertEqual((news, ends), (FEW, FEW))

    def test_secrets(self) -> None:
        """An answer that quotes a token, also cut, is not quoted; another one is."""
        token = "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"
        for text in (f'no user for "{token}"', token[:20]):
            self.assertEqual(without_secret(text, token), "its answer quotes the token")
        self.assertEqual(without_secret("ldap is down", token), "ldap is down")
        self.assertEqual(without_secret("timeout", "t"), "timeout")
