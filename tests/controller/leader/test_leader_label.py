"""Tests of `tower.controller.leader.leader_label`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.fenced_host import FencedHost
from tower.controller.leader.leader_label import LABEL, LeaderLabel
from tower.kube.client import APIError
from tower.kube.rest.well_known import PODS

NAMESPACE = "kubesphere-system"


class LeaderLabelTests(SynchronousTestCase):
    """Two pods of one installation, and one of another in the same namespace."""

    def setUp(self) -> None:
        """Make the pods; the others lead."""
        self.host = FakeHost()
        for name, instance, leads in (("a", "one", False), ("b", "one", True), ("c", "two", True)):
            labels = {"app.kubernetes.io/instance": instance, **({LABEL: "true"} if leads else {})}
            self.host.put(PODS, {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}})
        self.label = LeaderLabel(self.host, NAMESPACE, "a", self.host)

    def leaders(self) -> list[str]:
        """Return the names of the pods with the label."""
        pods = self.host.objects(PODS, NAMESPACE)
        return [each["metadata"]["name"] for each in pods if LABEL in (each["metadata"].get("labels") or {})]

    def test_move(self) -> None:
        """The label moves to the own pod; other installations keep theirs."""
        self.successResultOf(Deferred.fromCoroutine(self.label.set()))
        self.assertEqual(self.leaders(), ["a", "c"])

    def test_unchanged(self) -> None:
        """A label that is right is only looked at."""
        self.successResultOf(Deferred.fromCoroutine(self.label.set()))
        self.host.requests.clear()
        self.successResultOf(Deferred.fromCoroutine(self.label.set()))
        self.assertEqual(self.host.requests, [("list", "pods", "")])

    def test_remove(self) -> None:
        """The label is removed from the own pod only."""
        self.successResultOf(Deferred.fromCoroutine(self.label.set()))
        self.successResultOf(Deferred.fromCoroutine(self.label.remove()))
        self.assertEqual(self.leaders(), ["c"])

    def test_removed_pod(self) -> None:
        """A pod that is removed at the same moment does not matter."""
        self.host.fail_next(404, verbs=["patch"])
        self.successResultOf(Deferred.fromCoroutine(self.label.set()))
        self.assertIn("a", self.leaders())

    def test_rejected(self) -> None:
        """A missing right is logged once; the label is set once it exists."""
        self.host.fail_next(403, "pods is forbidden", count=2)
        with capturedLogs() as events:
            for _ in range(3):
                self.successResultOf(Deferred.fromCoroutine(self.label.try_to_set()))
        self.assertEqual(len(events), 1)
        self.assertIn("pods is forbidden", formatEvent(events[0]))
        self.assertIn("a", self.leaders())

    def test_without_instance(self) -> None:
        """Without the label of an installation, all pods of the namespace are one."""
        self.host.put(PODS, {"metadata": {"name": "a", "namespace": NAMESPACE}})
        self.successResultOf(Deferred.fromCoroutine(self.label.set()))
        self.assertEqual(self.leaders(), ["a"])

    def test_missing_pod(self) -> None:
        """A wrong name of the own pod is an error."""
        label = LeaderLabel(self.host, NAMESPACE, "x", self.host)
        self.failureResultOf(Deferred.fromCoroutine(label.set()), APIError)

    def test_clear(self) -> None:
        """The label that a killed process left is removed without leadership; errors are logged once."""
        label = LeaderLabel(FencedHost(self.host, lambda: False), NAMESPACE, "b", self.host)
        self.host.fail_next(403, "pods is forbidden", count=2, verbs=["patch"])
        with capturedLogs() as events:
            for _ in range(2):
                self.successResultOf(Deferred.fromCoroutine(label.try_to_clear()))
        self.assertEqual((self.leaders(), len(events)), (["b", "c"], 1))
        self.assertIn("pods is forbidden", formatEvent(events[0]))
        self.successResultOf(Deferred.fromCoroutine(label.try_to_clear()))
        self.assertEqual(self.leaders(), ["c"])
        self.host.requests.clear()
        self.successResultOf(Deferred.fromCoroutine(label.try_to_clear()))
        self.assertEqual(self.host.requests, [])
