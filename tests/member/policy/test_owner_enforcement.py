"""Tests of `tower.member.policy.owner_enforcement`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.application.service import MultiService
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.owner_policies import document
from tower.errors import ConfigurationError
from tower.member.policy.owner_enforcement import PERIOD, OwnerEnforcement
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.reactor.interfaces import IReactor
from tower.reactor.signals import Reloads


class OwnerEnforcementTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a file with a policy."""
        self.path = Path(self.mktemp())
        self.path.write_bytes(document({"access": "read-only"}))
        self.options: dict[str, Any] = {
            "name": "alpha",
            "kubeconfig": "agent.kubeconfig",
            "policy-file": str(self.path),
            "policy-config-map": None,
        }
        self.clock = Clock()
        self.reloads = Reloads()

    def enforcement(self) -> OwnerEnforcement:
        """Return the enforcement of the file's policy."""
        found = OwnerEnforcement.of(self.options, cast(IReactor, self.clock), self.reloads, {})
        assert found is not None
        return found

    def test_none(self) -> None:
        """Without the options there is no policy."""
        self.options["policy-file"] = None
        self.assertIsNone(OwnerEnforcement.of(self.options, cast(IReactor, self.clock), self.reloads, {}))

    def test_file(self) -> None:
        """The file is followed every second; unusable content keeps the policy and is a problem."""
        owner = self.enforcement()
        parent = MultiService()
        for each in owner.services:
            each.setServiceParent(parent)
        parent.startService()
        self.addCleanup(parent.stopService)
        self.assertEqual(owner.gate.policy, OwnerPolicy((OwnerRule(access="read-only"),)))
        self.path.write_bytes(document())
        self.clock.advance(PERIOD)
        self.assertEqual(owner.gate.policy, OwnerPolicy())
        self.path.write_text("kind: [")
        self.clock.advance(PERIOD)
        self.assertIn(f"--policy-file {self.path}: is not YAML", owner.problem)
        self.assertEqual((owner.gate.policy, owner.failure), (OwnerPolicy(), ""))
        self.path.unlink()
        self.clock.advance(PERIOD)
        self.assertIn("no such file or directory", owner.problem)
        self.path.write_bytes(document({}))
        self.reloads.run()
        self.assertEqual((owner.gate.policy, owner.problem), (OwnerPolicy((OwnerRule(),)), ""))

    def test_unusable_at_the_start(self) -> None:
        """A file that cannot be used at the start is an error that names it."""
        self.path.write_text("kind: [")
        error = self.assertRaises(ConfigurationError, self.enforcement)
        self.assertIn(f"--policy-file {self.path}: is not YAML", str(error))
