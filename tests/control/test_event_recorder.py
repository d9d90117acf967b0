"""Tests of `tower.control.event_recorder`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.members import SPEC, by_token
from tests.fakes.tunnels import FakeTunnel
from tower.clusters import Clusters, event_reasons
from tower.clusters.agent_keys import NEVER_CAME, AgentKeys
from tower.clusters.cluster_events import WRITE_PERIOD, ClusterEvents
from tower.clusters.event_reasons import MEMBER_REASONS
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.member_credentials import MemberCredentials
from tower.control.event_recorder import EventRecorder
from tower.trust.vault import Vault, new_key

#: Reasons of Tower's own events.
TOWER_REASONS = {value for value in vars(event_reasons).values() if isinstance(value, str)}


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
        self.assertEqual(self.recorded(), {"Connected": ("Normal", 50), "Lost": ("Warning", 50)})
        self.recorder.stopService()
        self.assertEqual(self.bench.store.version, version + 4)
        written = ClusterEvents(self.bench.store, self.bench.clock).list()
        self.assertEqual([event.count for event in written], [50, 50])
        self.recorder.startService()

    def test_warnings(self) -> None:
        """A reason that warns is a warning, although the check succeeded."""
        self.condition("True", "CredentialFilesInvalid")
        self.condition("True", "ClockSkew", "APIServerReachable")
        self.assertEqual(
            self.recorded(), {"CredentialFilesInvalid": ("Warning", 1), "ClockSkew": ("Warning", 1)}
        )

    def test_conditions(self) -> None:
        """A changed condition is an event with its reason; unknown and implied ones are not."""
        self.condition("Unknown", "NotChecked")
        self.condition("False", "CredentialExpired")
        self.condition("False", "CredentialExpired")
        self.condition("True", "CredentialAccepted")
        self.condition("False", "AgentGone", "Available")
        self.condition("False", "PortUnavailable", "KubernetesAPIServerPortOpen")
        self.assertEqual(
            self.recorded(),
            {
                "CredentialExpired": ("Warning", 1),
                "CredentialAccepted": ("Normal", 1),
                "PortUnavailable": ("Warning", 1),
            },
        )

    def test_reasons_of_agents(self) -> None:
        """Reasons that an agent makes up, or takes from Tower's own events, share two reasons."""
        version = self.bench.store.version
        for number in range(100):
            self.condition("False", f"Reason{number}")
            self.condition("True", "AgentRevoked")
            self.condition("False", "Connected", "ImpersonationAllowed")
        self.condition("False", "Timeout")
        writes = self.bench.store.version - version
        self.assertEqual(
            self.recorded(),
            {
                "MemberCheckFailed": ("Warning", 101),
                "MemberCheckPassed": ("Normal", 100),
                "Timeout": ("Warning", 1),
            },
        )
        self.assertEqual(writes, 202 + 3, "202 changes of the record, 3 events")
        self.assertFalse(MEMBER_REASONS & TOWER_REASONS)

    def test_credentials(self) -> None:
        """The first credential is set, another one replaces it, and a new seal causes no event."""
        path = Path(self.mktemp())
        accesses = MemberCredentials(self.bench.store, Vault(path))
        clusters = Clusters(self.bench.store, None, self.bench.clock, accesses)
        self.addCleanup(clusters.stop)
        self.successResultOf(clusters.add("beta", ssh=SPEC, access=by_token()))
        self.assertEqual(self.recorded(), {"CredentialSet": ("Normal", 1)})
        path.write_text(f"{new_key().decode()}\n{path.read_text()}")
        resealing = MemberCredentials(self.bench.store, Vault(path))
        self.assertEqual(self.successResultOf(resealing.sealed.reseal()), 1)
        beta = clusters.require("beta")
        for access in (by_token(), by_token("another")):
            self.assertNotIn("CredentialChanged", self.recorded())
            operations = resealing.write_operations(beta.uid, "beta", access)
            self.successResultOf(self.bench.store.transact(operations))
        self.assertEqual(
            self.recorded(), {"CredentialSet": ("Normal", 1), "CredentialChanged": ("Normal", 1)}
        )
        self.recorder.stopService()
        self.recorder.startService()
        self.successResultOf(self.bench.store.transact(operations))
        self.bench.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        self.assertEqual(self.recorded()["CredentialChanged"], ("Normal", 1))

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
        enrolled = [event.message for event in self.events.list() if event.reason == "AgentEnrolled"]
        self.assertEqual(
            sorted(enrolled), [f"An agent joined with the key SHA256:{name}." for name in ("a", "b")]
        )
        self.bench.clock.advance(NEVER_CAME)
        self.assertEqual(self.successResultOf(AgentKeys(self.bench.store, self.bench.clock).purge()), 1)
        (expired,) = [event for event in self.events.list() if event.reason == "AgentKeyExpired"]
        self.assertEqual(
            expired.message, "The key SHA256:b was removed: its agent did not connect for 30 days."
        )
        (revoked,) = [event for event in self.events.list() if event.reason == "AgentRevoked"]
        self.assertEqual(revoked.count, 1)
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.assertEqual(self.recorded(), {})

    def test_start(self) -> None:
        """The state at the start is not an event; a stopped recorder records nothing."""
        self.recorder.stopService()
        self.bench.tunnels.add(FakeTunnel("alpha"))
        self.condition("False", "CredentialExpired")
        self.assertEqual(self.recorded(), {})
        self.recorder.startService()
        self.assertNotIn("CredentialExpired", self.recorded())
