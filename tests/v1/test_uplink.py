"""Tests of `tower.v1.uplink`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.dialers import FakeDialer
from tests.fakes.receivers import Recorder
from tests.fakes.tunnel_pairs import MemoryPipe
from tests.fakes.v1_proxies import ACCEPTED, OldProxyEnd, Reply, refusal
from tower.conch.connection.channel import Channel
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import ConfigurationError
from tower.net.budget import Budget
from tower.net.connection import Connection
from tower.reactor.interfaces import ISocketReactor
from tower.tunnels.targets import ServiceAddress
from tower.v1.client import RegistrationRefused, RegistrationUnanswered
from tower.v1.config import CHANNEL, AgentConfig
from tower.v1.outgoing import V1Outgoing
from tower.v1.registration import Registrar, Registration
from tower.v1.uplink import EitherUplink, NeedsHostKey, V1Uplink
from tower.websocket.dialer import Dialer, DialFailed, SubprotocolRefused
from tower.websocket.frames import FrameReader, FrameWriter

NOW = 1_800_000_000.0  # s since the epoch
API_SERVER = b"10.0.0.1:6443"


class FakeRegistrar:
    """Knows one registration at a time."""

    def __init__(self) -> None:
        self.token = b"b3arer"
        self.proxy_token = "t0ken"
        self.error: Exception | None = None

    def registration(self) -> Registration:
        """Be a `Registrar`."""
        if self.error is not None:
            raise self.error
        config = AgentConfig(
            name="alpha", token=self.proxy_token, kubernetes=API_SERVER.decode(), bearer=self.token
        )
        return Registration(config, {API_SERVER.decode(): ServiceAddress("10.0.0.1", 6443)})


class Aborting:
    """A connection that is only closed."""

    aborted = False

    def abort(self) -> None:
        """Record it."""
        self.aborted = True


class V1UplinkTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a network in memory."""
        self.clock = Clock()
        self.dialer = FakeDialer()
        self.registrar = FakeRegistrar()
        self.dialed: list[Deferred[Any]] = []
        self.uplink = V1Uplink(
            self.clock,
            cast(Dialer, self.dialer),
            cast(Registrar, self.registrar),
            None,
            V1Outgoing(cast(ISocketReactor, self.clock), connect=self.connect_there),
            Budget(1 << 20),
            keepalive=10.0,
            epoch=lambda: NOW,
        )
        self.near, self.far = MemoryPipe(), MemoryPipe()
        self.near.other, self.far.other = self.far, self.near

    def connect_there(self, reactor: Any, host: str, port: int, **options: Any) -> Deferred[Any]:
        """Be `tower.net.connecting.connect`."""
        self.dialed.append(Deferred())
        return self.dialed[-1]

    def proxy(self, reply: Reply = ACCEPTED) -> tuple[OldProxyEnd, SSHTunnel]:
        """Add an old proxy; its end of the tunnel carries streams from authentication on."""
        self.dialer.answers["kubesphere-v1"] = succeed((self.near, b""))
        ssh = OldProxyEnd(self.clock, reply)
        tunnel = SSHTunnel(
            self.clock, self.far, ssh, FrameReader(from_client=True), FrameWriter(to_server=False)
        )
        tunnel.start()
        return ssh, tunnel

    def pump(self) -> None:
        """Carry bytes until there are none."""
        for _ in range(200):
            self.clock.advance(0)
            for pipe in (self.near, self.far):
                pipe.carry(1 << 20)

    def over(self) -> None:
        """Assert that nothing is left running."""
        self.near.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_up(self) -> None:
        """A tunnel opens, with the name and the key of the proxy."""
        ssh, _ = self.proxy()
        connected = self.uplink.connect()
        self.pump()
        tunnel = self.successResultOf(connected)
        self.assertEqual((tunnel.name, tunnel.fingerprint, tunnel.since), ("alpha", ssh.fingerprint, NOW))
        self.assertEqual(tunnel.version, "kubesphere-v1")
        self.assertEqual(self.dialer.asked, ["kubesphere-v1"])
        self.over()

    def test_streams(self) -> None:
        """Streams that the proxy opens before it answers are dialed, and bytes flow both ways."""
        ssh, theirs = self.proxy()
        opening: list[Deferred[Channel]] = []

        def open_early() -> None:
            theirs.open_up("alpha", "", "", 0.0, Budget(1 << 20))
            assert theirs.mux is not None
            opening.append(theirs.mux.open(CHANNEL, API_SERVER))

        ssh.before_reply = open_early
        connected = self.uplink.connect()
        self.pump()
        tunnel = self.successResultOf(connected)
        self.assertEqual(len(self.dialed), 1)
        there = MemoryPipe()
        server = MemoryPipe()
        there.other, server.other = server, there
        heard, said = Recorder(), Recorder()
        server.receiver = heard
        server.resume()
        self.dialed[0].callback(cast(Connection, there))
        self.pump()
        channel = self.successResultOf(opening[0])
        channel.receiver = said
        channel.resume()
        channel.send(b"hello")
        server.send(b"hi")
        for _ in range(5):
            self.pump()
            there.carry(100)
            server.carry(100)
        self.assertEqual((bytes(heard.got), bytes(said.got)), (b"hello", b"hi"))
        self.assertEqual(tunnel.streams, 1)
        self.over()

    def failed(self, connected: Deferred[SSHTunnel], kind: type[Exception]) -> str:
        """Return why there is no tunnel; hole 12: nothing is left of it."""
        self.pump()
        text = str(self.failureResultOf(connected, kind).value)
        self.pump()
        self.assertTrue(self.near.gone)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return text

    def test_refused(self) -> None:
        """A proxy that refuses and does not close is closed."""
        self.proxy(refusal(b"Unauthorized agent"))
        connected = self.uplink.connect()
        self.pump()
        self.near.lose()
        self.assertIn("Unauthorized agent", self.failed(connected, RegistrationRefused))

    def test_silent(self) -> None:
        """A proxy that does not answer is given up."""
        self.proxy(None)
        connected = self.uplink.connect()
        self.pump()
        self.assertNoResult(connected)
        self.clock.advance(10)
        self.pump()
        self.near.lose()
        self.failed(connected, RegistrationUnanswered)

    def test_not_dialed(self) -> None:
        """Without a connection there is none of the rest."""
        self.dialer.answers["kubesphere-v1"] = fail(DialFailed("refused"))
        self.failureResultOf(self.uplink.connect(), DialFailed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancel(self) -> None:
        """Cancelling leaves nothing behind, while dialing and after."""
        self.dialer.answers["kubesphere-v1"] = Deferred()
        connected = self.uplink.connect()
        connected.cancel()
        self.failureResultOf(connected)
        self.proxy()
        connected = self.uplink.connect()
        connected.cancel()
        self.failureResultOf(connected)
        self.assertTrue(self.near.gone)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_change(self) -> None:
        """A changed registration is seen, unless none can be made, or only the proxy's token changed."""
        self.assertIsNone(self.uplink.change)
        self.proxy()
        connected = self.uplink.connect()
        self.pump()
        self.successResultOf(connected)
        self.assertIsNone(self.uplink.change)
        self.registrar.proxy_token = "t0ken-2"
        self.assertIsNone(self.uplink.change)
        self.registrar.token = b"other"
        change = self.uplink.change
        assert change is not None
        self.assertEqual((change.bearer, change.token), (b"other", "t0ken-2"))
        self.registrar.error = ConfigurationError("no more")
        self.assertIsNone(self.uplink.change)
        self.over()

    def test_impossible(self) -> None:
        """A member that cannot be registered is not dialed for."""
        self.registrar.error = ConfigurationError("no TLS")
        self.failureResultOf(self.uplink.connect(), ConfigurationError)
        self.assertEqual(self.dialer.asked, [])

    def test_either_old(self) -> None:
        """An agent without a host key uses kubesphere-v1 with a server that has no tower-v2."""
        self.dialer.answers["tower-v2"] = fail(SubprotocolRefused("answered with HTTP status 404"))
        self.proxy()
        connected = EitherUplink(cast(Dialer, self.dialer), self.uplink).connect()
        self.pump()
        self.successResultOf(connected)
        self.assertEqual(self.dialer.asked, ["tower-v2", "kubesphere-v1"])
        self.over()

    def test_either_new(self) -> None:
        """With a server that has tower-v2 it does not connect without the host key, by either protocol."""
        connection = Aborting()
        self.dialer.answers["tower-v2"] = succeed((connection, b""))
        connected = EitherUplink(cast(Dialer, self.dialer), self.uplink).connect()
        self.assertIn("--host-key", str(self.failureResultOf(connected, NeedsHostKey).value))
        self.assertTrue(connection.aborted)
        self.assertEqual(self.dialer.asked, ["tower-v2"])

    def test_either_not_now(self) -> None:
        """A server that cannot be asked now is not tried by anything else."""
        self.dialer.answers["tower-v2"] = fail(DialFailed("connection refused"))
        connected = EitherUplink(cast(Dialer, self.dialer), self.uplink).connect()
        self.failureResultOf(connected, DialFailed)
        self.assertEqual(self.dialer.asked, ["tower-v2"])
