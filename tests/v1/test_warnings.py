"""Tests of the warnings about old agents."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import fail
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, eventAsText, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tests.store.store_contract import HeldStore
from tower.clusters import Clusters
from tower.store.records import StoreFailed
from tower.tunnels import Tunnels
from tower.v1.warnings import AGENT_PROTOCOL, V1Warnings

#: 2026-09-21T14:13:20Z, s.
NOW = 1_790_000_000.0


class OldTunnel(FakeTunnel):
    """A tunnel that an old agent opened."""

    def __init__(
        self,
        name: str,
        credential_expires: float | None = None,
        *,
        verified_tls: bool = False,
        sent_credential: bool = True,
    ) -> None:
        super().__init__(name, "v1:0123456789ab", protocol="kubesphere-v1")
        self.credential_expires = credential_expires
        self.verified_tls, self.sent_credential = verified_tls, sent_credential


class FailingStore(HeldStore):
    """A store that cannot write while it is *full*."""

    full = False
    tries = 0

    def transact(self, operations: Any) -> Any:
        """Write, or fail as with a full disk."""
        self.tries += 1
        if self.full:
            return fail(StoreFailed("the disk is full"))
        return super().transact(operations)


class V1WarningsTests(SynchronousTestCase):
    """Each test has the cluster alpha."""

    def setUp(self) -> None:
        """Start with one cluster, and record the log."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = FailingStore()
        self.clusters = Clusters(self.store, None, self.clock)
        self.addCleanup(self.clusters.stop)
        self.successResultOf(self.clusters.add("alpha"))
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        self.events: list[dict[str, Any]] = []
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.notices = self.started()

    def started(self, **options: bool) -> V1Warnings:
        """Return a service that runs."""
        notices = V1Warnings(self.clusters, self.tunnels, self.clock.seconds, **options)
        notices.startService()
        self.addCleanup(notices.stopService)
        return notices

    def condition(self) -> tuple[str, str, str] | None:
        """Return status, reason and message."""
        found = self.clusters.require("alpha").condition(AGENT_PROTOCOL)
        return None if found is None else (found.status, found.reason, found.message)

    def message(self) -> str:
        """Return the message, which must be there."""
        found = self.condition()
        assert found is not None
        return found[2]

    def logged(self, level: LogLevel) -> list[str]:
        """Return what was logged at *level*, as text."""
        return [
            event["log_format"].format(**event) for event in self.events if event.get("log_level") is level
        ]

    def test_before_any_agent(self) -> None:
        """A cluster that never had an agent does not get the condition."""
        self.assertIsNone(self.condition())

    def test_old_agent(self) -> None:
        """One old agent makes it false, and the message names what is not secure."""
        self.tunnels.add(FakeTunnel("alpha"))
        self.tunnels.add(OldTunnel("alpha"))
        found = self.condition()
        assert found is not None
        self.assertEqual(found[:2], ("False", "KubeSphereV1"))
        for words in ("does not verify this proxy", "sends its credentials", "only a token authenticates it"):
            self.assertIn(words, found[2])
        self.assertNotIn("--v1", found[2])

    def test_own_agents(self) -> None:
        """It is true as soon as all agents are our own."""
        old = OldTunnel("alpha")
        self.tunnels.add(old)
        self.tunnels.add(FakeTunnel("alpha"))
        self.clock.advance(5)
        self.tunnels.remove(old)
        found = self.clusters.require("alpha").condition(AGENT_PROTOCOL)
        assert found is not None
        self.assertEqual((found.status, found.reason), ("True", "TowerV2"))
        self.assertEqual(found.last_transition, NOW + 5)

    def test_kept(self) -> None:
        """Without agents the condition stays unchanged, and a reconnect causes no write."""
        old = OldTunnel("alpha", NOW + 60)
        self.tunnels.add(old)
        before = self.store.version
        self.tunnels.remove(old)
        self.clock.advance(30)
        self.tunnels.add(OldTunnel("alpha", NOW + 60))
        self.notices.remind()
        self.assertEqual(self.store.version, before)

    def test_credential(self) -> None:
        """The condition has the first expiry, and later that the credential has expired."""
        self.tunnels.add(OldTunnel("alpha"))
        self.assertNotIn("expires at", self.message())
        self.tunnels.add(OldTunnel("alpha", NOW + 3600))
        self.tunnels.add(OldTunnel("alpha", NOW + 60))
        self.assertIn("expires at 2026-09-21T14:14:20Z", self.message())
        self.assertIn("restart the agent before that", self.message())
        self.notices.remind()
        self.assertEqual(len(self.logged(LogLevel.warn)), 3)
        self.clock.advance(60)
        self.notices.remind()
        self.assertIn("expired at 2026-09-21T14:14:20Z: restart the agent.", self.message())
        self.assertIn("restart the agents of alpha", self.logged(LogLevel.warn)[-1])

    def test_many_credentials(self) -> None:
        """The line about credentials that have ended names some clusters and counts the others."""
        for number in range(25):
            self.tunnels.add(OldTunnel(f"c{number:02}", NOW - 1))
        self.notices.remind()
        self.assertIn("c09 and 15 more", self.logged(LogLevel.warn)[-1])

    def test_open(self) -> None:
        """Options that were set for a migration are in the condition, and logged repeatedly."""
        self.notices.stopService()
        notices = self.started(impersonate=False, open_ports=True)
        self.tunnels.add(OldTunnel("alpha"))
        for flag in ("--v1-no-impersonation", "--v1-open-ports"):
            self.assertIn(flag, self.message())
        for _ in range(2):
            notices.remind()
        said = self.logged(LogLevel.critical)
        self.assertEqual([sum(flag in line for line in said) for flag in ("-no-impers", "-open-p")], [2, 2])

    def test_silent_without(self) -> None:
        """Without those options the reminder logs nothing."""
        self.tunnels.add(OldTunnel("alpha"))
        self.notices.remind()
        self.assertEqual(self.logged(LogLevel.critical), [])

    def test_warned_once(self) -> None:
        """Each old agent that connects is warned of once; our own are not."""
        old = OldTunnel("alpha")
        self.tunnels.add(old)
        self.tunnels.add(FakeTunnel("alpha"))
        old.on_change()
        self.assertEqual(len(self.logged(LogLevel.warn)), 1)
        self.tunnels.remove(old)
        self.tunnels.add(OldTunnel("alpha"))
        one, two = self.logged(LogLevel.warn)
        self.assertEqual(one, two)
        for words in ("alpha", "192.0.2.1:4711", "v1:0123456789ab", "without verifying this proxy"):
            self.assertIn(words, one)

    def test_tls(self) -> None:
        """An agent that connected by TLS has verified the certificate; all of them must have."""
        self.tunnels.add(OldTunnel("alpha", verified_tls=True))
        (line,) = self.logged(LogLevel.warn)
        self.assertIn("has verified this proxy's TLS certificate, not its key, and sent", line)
        self.assertNotIn("without verifying", line)
        self.assertIn("verifies this proxy's certificate, but not its key", self.message())
        self.tunnels.add(OldTunnel("alpha"))
        self.assertIn("does not verify this proxy's key", self.message())

    def test_no_credential(self) -> None:
        """An agent that sent no credential is not logged as having sent one; the condition names the gap."""
        for verified_tls, words in ((False, "without verifying"), (True, "has verified this proxy's TLS")):
            old = OldTunnel("alpha", verified_tls=verified_tls, sent_credential=False)
            self.tunnels.add(old)
            line = self.logged(LogLevel.warn)[-1]
            self.assertIn("it has sent no credential", line)
            self.assertIn(words, line)
            self.assertNotIn("the cluster's credential", line)
            self.assertIn("It sent no credential for the API server", self.message())
            self.tunnels.remove(old)
        self.tunnels.add(OldTunnel("alpha"))
        self.assertNotIn("no credential", self.message())

    def test_changed_while_written(self) -> None:
        """Changes during a slow write are written after it, and only their final result."""
        self.tunnels.add(FakeTunnel("alpha"))
        before = self.store.tries
        self.store.holding = True
        for _ in range(5):
            old = OldTunnel("alpha")
            self.tunnels.add(old)
            self.tunnels.remove(old)
        self.assertEqual(len(self.store.held), 1)
        self.store.release()
        self.assertEqual(self.store.tries, before + 2)
        found = self.condition()
        assert found is not None
        self.assertEqual(found[:2], ("True", "TowerV2"))

    def test_not_written(self) -> None:
        """A full disk has one line without traceback for each try; the next reminder tries again."""
        self.store.full = True
        before = self.store.tries
        with capturedLogs() as events:
            self.tunnels.add(OldTunnel("alpha"))
        self.assertEqual(self.store.tries, before + 1)
        lines = [eventAsText(event, includeTimestamp=False, includeSystem=False) for event in events]
        self.assertEqual(len([line for line in lines if "cannot write the condition of alpha: " in line]), 1)
        self.assertNotIn("Traceback", "".join(lines))
        self.store.full = False
        self.notices.remind()
        self.assertIsNotNone(self.condition())

    def test_removed(self) -> None:
        """A cluster that is deleted meanwhile causes no error; a new one of its name starts again."""
        self.store.holding = True
        old = OldTunnel("alpha")
        removal = self.clusters.remove("alpha")
        self.tunnels.add(old)
        self.store.release()
        self.store.holding = False
        self.successResultOf(removal)
        self.tunnels.remove(old)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.successResultOf(self.clusters.add("alpha"))
        self.tunnels.add(OldTunnel("alpha"))
        self.assertEqual((self.condition() or ("",))[0], "False")

    def test_restarted(self) -> None:
        """A service that starts late handles existing tunnels; a stopped one writes nothing."""
        self.notices.stopService()
        self.tunnels.add(OldTunnel("alpha"))
        self.assertIsNone(self.condition())
        self.notices.startService()
        self.assertEqual((self.condition() or ("",))[0], "False")
