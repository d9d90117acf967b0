"""Tests of `tower.v2.secret_uplink`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.secret_servers import SecretServer
from tests.fakes.ssh_pairs import AGENT_KEY as KEY
from tests.fakes.ssh_pairs import HOST_KEY
from tower.conch.connection.global_requests import RequestRefused
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import ClusterUnreachable
from tower.kube.client import APIClient
from tower.kube.head_fields import Upstream
from tower.member.key_secret import KeySecret, KeySecretFailed
from tower.member.object_name import ObjectName
from tower.member.options import AGENT_KEY
from tower.v2.hello import Announcement
from tower.v2.known_proxies import KnownProxies
from tower.v2.peers import AgentRefused
from tower.v2.secret_uplink import QUICK, SecretUplink
from tower.v2.uplink import Uplink

UPSTREAM = Upstream(b"", b"Host: api:6443\r\n", b"")
NAME = ObjectName("tower-system", "tower-agent-key")
OTHER = "SHA256:" + "A" * 43
TUNNEL = cast(SSHTunnel, "a tunnel")


class FakeUplink:
    """Records attempts to connect.

    :ivar results: of the attempts; True for a tunnel.
    """

    def __init__(self, key: KeyPair) -> None:
        self.key = key
        self.attempts = 0
        self.results: list[Exception] = []

    def connect(self) -> Deferred[SSHTunnel]:
        """Be an `Uplink`."""
        self.attempts += 1
        return fail(self.results.pop(0)) if self.results else succeed(TUNNEL)


def refused() -> AgentRefused:
    """Return the error of a rejected key."""
    return AgentRefused("alpha", KEY.fingerprint, "", has_token=False)


class SecretUplinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create an API server with a key."""
        self.server = server = SecretServer()
        server.data = {AGENT_KEY: KEY.to_openssh()}
        api = APIClient(server.clock, server.open, lambda: UPSTREAM)
        self.secret = KeySecret(server.clock, api, NAME, "alpha")
        self.known = KnownProxies(self.secret, [OTHER], (), lambda: self.secret.is_saved)
        self.made: list[FakeUplink] = []
        self.uplink = SecretUplink(self.secret, self.known, self.create)

    def create(self, key: KeyPair) -> Uplink:
        """Create an uplink."""
        self.made.append(FakeUplink(key))
        made: Any = self.made[-1]
        return cast(Uplink, made)

    def connect(self) -> Deferred[Any]:
        """Connect, and let the API server answer."""
        connecting: Deferred[Any] = self.uplink.connect()
        self.server.serve()
        return connecting

    def connected(self) -> None:
        """Assert that a tunnel opens."""
        self.assertIs(self.successResultOf(self.connect()), TUNNEL)

    def test_once(self) -> None:
        """The Secret is read before the first tunnel only, so a reconnection works without the API server."""
        self.connected()
        self.connected()
        self.assertEqual([each.key.blob for each in self.made], [KEY.blob])
        self.assertEqual(len(self.server.requests), 1)

    def test_not_yet(self) -> None:
        """Without the Secret there is no attempt; once it exists, the next one succeeds."""
        self.server.data = None
        self.failureResultOf(self.connect(), KeySecretFailed)
        self.assertEqual(self.made, [])
        self.server.data = {}
        self.connected()

    def test_delays(self) -> None:
        """The first attempts without the Secret are repeated quickly, all further ones at a constant rate."""
        self.server.data = None
        errors = [self.failureResultOf(self.connect(), KeySecretFailed).value for _ in range(QUICK + 3)]
        self.assertEqual([error.permanent for error in errors], [False] * QUICK + [True] * 3)

    def test_rejected(self) -> None:
        """After a rejected key the Secret is read again; a changed key gets a new uplink."""
        self.connected()
        self.made[0].results = [refused(), ClusterUnreachable("away")]
        for error in (AgentRefused, ClusterUnreachable):
            self.failureResultOf(self.connect(), error)
        self.connected()
        self.assertEqual((len(self.made), len(self.server.requests)), (1, 2))
        self.made[0].results = [refused()]
        self.failureResultOf(self.connect(), AgentRefused)
        self.server.data = {AGENT_KEY: HOST_KEY.to_openssh()}
        self.connected()
        self.assertEqual(self.made[1].key.blob, HOST_KEY.blob)

    def test_unreadable_later(self) -> None:
        """If the Secret cannot be read again, the earlier key is used, and the log has the reason."""
        self.connected()
        self.made[0].results = [refused()]
        self.failureResultOf(self.connect(), AgentRefused)
        self.server.refusals = {b"GET": (403, "no")}
        with capturedLogs() as events:
            self.connected()
        self.assertIn("not allowed to get Secret", str([event.get("reason") for event in events]))
        self.server.refusals = {}
        self.connected()
        self.assertEqual(len(self.server.requests), 3)

    def test_pins(self) -> None:
        """Pins that another replica stored are accepted after the Secret was read."""
        other = KnownProxies(self.secret, [OTHER])
        other.learn(Announcement((HOST_KEY.fingerprint,)))
        self.assertEqual(self.known.pinned, {OTHER})
        self.connected()
        self.assertEqual(self.known.pinned, {OTHER, HOST_KEY.fingerprint})

    def test_confirmation(self) -> None:
        """An announcement is confirmed once the Secret has it, not before."""
        self.connected()
        announced = Announcement((HOST_KEY.fingerprint,))
        self.secret.saving.startService()
        self.addCleanup(self.secret.saving.stopService)
        self.assertRaises(RequestRefused, self.known.update, announced)
        self.assertIn(HOST_KEY.fingerprint, self.known.pinned)
        self.server.serve()
        self.known.update(announced)
        assert self.server.data is not None
        self.assertIn(HOST_KEY.fingerprint.encode(), self.server.data["host-keys.json"])

    def test_cancelled(self) -> None:
        """A cancelled attempt ends the request."""
        connecting = self.uplink.connect()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError, KeySecretFailed)
        self.assertTrue(all(pipe.lost or pipe.closing or pipe.aborted for pipe in self.server.pipes))
