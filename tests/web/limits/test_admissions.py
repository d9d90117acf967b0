"""Tests of `tower.web.limits.admissions`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.limits.admissions import SILENT
from tower.web.limits.caps import Cap, ClusterCap
from tower.web.limits.door_limits import DoorLimits
from tower.web.limits.seat_pool import SeatPool


class PlaceTests(SynchronousTestCase):
    """Requests of one user, who has at most one of the two seats."""

    def setUp(self) -> None:
        """Make the limits."""
        self.pool = SeatPool(2)
        self.by_user = Cap(9, "user", "max-requests-inflight-per-user")
        self.streams = Cap(9, "user", "max-streams-per-user")
        self.limits = DoorLimits(self.pool, by_user=self.by_user, streams=self.streams)

    def test_time_of_a_seat(self) -> None:
        """A request gives its seat back after the limit, which begins with the seat; the cap counts it on."""
        first, second = (self.limits.enter("jane", "alpha", b"GET") for _ in range(2))
        assert first is not None
        assert second is not None
        for _ in range(60):
            first.tick(60.0)
            second.tick(60.0)
        self.assertEqual((self.pool.used, self.pool.waiting), (1, 1))
        first.tick(60.0)
        self.assertEqual((self.pool.used, self.pool.waiting), (1, 0))
        for _ in range(60):
            second.tick(60.0)
        self.assertEqual(self.pool.used, 1)
        second.tick(60.0)
        self.assertEqual((self.pool.used, self.by_user.counts), (0, {"jane": 2}))
        first.leave()
        second.leave()
        self.assertEqual((self.pool.used, self.by_user.counts), (0, {}))

    def test_silent_stream(self) -> None:
        """A stream gives its seat back after its patience, and remains a stream."""
        place = self.limits.enter_stream("jane", "alpha", b"GET", patience=SILENT)
        for _ in range(3):
            place.tick(60.0)
        self.assertEqual(self.pool.used, 1)
        place.tick(60.0)
        self.assertEqual((self.pool.used, self.streams.counts, self.by_user.counts), (0, {"jane": 1}, {}))
        place.leave()
        place.leave()
        self.assertEqual(self.streams.counts, {})

    def test_answers(self) -> None:
        """A long-running request is only a stream once it is answered, another upgrade once it is a 101."""
        for is_long, code, used in ((True, 200, 0), (True, 101, 0), (False, 200, 1), (False, 101, 0)):
            place = self.limits.enter_stream("jane", "alpha", b"GET", is_long_running=is_long)
            self.assertEqual(self.by_user.counts, {} if is_long else {"jane": 1})
            place.answered(code)
            self.assertEqual((self.pool.used, self.by_user.counts.get("jane", 0)), (used, used))
            self.assertEqual(self.streams.counts, {"jane": 1})
            place.leave()

    def test_refused(self) -> None:
        """An upgrade that one limit rejects is counted by none."""
        self.limits.by_cluster = ClusterCap(0)
        with self.assertRaisesRegex(Exception, "max-requests-inflight-per-cluster is 0"):
            self.limits.enter_stream("jane", "alpha", b"GET", is_long_running=False)
        self.assertEqual((self.pool.used, self.streams.counts, self.by_user.counts), (0, {}, {}))
