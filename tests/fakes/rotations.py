"""A proxy's keys, records and tunnels in memory, whose rotations can be restarted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import NOW
from tower.clusters.records import Records
from tower.conch.connection.global_requests import RequestRefused
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.rotation.assembly import ProxyKeys, rotations_of
from tower.rotation.rotation import Rotation
from tower.rotation.tls_cert_file import GivenCertificate
from tower.store import MemoryStore
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault
from tower.tunnels import Tunnels
from tower.v2.hello import Announcement


class AnnouncedTunnel(SSHTunnel):
    """The tunnel of an agent that answers announcements when the test lets it.

    :ivar announcements: that were sent, oldest first.
    """

    def __init__(self, name: str, fingerprint: str, version: str = "1.0.0") -> None:
        self.name, self.fingerprint, self.version, self.peer = name, fingerprint, version, "192.0.2.1:1"
        self.draining, self.member_status, self.since = False, None, NOW
        self.announcements: list[Announcement] = []
        self._answers: list[Deferred[bytes]] = []

    def request(self, name: bytes, data: bytes) -> Deferred[bytes]:
        """Record an announcement."""
        assert name == b"announce@tower.kubesphere.io", name
        self.announcements.append(Announcement.decode(data))
        answer: Deferred[bytes] = Deferred()
        self._answers.append(answer)
        return answer

    def confirm(self) -> None:
        """Answer all announcements with success."""
        while self._answers:
            self._answers.pop(0).callback(b"")

    def refuse(self) -> None:
        """Refuse all announcements, as an agent of an earlier version."""
        while self._answers:
            self._answers.pop(0).errback(RequestRefused("unknown"))


class RotationTestCase(SynchronousTestCase):
    """A test with the rotations of a proxy, which has the clusters alpha and beta.

    :ivar given: certificate of ``--tls-cert-file``.
    :ivar renewals: how often the administrator's kubeconfig was written.
    """

    given: GivenCertificate | None = None

    def setUp(self) -> None:
        """Start with new keys."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.state = StateDir(Path(self.mktemp()))
        self.store = MemoryStore()
        self.renewals = 0
        self.start()
        for name in ("alpha", "beta"):
            self.successResultOf(self.clusters.add(name))

    def start(self) -> None:
        """Start the proxy's parts from the state directory and the store."""
        clock: Any = self.clock
        self.vault = Vault(self.state.path / "secrets.key", clock.seconds)
        records = Records.of(self.store, self.vault, None, clock, 86400.0)
        self.addCleanup(records.stop)
        self.member_credentials, self.clusters = records.member_credentials, records.clusters
        self.credentials, self.tokens = records.credentials, records.tokens
        self.v1_tokens, self.agent_keys = records.v1_tokens, records.agent_keys
        self.tunnels = Tunnels(clock, clock.seconds)
        self.keys = ProxyKeys.load(self.state, None, clock.seconds())
        self.serving = ServingCertificate(
            self.state, self.keys.authority.current, self.keys.users, ["tower.example"], clock.seconds
        )
        self.rotations = rotations_of(
            self.keys,
            self.serving,
            records,
            self.tunnels,
            clock,
            self.renew_admin,
            lambda credential: credential.user == "tower-admin",
            self.given,
        )
        self.successResultOf(Deferred.fromCoroutine(self.rotations.resume()))
        self.rotations.startService()

    def restart(self) -> None:
        """Stop the proxy's parts and start them again."""
        self.rotations.stopService()
        self.start()

    async def renew_admin(self) -> None:
        """Count it."""
        self.renewals += 1

    def enrol(self, cluster: str, fingerprint: str, *, connect: bool = True) -> AnnouncedTunnel:
        """Enrol a key; return its tunnel, which is open if *connect*."""
        token = self.successResultOf(self.tokens.mint(cluster))
        self.successResultOf(self.tokens.enrol(cluster, token, fingerprint, b"blob"))
        tunnel = AnnouncedTunnel(cluster, fingerprint)
        if connect:
            self.tunnels.add(tunnel)
        return tunnel

    def begin(self, target: str, after: float | None = None) -> Rotation:
        """Begin a rotation."""
        rotation = self.successResultOf(self.rotations.begin(target, after))
        assert isinstance(rotation, Rotation)
        return rotation

    def settle(self) -> None:
        """Let confirmations be written, and check the rotations."""
        self.clock.advance(1.0)
        self.check()

    def check(self) -> None:
        """Run the timer's call."""
        result: list[None] = []
        failures: list[Failure] = []
        Deferred.fromCoroutine(self.rotations.check()).addCallbacks(result.append, failures.append)
        for failure in failures:
            failure.raiseException()
        self.assertEqual(result, [None])

    def rotation(self, target: str) -> Rotation:
        """Return the rotation of *target*."""
        rotation = self.rotations.get(target)
        assert rotation is not None
        return rotation
