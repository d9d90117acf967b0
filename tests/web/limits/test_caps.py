"""Tests of `tower.web.limits.caps` and `tower.web.limits.door_limits`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.status import StatusError
from tower.web.limits.caps import Cap, ClusterCap
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


class ClusterCapTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Make a cap of five requests."""
        self.cap = ClusterCap(5)

    def enter(self, user: str, cluster: str = "alpha") -> int:
        """Return how many requests of a user are admitted until one is rejected."""
        admitted = 0
        while True:
            try:
                self.cap.enter(cluster, user)
            except StatusError:
                return admitted
            admitted += 1

    def test_shares(self) -> None:
        """One user's requests leave room for others, and all together never exceed the cap."""
        self.assertEqual([self.enter(user) for user in ("jane", "joe", "ann", "bob")], [3, 1, 1, 0])
        self.assertEqual((self.cap.total.counts, self.cap.total.refused), ({"alpha": 5}, 4))
        self.assertEqual(self.enter("jane", "beta"), 3)

    def test_messages(self) -> None:
        """The refusal names the user's share, or the cluster if nothing is free."""
        self.enter("jane")
        error: StatusError = self.assertRaises(StatusError, self.cap.enter, "alpha", "jane")
        self.assertEqual((error.code, error.details["retryAfterSeconds"]), (429, 1))
        self.assertEqual(
            error.message,
            "Too many requests, please try again later. (--max-requests-inflight-per-cluster is 5, and "
            "user jane has 3 requests in progress to cluster alpha; the remaining 2 are reserved for other "
            "users)",
        )
        self.enter("joe")
        error = self.assertRaises(StatusError, self.cap.enter, "alpha", "joe")
        self.assertIn("joe has 1 request in progress to cluster alpha; the remaining 1 is res", error.message)
        self.enter("ann")
        error = self.assertRaises(StatusError, self.cap.enter, "alpha", "jane")
        self.assertIn("and cluster alpha has as many in progress)", error.message)

    def test_every_end_frees_a_share(self) -> None:
        """A request that ends makes room for one of the same user, and the smallest cap admits one."""
        self.assertEqual(self.enter("jane"), 3)
        self.cap.leave("alpha", "jane")
        self.assertEqual(self.enter("jane"), 1)
        for _ in range(3):
            self.cap.leave("alpha", "jane")
        self.assertEqual(self.cap.total.counts, {})
        self.assertEqual(self.enter("joe"), 3)
        self.cap = ClusterCap(1)
        self.assertEqual([self.enter("jane"), self.enter("joe")], [1, 0])


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
        in_cluster = limits.by_cluster.total
        self.assertEqual((in_cluster.counts, limits.by_user.counts), ({"alpha": 1}, {"jane": 2}))
        limits.by_user = None
        with self.assertRaises(StatusError) as caught:
            for _ in range(HAND * QUEUE_LENGTH + 2):
                limits.enter("joe", "alpha", b"GET")
        self.assertIn("the queues of user joe for cluster alpha are full", str(caught.exception))
        self.assertEqual(in_cluster.counts, {"alpha": 1})

    def test_waiting_requests_are_not_in_their_cluster(self) -> None:
        """A request that waits for its seat does not count in its cluster until it has the seat."""
        limits = DoorLimits.of({**NONE, "max-requests-inflight": 2, "max-requests-inflight-per-cluster": 3})
        assert limits.by_cluster is not None
        places = [limits.enter("jane", "alpha", b"GET") for _ in range(4)]
        self.assertEqual(limits.by_cluster.total.counts, {"alpha": 1})
        first, second, *_ = places
        assert first is not None
        assert second is not None
        first.leave()
        second.seated()
        self.assertEqual(limits.by_cluster.total.counts, {"alpha": 1})
        for place in places:
            assert place is not None
            place.leave()
        self.assertEqual(limits.by_cluster.total.counts, {})
