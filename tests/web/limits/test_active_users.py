"""Tests of `tower.web.limits.active_users`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.web.limits.active_users import LIGHT, PERIOD, RATE, ActiveUsers


class ActiveUsersTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Start without users."""
        self.clock = Clock()
        self.active = ActiveUsers(self.clock.seconds)

    def test_several(self) -> None:
        """A user counts as active for a period or two after the last request."""
        self.assertFalse(self.active.has_several())
        self.active.entered("jane")
        self.active.entered("jane")
        self.assertFalse(self.active.has_several())
        self.active.entered("joe")
        self.assertTrue(self.active.has_several())
        self.clock.advance(PERIOD)
        self.active.entered("joe")
        self.assertTrue(self.active.has_several())
        self.clock.advance(PERIOD)
        self.active.entered("joe")
        self.assertFalse(self.active.has_several())

    def test_another_user(self) -> None:
        """Users who take turns are several."""
        self.active.entered("jane")
        self.clock.advance(PERIOD)
        self.active.entered("joe")
        self.assertTrue(self.active.has_several())

    def test_seats(self) -> None:
        """Users with many quick requests have few seats, those with long ones enough for the rate."""
        for requests, seats in ((1, 1024), (LIGHT, LIGHT), (64, 16), (200, 5), (513, 1), (2000, 1)):
            self.assertEqual(self.active.seats_of("jane", requests), seats)
        self.active.entered("jane")
        for _ in range(100):
            self.active.took("jane", 1.9 / RATE)
        self.assertEqual(self.active.seats_of("jane", 1000), 1)
        self.active.entered("joe")
        for _ in range(100):
            self.active.took("joe", 20 / RATE)
        self.assertEqual(self.active.seats_of("joe", 1000), 20)

    def test_forgotten(self) -> None:
        """The durations of users who are not active any longer are forgotten."""
        self.active.entered("jane")
        self.active.took("jane", 10.0)
        for _ in range(3):
            self.clock.advance(PERIOD)
            self.active.entered("joe")
        self.assertEqual(self.active.seats_of("jane", 1000), 1)
