"""Tests of `tower.member.policy.policy_map`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.owner_policies import document
from tests.kube.rest.fake_host import FakeHost
from tower.kube.rest.reflector import FIRST_DELAY
from tower.kube.rest.well_known import CONFIG_MAPS
from tower.member.object_name import ObjectName
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.member.policy.policy_map import PolicyMap

NAME = ObjectName("default", "policy")


class PolicyMapTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create an API server without the ConfigMap, and follow it."""
        self.clock = Clock()
        self.host = FakeHost(self.clock)
        self.used: list[OwnerPolicy] = []
        self.closed = 0
        self.map = PolicyMap(self.host, NAME, self.clock, self.used.append, self.close)

    def close(self) -> None:
        """Be the client's `close`."""
        self.closed += 1

    def start(self) -> None:
        """Start the service."""
        self.map.startService()
        self.addCleanup(lambda: self.map.running and self.map.stopService())

    def put(self, name: str = "policy", **data: Any) -> None:
        """Store a ConfigMap."""
        entries = {key.replace("_", "."): value for key, value in data.items()}
        self.host.put(CONFIG_MAPS, {"metadata": {"name": name}, "data": entries}, "default")

    def test_life(self) -> None:
        """Each valid content is used; the last one stays in use while there is none."""
        self.assertIn("not read yet", self.map.problem)
        with capturedLogs() as logs:
            self.start()
        self.assertEqual(
            self.map.problem,
            "ConfigMap default/policy: does not exist: create it, with the entry policy.yaml",
        )
        errors = [log for log in logs if log["log_level"] is LogLevel.error]
        self.assertEqual([log["stays"] for log in errors], ["all requests are rejected"])
        self.put("other", policy_yaml=document().decode())
        self.assertEqual(self.used, [])
        self.put(policy_yaml=document({"access": "read-only"}).decode())
        self.assertEqual(self.used, [OwnerPolicy((OwnerRule(access="read-only"),))])
        self.assertEqual(self.map.problem, "")
        self.put(policy_yaml=document().decode())
        self.assertEqual(len(self.used), 2)
        with capturedLogs() as logs:
            for _ in range(2):
                self.put(policy_yaml="kind: [")
        self.assertEqual([log["stays"] for log in logs if "stays" in log], ["the last policy stays in use"])
        self.assertIn("policy.yaml: is not YAML", self.map.problem)
        self.put(other="x")
        self.assertIn("has no entry policy.yaml", self.map.problem)
        self.host.remove(CONFIG_MAPS, "policy", "default")
        self.assertIn("was deleted", self.map.problem)
        self.assertEqual(len(self.used), 2)

    def test_rights(self) -> None:
        """Missing rights are a problem with the cure; the ConfigMap is read when they are granted."""
        self.put(policy_yaml=document().decode())
        self.host.fail_next(403, "configmaps is forbidden", verbs=("list",))
        self.start()
        self.assertIn("grant get, list and watch", self.map.problem)
        self.clock.advance(2 * FIRST_DELAY)
        self.assertEqual((self.map.problem, len(self.used)), ("", 1))

    def test_stop(self) -> None:
        """A stop ends the watch and closes the client."""
        self.start()
        self.assertEqual(len(self.host.watches), 1)
        self.map.stopService()
        self.assertEqual((self.host.watches, self.closed), ([], 1))
