"""The webhook of audit events, with real TLS: killed, slow, refusing; no event is lost."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

from tests.integration import harness
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, NotInTimeError, wait_for
from tests.integration.review_webhook import ReviewWebhook

CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"
METRIC = re.compile(r"^(apiserver_audit_\w+|tower_audit_\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)
MEMORY = 60 * 1024 * 1024  # B, more than 20,000 events


class EventReceiver(ReviewWebhook):
    """A webhook that keeps the events; `faults` has its next answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.events: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Take no more connections, and answer none of the open ones."""
        self.faults += [lambda _: None] * 10_000
        self.stop()

    def _answer(self, path: str, review: dict[str, Any]) -> tuple[int, bytes] | None:
        with self._lock:
            fault = self.faults.pop(0) if self.faults else None
        if fault is not None and (found := fault(review)) != (200, b""):
            return found
        assert (review["kind"], review["apiVersion"]) == ("EventList", "audit.k8s.io/v1")
        with self._lock:
            self.events += review["items"]
        return 200, b""


class WebhookTestCase(harness.TowerTestCase):
    """A proxy with a webhook and a log."""

    options: tuple[str, ...] = ("--audit-webhook-batch-max-wait=200ms", "--audit-webhook-batch-max-size=50")

    def new_tower(self) -> harness.Tower:
        """Return a Tower that posts its events soon."""
        tower = super().new_tower()
        self.hook = EventReceiver(self.folder)
        self.addCleanup(self.hook.stop)
        self.metrics, self.place = free_port(), self.folder / "audit.log"
        self.asked = 0
        tower.proxy = tower.proxy_program(
            f"--audit-webhook-config-file={self.hook.kubeconfig}",
            f"--audit-log-path={self.place}",
            f"--metrics-port={self.metrics}",
            "--audit-webhook-initial-backoff=300ms",
            *self.options,
        )
        return tower

    def counters(self) -> dict[str, float]:
        """Return the metrics of the audit."""
        connection = http.client.HTTPConnection(LOOPBACK, self.metrics, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return {name + labels: float(value) for name, labels, value in METRIC.findall(text)}

    def ask(self, number: int) -> float:
        """Send requests on one connection; return the longest time of one, s."""
        admin = self.tower.admin()
        connection = admin.connect()
        longest = 0.0
        for _ in range(number):
            began = time.monotonic()
            response = admin.ask(connection, CLUSTERS)
            response.read()
            self.assertEqual(response.status, 200)
            longest = max(longest, time.monotonic() - began)
        connection.close()
        self.asked += number
        return longest

    def all_events(self) -> None:
        """Wait until the webhook has all events of the log, each once: two of each request."""

        def is_complete() -> bool:  # events follow their answers
            return len(self.logged()) >= 2 * self.asked and self.posted() == self.logged()

        try:
            wait_for("the events", is_complete, 60, 0.3)
        except NotInTimeError:
            self.assertEqual(self.posted(), self.logged())
            raise
        wait_for("no events", lambda: self.counters()["tower_audit_webhook_waiting_events"] == 0)

    def posted(self) -> list[tuple[str, str]]:
        """Return the events of the webhook, in order."""
        return sorted(map(_key, self.hook.events))

    def logged(self) -> list[tuple[str, str]]:
        """Return the events of the log, in order."""
        lines = self.place.read_bytes().splitlines(keepends=True)
        return sorted(_key(json.loads(line)) for line in lines if line.endswith(b"\n"))


class BatchTests(WebhookTestCase):
    """The mode batch."""

    def test_faults(self) -> None:
        """Events of a time in which the webhook refuses, breaks off, hangs or is dead arrive later."""
        self.ask(20)
        self.all_events()

        def hanging(_: dict[str, Any]) -> tuple[int, bytes]:
            time.sleep(2)
            return 200, b""

        refusals = [
            lambda _: (503, b"busy"),
            lambda _: None,
            lambda _: (429, b""),
            hanging,
            lambda _: (500, b""),
        ]
        self.hook.faults += refusals
        self.assertLess(self.ask(100), 5)
        self.all_events()
        self.assertEqual(self.hook.faults, [])
        self.assertIn("the audit webhook failed: ", self.tower.proxy.output())
        self.hook.faults += [lambda _: None] * 1000  # dead for everyone
        self.ask(100)
        wait_for("waiting events", lambda: self.counters()["tower_audit_webhook_waiting_events"] >= 200)
        self.hook.faults.clear()
        self.all_events()
        self.assertEqual(self.counters()['apiserver_audit_error_total{plugin="webhook"}'], 0)
        self.assertIn("the audit webhook answers again", self.tower.proxy.output())

    def test_killed(self) -> None:
        """While the webhook is dead, requests are served, and a stop of the proxy is not delayed."""
        self.ask(10)
        self.hook.kill()
        self.assertLess(self.ask(100), 5)
        began = time.monotonic()
        self.tower.stop()
        self.assertLess(time.monotonic() - began, 15)
        self.assertIn("events are lost", self.tower.proxy.output())


class FullQueueTests(WebhookTestCase):
    """A queue that is soon full."""

    options = (
        "--audit-webhook-batch-buffer-size=100",
        "--audit-webhook-batch-max-size=50",
        "--audit-webhook-batch-max-wait=100ms",
    )

    def test_faults(self) -> None:
        """Further events are dropped and counted; the log has them."""
        self.hook.faults += [lambda _: (503, b"")] * 100_000
        before = self.tower.proxy.memory()
        self.ask(200)
        # the last events follow their answers
        lost = 'apiserver_audit_error_total{plugin="webhook"}'
        wait_for("lost events", lambda: self.counters()[lost] >= 300)
        found = self.counters()
        self.assertEqual(found["tower_audit_webhook_waiting_events"], 100)
        self.assertEqual(found['apiserver_audit_error_total{plugin="log"}'], 0)
        self.assertIn("audit webhook: events lost so far: 1;", self.tower.proxy.output())
        self.assertLess(self.tower.proxy.memory() - before, MEMORY)


class StrictTests(WebhookTestCase):
    """The mode blocking-strict."""

    options = ("--audit-webhook-mode=blocking-strict",)

    def test_faults(self) -> None:
        """A request fails if the webhook does not take its event, and succeeds if it does."""
        self.ask(5)
        self.all_events()
        admin = self.tower.admin()
        self.hook.faults += [lambda _: (503, b"")] * 2
        answer = admin.request("GET", CLUSTERS)
        self.assertEqual(answer.status, 500)
        self.assertIn(b"failed to store audit event", answer.body)
        wait_for("a request", lambda: admin.request("GET", CLUSTERS).status == 200, 30, 0.2)
        self.assertGreaterEqual(self.counters()["apiserver_audit_requests_rejected_total"], 1)
        self.all_events()

    def test_killed(self) -> None:
        """A dead webhook ends the service, as requested."""
        self.hook.kill()
        self.assertEqual(self.tower.admin().request("GET", CLUSTERS).status, 500)


def _key(event: dict[str, Any]) -> tuple[str, str]:
    return event["auditID"], event["stage"]
