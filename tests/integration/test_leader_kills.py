"""Faults of leaders, real programs, and the API server's audit log: no two proxies write at the same time."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.leader_kills import NAMESPACE, Kills, Times
from tests.integration.leader_terms import audited_writes, changes_of_leader, late_writes
from tests.integration.member import member

DEFAULTS = Times(lease=30.0, renew=15.0, retry=5.0)  # s
LIMITS = {"terminate": 3.0, "kill": 36.0}  # s, as docs/host-cluster.md promises


def event(user: str, at: float, resource: str = "secrets", code: int = 200, **changes: Any) -> dict[str, Any]:
    """Return an event of an audit log, of a request that took 10 ms."""
    made = {
        "stage": "ResponseComplete",
        "user": {"username": user},
        "verb": "update",
        "objectRef": {"resource": resource, "name": "x"},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{at:09.6f}Z",
        "stageTimestamp": f"2026-01-01T00:00:{at + 0.01:09.6f}Z",
    }
    return {**made, **changes}


class TermsTests(SynchronousTestCase):
    """The check itself, with logs that the test made."""

    def late(self, *events: dict[str, Any]) -> list[str]:
        """Return the late writes of a and b."""
        return late_writes(audited_writes(events, ["a", "b"]), 5.0, 1.0)

    def test_terms(self) -> None:
        """A leader writes between its own change of the Lease and the next proxy's."""
        log = (
            event("a", 1.0, "leases"),
            event("a", 2.0),
            event("b", 2.5, "leases", 409),
            event("b", 3.0, "leases"),
            event("b", 4.0),
            event("a", 9.0, "leases"),
            event("a", 9.5),
        )
        self.assertEqual(self.late(*log), [])
        writes = audited_writes(log, ["a", "b"])
        self.assertEqual([each.user for each in changes_of_leader(writes)], ["a", "b", "a"])

    def test_late(self) -> None:
        """A write after the first one of the next leader is found; failed writes and reads are not."""
        begin = (event("a", 1.0, "leases"), event("b", 3.0, "leases"))
        self.assertEqual(self.late(*begin, event("a", 3.05)), [])
        log = (*begin, event("b", 3.08))
        (text,) = self.late(*log, event("a", 3.1))
        self.assertIn("a: update secrets x, 0.020 s after the first write of b", text)
        self.assertEqual(len(self.late(event("a", 0.5), *begin)), 1)
        self.assertEqual(self.late(*log, event("a", 3.1, code=409), event("a", 3.2, verb="get")), [])
        self.assertEqual(self.late(*log, event("other", 3.1)), [])

    def test_after_deadline(self) -> None:
        """A write long after the last renewal is found, even if no other proxy leads."""
        begin = event("a", 1.0, "leases")
        self.assertEqual(self.late(begin, event("a", 6.9)), [])
        (text,) = self.late(begin, event("a", 7.5))
        self.assertIn("6.500 s after its last renewal", text)


class KillTests(SynchronousTestCase):
    """Two proxies of one host cluster."""

    def test_kills(self) -> None:
        """The other proxy serves in time with the default times, and only the leader ever wrote."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(rmtree, folder, True)
        host = member()
        self.addCleanup(host.remove_namespace, NAMESPACE)
        self.addCleanup(host.kubectl, "delete", "clusters", "--all", "--wait=false")
        report = Kills(folder, host, DEFAULTS, random.Random(1)).run(2, list(LIMITS))
        self.assertEqual((report.late, report.tracebacks, report.faults), ([], [], 2), str(report))
        self.assertGreaterEqual(report.changes, 3)
        self.assertEqual([user for user, count in report.writes.items() if count < 10], [], str(report))
        for kind, limit in LIMITS.items():
            self.assertLess(max(report.passed[kind]), limit, kind)
        self.assertGreater(min(report.expired), DEFAULTS.lease)
