"""Tests of `tower.web.limits.caps` and `tower.web.limits.door_limits`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.status import StatusError
from tower.web.limits.caps import Cap
from tower.web.limits.door_limits import DoorLimits
from tower.web.limits.seat_pool import HAND, QUEUE_LENGTH

NONE = {
    "max-requests-inflight": 0,
    "max-mutating-requests-inflight": 0,
    "max-requests-inflight-per-cluster": 0,
    "max-requests-inflight-per-user": 0,
    "max-streams-per-user": 0,
}


class CapTests(SynchronousTestCase):
    def test_each_name_for_itself(self) -> None:
        """Each name has its own count, and none is kept without requests."""
        cap = Cap(1, "cluster", "max-requests-inflight-per-cluster")
        cap.enter("alpha")
        cap.enter("beta")
        error: StatusError = self.assertRaises(StatusError, cap.enter, "alpha")
        self.assertEqual((error.code, error.reason), (429, "TooManyRequests"))
        self.assertEqual(error.details["retryAfterSeconds"], 1)
        self.assertEqual(
            error.message,
            "Too many requests, please try again later. (--max-requests-inflight-per-cluster is 1, and "
            "cluster alpha has as many in progress)",
        )
        for name in ("alpha", "beta"):
            cap.leave(name)
        self.assertEqual((cap.counts, cap.refused), ({}, 1))


class DoorLimitsTests(SynchronousTestCase):
    def test_none(self) -> None:
        """With zeros, nothing is limited."""
        limits = DoorLimits.of(NONE)
        self.assertIsNone(limits.enter("jane", "alpha", b"GET"))
        self.assertIsNone(limits.enter("jane", "alpha", b"POST"))
        self.assertIsNone(limits.enter_stream("jane", "alpha", b"GET").ticket)

    def test_pools(self) -> None:
        """Reads and changes have separate seats."""
        limits = DoorLimits.of({**NONE, "max-requests-inflight": 4, "max-mutating-requests-inflight": 1})
        assert limits.reading is not None
        assert limits.mutating is not None
        places = [limits.enter("jane", "alpha", method) for method in (b"GET", b"HEAD", b"POST", b"DELETE")]
        self.assertEqual((limits.reading.used, limits.mutating.used, limits.mutating.waiting), (2, 1, 1))
        for place in places:
            assert place is not None
            place.leave()
            place.leave()
        self.assertEqual((limits.reading.used, limits.mutating.used, limits.mutating.waiting), (0, 0, 0))

    def test_refusals_count_nothing(self) -> None:
        """A request that one limit rejects is counted by none."""
        limits = DoorLimits.of(
            {
                **NONE,
                "max-requests-inflight": 1,
                "max-requests-inflight-per-cluster": 10_000,
                "max-requests-inflight-per-user": 2,
            }
        )
        for _ in range(2):
            limits.enter("jane", "alpha", b"GET")
        self.assertRaises(StatusError, limits.enter, "jane", "alpha", b"GET")
        assert limits.by_cluster is not None
        assert limits.by_user is not None
        self.assertEqual((limits.by_cluster.counts, limits.by_user.counts), ({"alpha": 2}, {"jane": 2}))
        limits.by_user = None
        entered = 0
        with self.assertRaises(StatusError) as caught:
            for _ in range(HAND * QUEUE_LENGTH + 2):
                limits.enter("joe", "alpha", b"GET")
                entered += 1
        self.assertIn("the queues of user joe for cluster alpha are full", str(caught.exception))
        self.assertEqual(limits.by_cluster.counts, {"alpha": entered + 2})
