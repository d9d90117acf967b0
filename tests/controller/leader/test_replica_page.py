"""Tests of `tower.controller.leader.replica_page`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define
from prometheus_client import Metric
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import NOT_DONE_YET
from twisted.web.test.requesthelper import DummyRequest

from tower.controller.leader.replica_page import ReplicaPage
from tower.metrics.families import gauge
from tower.metrics.page import MetricsPage, registry_of


@define
class FixedReplica:
    """A replica in a state that the test chose."""

    problem: str = ""
    role: str = "standby: a holds the Lease kubesphere-system/tower"
    warnings: Sequence[str] = ()


class ReplicaPageTests(SynchronousTestCase):
    """Answers of a replica."""

    def setUp(self) -> None:
        """Begin with a standby."""
        self.replica = FixedReplica()

    def ask(self, path: bytes) -> tuple[int, str]:
        """Return status and body of an answer."""
        request: Any = DummyRequest([])
        request.path = path.partition(b"?")[0]
        request.uri = path
        clock: Any = Clock()
        page = MetricsPage(clock, registry_of(self), clock.seconds)
        body = ReplicaPage(self.replica, page).render_GET(request)
        if body == NOT_DONE_YET:
            body = b"".join(request.written)
        return request.responseCode or 200, body.decode()

    def collect(self) -> Iterable[Metric]:
        """Return a metric."""
        return [gauge("tower_answer", "The answer.", 42.0)]

    def test_standby(self) -> None:
        """A standby is ready, and names its role and the leader on request."""
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\n"))
        text = f"{self.replica.role}\nreadyz check passed\n"
        self.assertEqual(self.ask(b"/readyz?verbose"), (200, text))
        self.assertEqual(self.ask(b"/readyz?verbose=1"), (200, text))

    def test_warning(self) -> None:
        """A problem of the host cluster is shown on request; the replica stays ready."""
        self.replica.warnings = ["namespace x does not exist"]
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\n"))
        text = f"{self.replica.role}\nwarning: namespace x does not exist\nreadyz check passed\n"
        self.assertEqual(self.ask(b"/readyz?verbose"), (200, text))

    def test_problem(self) -> None:
        """A replica with a problem is not ready, but alive."""
        self.replica.problem = "leases is forbidden"
        self.assertEqual(self.ask(b"/readyz"), (503, "not ready: leases is forbidden\n"))
        text = f"{self.replica.role}\n[-]host-cluster failed: leases is forbidden\nreadyz check failed\n"
        self.assertEqual(self.ask(b"/readyz?verbose"), (503, text))
        for path in (b"/livez", b"/healthz"):
            self.assertEqual(self.ask(path), (200, "ok\n"))

    def test_other_path(self) -> None:
        """Other paths do not exist."""
        code, text = self.ask(b"/metric")
        self.assertEqual((code, "/readyz" in text), (404, True))

    def test_metrics(self) -> None:
        """The page of metrics is there for standbys, too."""
        code, text = self.ask(b"/metrics")
        self.assertEqual((code, "tower_answer 42.0" in text), (200, True))
