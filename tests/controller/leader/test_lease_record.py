"""Tests of `tower.controller.leader.lease_record`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.controller.leader.lease_record import LeaseRecord, new_lease

NOW = 1_790_000_010.5
MOMENT = "2026-09-21T14:13:30.500000Z"


class LeaseRecordTests(SynchronousTestCase):
    """Records as client-go writes them."""

    def test_first(self) -> None:
        """The first leader of a Lease does not count as a change."""
        record = LeaseRecord.of(new_lease("kubesphere-system", "tower")).taken("a", 30.0, NOW)
        self.assertEqual(
            record.written(new_lease("kubesphere-system", "tower")),
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "tower", "namespace": "kubesphere-system"},
                "spec": {
                    "holderIdentity": "a",
                    "leaseDurationSeconds": 30,
                    "acquireTime": MOMENT,
                    "renewTime": MOMENT,
                    "leaseTransitions": 0,
                },
            },
        )

    def test_renewal(self) -> None:
        """A renewal changes only the time of the renewal."""
        record = LeaseRecord("a", 30, "before", "before", 3).taken("a", 30.0, NOW)
        self.assertEqual(record, LeaseRecord("a", 30, "before", MOMENT, 3))

    def test_change(self) -> None:
        """Another leader acquires it now, and counts as a change."""
        record = LeaseRecord("a", 30, "before", "before", 3).taken("b", 30.0, NOW)
        self.assertEqual(record, LeaseRecord("b", 30, MOMENT, MOMENT, 4))

    def test_release(self) -> None:
        """A released Lease has no holder, and its next one counts as a change."""
        released = LeaseRecord("a", 30, "before", "before", 3).released(NOW)
        self.assertEqual(released, LeaseRecord("", 1, MOMENT, MOMENT, 3))
        self.assertEqual(released.taken("a", 30.0, NOW + 1).transitions, 4)

    def test_short_duration(self) -> None:
        """Durations are whole seconds, rounded up, as candidates wait for them."""
        self.assertEqual([LeaseRecord().taken("a", it, NOW).duration for it in (0.2, 2.5)], [1, 3])

    def test_same_moment(self) -> None:
        """Each renewal is a change that candidates notice, also when the clock was set back."""
        record = LeaseRecord().taken("a", 30.0, NOW)
        self.assertNotEqual(record.taken("a", 30.0, NOW), record)

    def test_foreign_fields(self) -> None:
        """Fields of others stay, and invalid or missing ones have defaults."""
        lease = {"metadata": {"name": "tower"}, "spec": {"strategy": "OldestEmulationVersion"}}
        spec = LeaseRecord.of(lease).taken("a", 30.0, NOW).written(lease)["spec"]
        self.assertEqual(spec["strategy"], "OldestEmulationVersion")
        odd = {"spec": {"holderIdentity": None, "leaseDurationSeconds": "30", "renewTime": 5}}
        self.assertEqual([LeaseRecord.of(it) for it in (odd, {}, {"spec": None})], [LeaseRecord()] * 3)
