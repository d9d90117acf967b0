"""Tests of `tower.clusters.host.restored_status`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.host.restored_status import restored_status

NOW = 1_800_000_000.0


class RestoredStatusTests(SynchronousTestCase):
    """The conditions of a restored cluster."""

    def test_true(self) -> None:
        """True conditions of Tower become unknown, with a message and the time; fields of others stay."""
        status = {
            "lastSeen": "2026-11-23T10:00:00Z",
            "conditions": [
                {"type": "Available", "status": "True", "reason": "Ready", "observedGeneration": 3},
                {"type": "AgentAvailable", "status": "False", "reason": "AgentDisconnected"},
                {"type": "KSCoreReady", "status": "True"},
                "malformed",
            ],
        }
        found = restored_status(status, {"Available", "AgentAvailable"}, NOW)
        self.assertEqual(
            found["conditions"][0],
            {
                "type": "Available",
                "status": "Unknown",
                "reason": "NotChecked",
                "message": "Restored from a backup: not known until a proxy serves the cluster.",
                "observedGeneration": 3,
                "lastTransitionTime": "2027-01-15T08:00:00Z",
                "lastUpdateTime": "2027-01-15T08:00:00Z",
            },
        )
        self.assertEqual(found["conditions"][1:], status["conditions"][1:])
        self.assertEqual(found["lastSeen"], status["lastSeen"])

    def test_malformed(self) -> None:
        """A status without a list of conditions stays."""
        for status in ({}, {"conditions": None, "nodeCount": 3}):
            self.assertEqual(restored_status(status, {"Available"}, NOW), status)
