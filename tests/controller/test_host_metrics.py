"""Tests of `tower.controller.host_metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.controller.host_metrics import HostCollector
from tower.controller.informer import Informer
from tower.controller.work_queue import WorkQueue
from tower.kube.rest.host_link import HostLink
from tower.kube.rest.reflector import Reflector
from tower.kube.rest.well_known import SECRETS, SERVICES


class HostCollectorTests(SynchronousTestCase):
    """Two reflectors and a work queue."""

    def setUp(self) -> None:
        """Start them."""
        self.clock = Clock()
        self.host = FakeHost(self.clock)
        self.link = HostLink.of(self.clock)
        self.queue = WorkQueue(self.clock, self._work, lambda *_: None, 1)
        self.registry = CollectorRegistry()
        self.registry.register(HostCollector(self.link, self.queue))
        for resource in (SECRETS, SERVICES):
            reflector = Reflector(
                self.host,
                resource,
                "default",
                Informer(dict, lambda _: None, lambda: None),
                self.clock,
                group=self.link.reflectors,
            )
            reflector.start()
            self.addCleanup(reflector.stop)

    async def _work(self, key: str) -> None:
        if key == "bad":
            raise ValueError(key)

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return a sample."""
        return self.registry.get_sample_value(name, labels)

    def test_requests(self) -> None:
        """Requests are counted by verb and class of the status, their times by verb, without watches."""
        for verb, code, seconds in (
            ("get", 200, 0.1),
            ("get", 404, 0.2),
            ("get", 0, 15.0),
            ("watch", 200, 9.0),
        ):
            self.link.requests.observe(verb, code, seconds)
        name = "tower_host_requests_total"
        self.assertEqual(
            [self.value(name, verb="get", code_class=each) for each in ("2xx", "4xx", "none", "5xx")],
            [1, 1, 1, None],
        )
        self.assertEqual(self.value(name, verb="watch", code_class="2xx"), 1)
        name = "tower_host_request_duration_seconds"
        self.assertEqual(self.value(f"{name}_count", verb="get"), 3)
        self.assertAlmostEqual(self.value(f"{name}_sum", verb="get") or 0, 15.3)
        self.assertIsNone(self.value(f"{name}_count", verb="watch"))

    def test_followed(self) -> None:
        """Each type is followed or not, and its watches restart for a reason."""
        self.clock.advance(60)
        self.assertEqual(self.value("tower_host_synced", resource="secrets"), 1)
        self.host.end_watches()
        self.host.fail_next(0, verbs=["watch"], plural="services", count=2)
        self.host.end_watches(410)
        self.assertEqual(self.value("tower_host_synced", resource="secrets"), 1)
        self.assertEqual(self.value("tower_host_synced", resource="services"), 0)
        name = "tower_host_watch_restarts_total"
        self.assertEqual(self.value(name, reason="ended"), 2)
        self.assertEqual(self.value(name, reason="expired"), 2)
        self.assertEqual(self.value(name, reason="failed"), 1)

    def test_queue(self) -> None:
        """The queue has client-go's metrics."""
        for key in ("a", "a", "bad"):
            self.queue.add(key)
        self.assertEqual(self.value("workqueue_depth", name="cluster"), 2)
        self.assertEqual(self.value("workqueue_adds_total", name="cluster"), 2)
        self.queue.start()
        self.clock.pump([0] * 5)
        self.assertEqual(self.value("workqueue_depth", name="cluster"), 0)
        self.assertEqual(self.value("workqueue_retries_total", name="cluster"), 1)
        self.assertEqual(self.value("workqueue_work_duration_seconds_count", name="cluster"), 2)
        self.queue.stop()
