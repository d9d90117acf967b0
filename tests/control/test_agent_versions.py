"""Tests of `tower.control.agent_versions`."""

from __future__ import annotations

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.tunnels import FakeTunnel
from tower.control.agent_versions import CONDITION, AgentVersions


class AgentVersionsTests(SynchronousTestCase):
    """A proxy of version 1.5.0 with the cluster alpha."""

    def setUp(self) -> None:
        """Start it."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.versions = AgentVersions(self.bench.clock, self.bench.clusters, self.bench.tunnels, "1.5.0")
        self.versions.startService()
        self.addCleanup(self.versions.stopService)

    def connect(self, version: str, protocol: str = "tower-v2") -> FakeTunnel:
        """Connect an agent."""
        tunnel = FakeTunnel("alpha", version=version, protocol=protocol)
        self.bench.tunnels.add(tunnel)
        return tunnel

    def status(self) -> str | None:
        """Return the status of the condition."""
        condition = self.bench.clusters.require("alpha").condition(CONDITION)
        return None if condition is None else condition.status

    def test_supported(self) -> None:
        """A supported agent causes no condition."""
        self.connect("1.4.0")
        self.assertIsNone(self.status())

    def test_too_old(self) -> None:
        """An agent that is too old is served, logged and shown, until it is upgraded."""
        with capturedLogs() as events:
            old = self.connect("1.2.0")
        self.assertEqual(self.status(), "False")
        self.assertIn("upgrade the agent", next(each["problem"] for each in events if "problem" in each))
        self.assertEqual(old.closings, [])
        self.bench.tunnels.remove(old)
        self.assertEqual(self.status(), "False")
        self.connect("1.5.1")
        self.assertEqual(self.status(), "True")

    def test_one_of_several(self) -> None:
        """One such agent of several is enough."""
        self.connect("1.5.0")
        self.connect("1.9.0")
        self.assertEqual(self.status(), "False")

    def test_other_protocols(self) -> None:
        """Versions of kubesphere-v1 agents are not compared."""
        self.connect("0.1.0", "kubesphere-v1")
        self.assertIsNone(self.status())

    def test_flapping(self) -> None:
        """An agent that changes its version all the time causes few writes, and few lines of the log."""
        before = self.bench.store.version
        with capturedLogs() as events:
            for _ in range(50):
                for version in ("1.2.0", "1.5.0"):
                    self.bench.tunnels.remove(self.connect(version))
        self.assertLess(self.bench.store.version - before, 10)
        self.assertIn(len([each for each in events if "problem" in each]), range(1, 10))

    def test_warned_once(self) -> None:
        """The warning is not repeated while the problem stays, although other parts are written."""
        with capturedLogs() as events:
            for _ in range(5):
                self.connect("1.2.0")
                self.bench.clock.advance(60)
            self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.assertEqual(len([each for each in events if "problem" in each]), 1)

    def test_removed(self) -> None:
        """A removed cluster is forgotten; one that is added under its name is warned about."""
        self.bench.tunnels.remove(self.connect("1.2.0"))
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.assertEqual((self.versions._warned, self.versions._writer._recent), ({}, {}))
        self.successResultOf(self.bench.clusters.add("alpha"))
        with capturedLogs() as events:
            self.connect("1.2.0")
        self.assertEqual(len([each for each in events if "problem" in each]), 1)
