"""Tests of `tower.control.event_recorder`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.cluster_events import WRITE_PERIOD, ClusterEvents
from tower.clusters.join_tokens import JoinTokens
from tower.control.event_recorder import EventRecorder


class EventRecorderTests(SynchronousTestCase):
    """The events of one cluster."""

    def setUp(self) -> None:
        """Start with one cluster."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.events = ClusterEvents(self.bench.store, self.bench.clock)
        self.recorder = EventRecorder(self.bench.store, self.bench.clusters, self.bench.tunnels, self.events)
        self.recorder.startService()
        self.addCleanup(self.recorder.stopService)

    def recorded(self) -> dict[str, tuple[str, int]]:
        """Return level and count of each reason."""
        return {event.reason: (event.level, event.count) for event in self.events.list()}

    def condition(self, status: str, reason: str, kind: str = "MemberCredential") -> None:
        """Set a condition."""
        self.successResultOf(
            self.bench.clusters.set_condition("alpha", kind, status, reason, "Text.")  # type: ignore[arg-type]
        )

    def test_connections(self) -> None:
        """The first and the last tunnel count, others and those of unknown clusters do not."""
        first, second = FakeTunnel("alpha"), FakeTunnel("alpha")
        for tunnel in (first, second, FakeTunnel("unknown")):
            self.bench.tunnels.add(tunnel)
        self.assertEqual(self.recorded(), {"Connected": ("Normal", 1)})
        self.bench.tunnels.remove(first)
        self.assertEqual(self.recorded(), {"Connected": ("Normal", 1)})
        self.bench.tunnels.remove(second)
        self.assertEqual(self.recorded(), {"Connected": ("Normal", 1), "Lost": ("Warning", 1)})
        (lost,) = [event for event in self.events.list() if event.reason == "Lost"]
        self.assertIn("alpha", lost.message)

    def test_flapping(self) -> None:
        """A cluster that flaps is counted, with few writes."""
        version = self.bench.store.version
        for _ in range(50):
            tunnel = FakeTunnel("alpha")
            self.bench.tunnels.add(tunnel)
            self.bench.tunnels.remove(tunnel)
        self.assertEqual(self.bench.store.version, version + 2)
        self.bench.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        self.assertEqual(self.recorded(), {"Connected": ("Normal", 50), "Lost": ("Warning", 50)})

    def test_conditions(self) -> None:
        """A changed condition is an event with its reason; unknown and implied ones are not."""
        self.condition("Unknown", "NotChecked")
        self.condition("False", "TokenExpired")
        self.condition("False", "TokenExpired")
        self.condition("True", "Valid")
        self.condition("False", "AgentGone", "Available")
        self.assertEqual(self.recorded(), {"TokenExpired": ("Warning", 1), "Valid": ("Normal", 1)})

    def test_ports(self) -> None:
        """A new cluster's port is an event."""
        self.recorder.stopService()
        ported = Bench(range(6000, 6001))
        events = ClusterEvents(ported.store, ported.clock)
        recorder = EventRecorder(ported.store, ported.clusters, ported.tunnels, events)
        recorder.startService()
        self.addCleanup(recorder.stopService)
        self.successResultOf(ported.clusters.add("beta"))
        (event,) = events.list()
        self.assertEqual((event.reason, event.cluster), ("PortAssigned", "beta"))
        self.assertIn("6000", event.message)
        self.successResultOf(ported.clusters.remove("beta"))
        self.assertEqual(events.list(), [])

    def test_keys(self) -> None:
        """Enrolled and revoked keys are events; those of a removed cluster are not."""
        tokens = JoinTokens(self.bench.store, self.bench.clock)
        token = self.successResultOf(tokens.mint("alpha", uses=2))
        for fingerprint in ("SHA256:a", "SHA256:b"):
            self.successResultOf(tokens.enrol("alpha", token, fingerprint, b"blob"))
        self.successResultOf(tokens.revoke("alpha", "SHA256:a"))
        self.assertEqual(set(self.recorded()), {"AgentEnrolled", "AgentRevoked"})
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.assertEqual(self.recorded(), {})

    def test_start(self) -> None:
        """The state at the start is not an event; a stopped recorder records nothing."""
        self.recorder.stopService()
        self.bench.tunnels.add(FakeTunnel("alpha"))
        self.condition("False", "TokenExpired")
        self.assertEqual(self.recorded(), {})
        self.recorder.startService()
        self.assertNotIn("TokenExpired", self.recorded())
