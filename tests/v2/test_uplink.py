"""Tests of `tower.v2.uplink`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.dialers import FakeDialer
from tests.fakes.pipes import FakePipe
from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY, Gate
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.kube.member_status import MemberStatus
from tower.member.member_health import PAUSE, MemberHealth
from tower.member.outgoing import Outgoing
from tower.member.stream_tally import StreamTally
from tower.net.budget import Budget
from tower.trust.statedir import StateDir
from tower.v2.hello import AgentHello, ProxyHello
from tower.v2.known_proxies import KnownProxies
from tower.v2.peers import AgentPeer, AgentRefused, HostKeyMismatch
from tower.v2.transport import ServerTransport
from tower.v2.uplink import AgentIdentity, Uplink
from tower.websocket.dialer import Dialer, DialFailed, SubprotocolRefused
from tower.websocket.frames import FrameReader, FrameWriter

OTHER = "SHA256:" + "A" * 43
NOW = 1_800_000_000.0  # s since the epoch


class FakeDialing:
    """Records the streams of one tunnel."""

    stopped = False

    def accept(self, incoming: object) -> None:
        """Nothing comes here."""

    def lost(self, reason: Exception) -> Exception:
        """Record it."""
        self.stopped = True
        return reason


class FakeOutgoing:
    """Hands out one `FakeDialing`."""

    def __init__(self) -> None:
        self.dialing = FakeDialing()
        self.tally = StreamTally(Clock())

    def for_tunnel(self) -> FakeDialing:
        """Be an `Outgoing`."""
        return self.dialing


class UplinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create both ends of a tunnel in memory."""
        self.clock = Clock()
        self.gate = Gate()
        self.gate.enrolled.add(("alpha", AGENT_KEY.fingerprint))
        self.dialer = FakeDialer()
        self.outgoing = FakeOutgoing()
        self.host_keys = KnownProxies(StateDir(Path(self.mktemp())), [HOST_KEY.fingerprint])
        self.health: MemberHealth | None = None
        self.near = FakePipe()
        self.far = FakePipe()

    def connect(self, token: str | None = None) -> Deferred[SSHTunnel]:
        """Begin to connect."""
        self.uplink = Uplink(
            self.clock,
            cast(Dialer, self.dialer),
            AgentIdentity("alpha", AGENT_KEY, AgentHello("1", "pod-1", ("kubernetes",)), token),
            self.host_keys,
            cast(Outgoing, self.outgoing),
            Budget(1 << 20),
            keepalive=10.0,
            epoch=lambda: NOW,
            health=self.health,
        )
        return self.uplink.connect()

    def proxy(self, *keys: KeyPair) -> Deferred[AgentPeer]:
        """Run the proxy's end; return its result."""
        ready: Deferred[AgentPeer] = self.serve(*keys).ready
        return ready

    def serve(self, *keys: KeyPair) -> Any:
        """Run the proxy's end, and return it."""
        self.dialer.answers["tower-v2"] = succeed((self.near, b""))
        ssh = ServerTransport(self.clock, keys or [HOST_KEY], self.gate)
        tunnel = SSHTunnel(
            self.clock, self.far, ssh, FrameReader(from_client=True), FrameWriter(to_server=False)
        )
        ssh.ready.addErrback(lambda _: None)
        tunnel.lost.addBoth(lambda _: None)
        tunnel.start()
        return ssh

    def pump(self) -> None:
        """Carry bytes between both until there are none."""
        for _ in range(20):
            self.clock.advance(0)
            for source, sink in ((self.near, self.far), (self.far, self.near)):
                data = source.taken()
                if data and not sink.lost:
                    sink.deliver(data)
                if source.closing and not source.lost:
                    source.lose()
                    if not sink.lost:
                        sink.lose()

    def over(self) -> None:
        """Assert that nothing is left running."""
        for pipe in (self.near, self.far):
            pipe.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_up(self) -> None:
        """An enrolled agent gets a tunnel, sends its hello, and learns the proxy's keys."""
        ready = self.proxy(HOST_KEY, AGENT_KEY)
        connected = self.connect()
        self.pump()
        tunnel = self.successResultOf(connected)
        peer = self.successResultOf(ready)
        self.assertEqual((peer.name, peer.hello.targets), ("alpha", ("kubernetes",)))
        self.assertEqual((tunnel.name, tunnel.since, tunnel.streams), ("alpha", NOW, 0))
        self.assertEqual(self.host_keys.pinned, {HOST_KEY.fingerprint, AGENT_KEY.fingerprint})
        self.over()
        self.assertTrue(self.outgoing.dialing.stopped)

    def test_member_status(self) -> None:
        """A proxy with the capability gets the member's status after the hello, and its changes."""
        reports: list[MemberStatus] = []
        health = self.health = MemberHealth(self.clock, Deferred)
        health.status = MemberStatus(version="v1.36.2")
        ssh = self.serve()
        ssh.on_member_status = reports.append
        connected = self.connect()
        self.pump()
        self.successResultOf(connected)
        self.assertEqual(reports, [health.status])
        self.assertEqual(len(health._followers), 1)
        checks: list[float] = []
        self.patch(health._task, "run_soon_at_most_every", checks.append)
        ssh.request_check()
        self.pump()
        self.assertEqual(checks, [PAUSE])
        self.over()
        self.assertEqual(health._followers, [])

    def test_proxy_without_status(self) -> None:
        """An agent does not send reports to a proxy of an earlier version."""
        self.health = MemberHealth(self.clock, Deferred)
        self.health.status = MemberStatus(version="v1.36.2")
        ssh = self.serve()
        ssh._answer = ProxyHello("1.0.0", host_keys=(HOST_KEY.fingerprint,)).encode()
        requests: list[bytes] = []
        ssh.refused = requests.append
        connected = self.connect()
        self.pump()
        self.successResultOf(connected)
        self.assertEqual((requests, self.health._followers), ([], []))
        self.over()

    def test_token(self) -> None:
        """A new agent enrols with its token, and then has it no more, even if it would be good again."""
        self.gate.enrolled.clear()
        self.gate.tokens["t0ken"] = "alpha"
        self.proxy()
        connected = self.connect("t0ken")
        self.pump()
        self.successResultOf(connected)
        self.over()
        self.near, self.far = FakePipe(), FakePipe()
        self.gate.enrolled.clear()
        self.gate.tokens["t0ken"] = "alpha"
        self.proxy()
        self.assertIn("it has no join token", self.refused(self.uplink.connect(), AgentRefused))

    def refused(self, connected: Deferred[SSHTunnel], kind: type[Exception]) -> str:
        """Return why there is no tunnel."""
        self.pump()
        text = str(self.failureResultOf(connected, kind).value)
        self.over()
        return text

    def test_not_enrolled(self) -> None:
        """Without key and token the text names the cure."""
        self.gate.enrolled.clear()
        self.proxy()
        self.assertIn("token", self.refused(self.connect(), AgentRefused))

    def test_other_proxy(self) -> None:
        """A proxy with another host key gets neither the token nor the hello."""
        self.gate.enrolled.clear()
        self.proxy(AGENT_KEY)
        self.assertIn("--host-key", self.refused(self.connect("t0ken"), HostKeyMismatch))
        self.assertEqual(self.gate.asked, [])

    def test_not_dialed(self) -> None:
        """Without a connection there is none of the rest."""
        self.dialer.answers["tower-v2"] = fail(DialFailed("refused"))
        self.failureResultOf(self.connect(), DialFailed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_old_proxy(self) -> None:
        """With a server without tower-v2 the agent never falls back; the text names the option."""
        self.dialer.answers["tower-v2"] = fail(SubprotocolRefused("answered with HTTP status 404"))
        text = str(self.failureResultOf(self.connect("t0ken"), SubprotocolRefused).value)
        self.assertIn("404", text)
        self.assertIn("--protocol v1", text)

    def test_cancel(self) -> None:
        """Cancelling leaves nothing behind, while dialing and after."""
        self.dialer.answers["tower-v2"] = Deferred()
        connected = self.connect()
        connected.cancel()
        self.failureResultOf(connected)
        self.proxy()
        connected = self.connect()
        connected.cancel()
        self.failureResultOf(connected)
        self.assertTrue(self.near.lost)
        self.far.lose()
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
