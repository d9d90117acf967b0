"""Tests of `tower.nodes.tunnels.tunnel`, with a node in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import ConnectError, ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import Recorder
from tests.fakes.ssh_keys import KEYS
from tests.fakes.ssh_node import NODE, FarNode
from tests.fakes.tunnel_pairs import MemoryPipe
from tower.clusters.node import Node
from tower.conch.connection.channel import Channel
from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.keys import ED25519
from tower.conch.transport.limits import HandshakeTimeout, TransportLimits
from tower.conch.transport.signatures import RSA
from tower.errors import StreamRefused, TunnelLost
from tower.net.connecting import ConnectFailed
from tower.nodes.ssh.client_key import KeyUnusable
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.tunnels.tunnel import NodeTunnel, NotOpened


class TunnelTestCase(SynchronousTestCase):
    """A tunnel to one node."""

    def setUp(self) -> None:
        """Make the node."""
        self.far = FarNode()
        self.lost: list[Exception] = []

    def open(self, **named: Any) -> NodeTunnel:
        """Return a tunnel that is open."""
        tunnel = self.far.tunnel(**named)
        opening = tunnel.open()
        self.far.pump()
        self.successResultOf(opening)
        tunnel.lost.addCallback(self.lost.append)
        return tunnel

    def not_opened(self, tunnel: NodeTunnel, kind: type[Exception] = OpenFailed) -> Any:
        """Return why *tunnel* is not opened."""
        opening = tunnel.open()
        self.far.pump()
        error = self.failureResultOf(opening, kind).value
        self.assertFalse(tunnel.is_open)
        return error

    def dial(self, tunnel: NodeTunnel, host: str = "127.0.0.1", port: int = 8080) -> Channel:
        """Return a stream."""
        dialing = tunnel.dial(host, port)
        self.far.pump()
        return self.successResultOf(dialing)

    def nothing_left(self) -> None:
        """Check that nothing goes on."""
        self.far.pump()
        self.far.wait(6)
        self.assertEqual(self.far.clock.getDelayedCalls(), [])
        self.assertTrue(all(pipe.gone for pipe in self.far.pipes))


class TestSSHTunnel(TunnelTestCase):
    """Upstream's TestSSHTunnel."""

    def test_ssh_tunnel(self) -> None:
        """Opens with an unknown host key, dials, and closes; the server sees the very key (TestSSHTunnel)."""
        key = KEYS[RSA]
        tunnel = self.open(key=key, user="foo")
        self.assertEqual(tunnel.host_key, KEYS[RSA].fingerprint)  # the server's is of the same test
        channel = self.dial(tunnel, "127.0.0.1", 8080)
        self.assertEqual(self.far.wanted, [("127.0.0.1", 8080)])
        recorder = Recorder()
        channel.receiver = recorder
        channel.resume()
        channel.send(b"hello")
        self.far.pump()
        self.assertEqual(recorder.got, b"hello")
        (asked,) = self.far.asked
        self.assertEqual((asked.user, asked.good), ("foo", True))
        self.assertTrue(asked.line.startswith(b"ssh-rsa "))
        self.assertEqual(asked.line, key.authorized_key)
        tunnel.close("done")
        self.nothing_left()
        self.assertEqual(str(self.lost[0]), "done")
        self.assertEqual(recorder.log[-1], "closed")


class OpenTests(TunnelTestCase):
    """Opening, and what may go wrong."""

    def test_facts(self) -> None:
        """An open tunnel knows node, key, version, and when it opened; one that is not, less."""
        tunnel = self.far.tunnel()
        self.assertEqual((tunnel.is_open, tunnel.streams, tunnel.round_trip, tunnel.since), (False, 0, 0, 0))
        self.assertEqual(repr(tunnel), "<NodeTunnel foo@192.0.2.7:22 not open>")
        tunnel = self.open()
        self.assertEqual(tunnel.node, NODE)
        self.assertEqual((tunnel.is_open, tunnel.since), (True, 5.0))
        self.assertEqual(tunnel.version, "SSH-2.0-OpenSSH_9.2p1 Debian-2")
        self.assertEqual(repr(tunnel), "<NodeTunnel foo@192.0.2.7:22 open>")
        self.assertEqual(self.far.dialed, [("192.0.2.7", 22)])
        tunnel.close("enough")
        self.far.pump()
        self.assertEqual(repr(tunnel), "<NodeTunnel foo@192.0.2.7:22 closed>")
        self.assertEqual((tunnel.is_open, tunnel.streams, tunnel.round_trip, tunnel.since), (False, 0, 0, 0))

    def test_key_unusable(self) -> None:
        """Without a key no connection is tried, and the error is the key's."""

        def no_key() -> Any:
            raise KeyUnusable("error reading SSH key k: 'gone'")

        tunnel = self.far.tunnel()
        tunnel.login = type(tunnel.login)("foo", no_key, tunnel.login.host_keys)
        error = self.not_opened(tunnel, KeyUnusable)
        self.assertEqual(str(error), "error reading SSH key k: 'gone'")
        self.assertEqual(self.far.dialed, [])

    def test_key_read_anew(self) -> None:
        """The key is read for each tunnel, so that a new one is used at once."""
        keys = [KEYS[RSA], KEYS[ED25519]]
        for _ in range(2):
            tunnel = self.far.tunnel()
            tunnel.login = type(tunnel.login)("foo", lambda: keys.pop(0), tunnel.login.host_keys)
            tunnel.open()
            self.far.pump()
        lines = [asked.line for asked in self.far.asked]
        self.assertEqual(lines, [KEYS[RSA].authorized_key, KEYS[ED25519].authorized_key])

    def test_not_reached(self) -> None:
        """A node that cannot be reached: upstream's text, with the reason, which is kept as the cause."""
        failed = ConnectFailed("refused", "192.0.2.7:22: connection refused")
        error = self.not_opened(self.far.tunnel(dial=lambda host, port: fail(failed)))
        self.assertEqual(
            str(error), "error getting SSH client to foo@192.0.2.7:22: '192.0.2.7:22: connection refused'"
        )
        self.assertIs(error.cause, failed)
        self.nothing_left()

    def test_ipv6(self) -> None:
        """An IPv6 address has brackets in texts, and none when it is dialed."""
        failed = ConnectFailed("refused", "no")
        node = Node("2001:db8::7", 2222)
        dialed = []

        def dial(host: str, port: int) -> Deferred[Any]:
            dialed.append((host, port))
            return fail(failed)

        error = self.not_opened(self.far.tunnel(dial=dial, node=node))
        self.assertIn("foo@[2001:db8::7]:2222", str(error))
        self.assertEqual(dialed, [("2001:db8::7", 2222)])

    def test_connect_too_slow(self) -> None:
        """A connection attempt ends after 150 s by our clock."""
        given_up: list[object] = []
        connecting: Deferred[Any] = Deferred(given_up.append)
        opening = self.far.tunnel(dial=lambda host, port: connecting).open()
        self.far.wait(149)
        self.assertNoResult(opening)
        self.far.wait(1)
        error = self.failureResultOf(opening, OpenFailed).value
        self.assertEqual(len(given_up), 1)
        self.assertIn("dial tcp 192.0.2.7:22: i/o timeout", str(error))
        self.nothing_left()

    def test_cancel(self) -> None:
        """An opening may be cancelled at any point, and nothing is left of it."""
        for steps in range(60):
            far = self.far = FarNode()
            tunnel = far.tunnel()
            opening = tunnel.open()
            for _ in range(steps):
                for pipe in far.pipes:
                    pipe.carry(700)
                far.clock.advance(0)
            if tunnel.is_open:
                break
            opening.cancel()
            self.failureResultOf(opening, CancelledError)
            self.nothing_left()
        else:
            self.fail("it never opened")
        self.assertGreater(steps, 3)

    def test_cancel_connecting(self) -> None:
        """Cancelling while the connection is not there yet gives that up, too."""
        given_up: list[object] = []
        connecting: Deferred[Any] = Deferred(given_up.append)
        opening = self.far.tunnel(dial=lambda host, port: connecting).open()
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.assertEqual(len(given_up), 1)
        self.nothing_left()

    def test_close_while_opening(self) -> None:
        """So does closing."""
        tunnel = self.far.tunnel()
        opening = tunnel.open()
        tunnel.close("no more")
        self.failureResultOf(opening, CancelledError)
        self.nothing_left()

    def test_peer_goes(self) -> None:
        """A node that disconnects during the handshake is reported so."""
        tunnel = self.far.tunnel()
        opening = tunnel.open()
        self.far.pipes[1].abort()
        self.failureResultOf(opening, OpenFailed)
        self.nothing_left()


class TestTimeoutDialer(TunnelTestCase):
    """Upstream's TestTimeoutDialer."""

    def silent(self, host: str, port: int) -> Deferred[Any]:
        """A server that stays silent."""
        near, far = MemoryPipe(), MemoryPipe()
        near.other, far.other = far, near
        far.receiver = Recorder()
        far.paused = False
        self.far.pipes += [near, far]
        done: Deferred[Any] = Deferred()
        done.callback(near)
        return done

    def test_timeout_dialer(self) -> None:
        """A listener that never speaks SSH, and no time: the error has "i/o timeout" (TestTimeoutDialer)."""
        tunnel = self.far.tunnel(dial=self.silent, limits=TransportLimits(handshake=1e-9))
        opening = tunnel.open()
        self.far.clock.advance(1e-9)
        self.far.pump()
        error = self.failureResultOf(opening, OpenFailed).value
        self.assertIn("i/o timeout", str(error))
        self.assertIsInstance(error.cause, HandshakeTimeout)

    def test_thirty_seconds(self) -> None:
        """The handshake has 30 s from the moment that the connection is there."""
        opening = self.far.tunnel(dial=self.silent).open()
        self.far.wait(29.5)
        self.assertNoResult(opening)
        self.far.wait(0.5)
        error = self.failureResultOf(opening, OpenFailed).value
        self.assertEqual(
            str(error),
            "error getting SSH client to foo@192.0.2.7:22: 'i/o timeout: no SSH session within 30 s'",
        )
        self.nothing_left()


class DialTests(TunnelTestCase):
    """Streams."""

    def test_several(self) -> None:
        """Streams are independent, counted, and named as the node is to dial them."""
        tunnel = self.open()
        channels = [self.dial(tunnel, host, port) for host, port in (("a", 1), ("2001:db8::1", 65535))]
        self.assertEqual(self.far.wanted, [("a", 1), ("2001:db8::1", 65535)])
        self.assertEqual(tunnel.streams, 2)
        for channel in channels:
            channel.receiver = Recorder()
            channel.close()
        self.far.pump()
        self.assertEqual(tunnel.streams, 0)

    def test_half_close(self) -> None:
        """One side may end and the other go on."""
        channel = self.dial(self.open())
        recorder = Recorder()
        channel.receiver = recorder
        channel.resume()
        channel.send(b"all")
        channel.finish()
        self.far.pump()
        self.assertEqual((bytes(recorder.got), recorder.log), (b"all", ["received", "ended", "closed"]))

    def refused(self, reason: int, text: bytes) -> StreamRefused:
        """Return what a refusal becomes."""
        tunnel = self.open()
        self.far.decide = self.far.refusing(reason, text)
        dialing = tunnel.dial("10.0.0.1", 6443)
        self.far.pump()
        error: StreamRefused = self.failureResultOf(dialing, StreamRefused).value
        self.assertEqual(error.reason, reason)
        return error

    def test_refused(self) -> None:
        """Numbers and texts of OpenSSH, dropbear and Go become our codes."""
        for reason, text, code in (
            (2, b"Connection refused", "refused"),
            (2, b"Connection timed out", "timeout"),
            (2, b"No route to host", "unreachable"),
            (2, b"Network is unreachable", "unreachable"),
            (2, b"Name or service not known", "name"),
            (2, b"Temporary failure in name resolution", "name"),
            (2, b"No address associated with hostname", "name"),
            (2, b"dial tcp 10.0.0.1:6443: connect: connection refused", "refused"),
            (2, b"dial tcp: lookup x: no such host", "name"),
            (2, b"Too many open files", "busy"),
            (2, b"open failed", "failed"),
            (2, b"", "failed"),
            (4, b"resource shortage", "busy"),
            (3, b"unknown channel type", "failed"),
            (99, b"whatever", "failed"),
        ):
            error = self.refused(reason, text)
            self.assertEqual(error.code, code, text)
            self.assertEqual(
                str(error),
                "node n1 (192.0.2.7:22) did not connect to 10.0.0.1:6443: "
                f'its sshd reports: "{text.decode()}"',
            )

    def test_prohibited(self) -> None:
        """A server that forwards nothing: the text has the cure."""
        error = self.refused(1, b"open failed")
        self.assertEqual(error.code, "not-allowed")
        self.assertIn("AllowTcpForwarding", str(error))

    def test_refusal_text(self) -> None:
        """A node's text is shortened and made printable, and cannot pass for ours."""
        error = self.refused(2, b"busy: \x1b[31m" + b"x" * 5000)
        self.assertEqual(error.code, "failed")
        error = self.refused(2, b"\x1b[31m" + b"x" * 5000)
        self.assertLess(len(str(error)), 400)
        self.assertNotIn("\x1b", str(error))

    def test_timeout(self) -> None:
        """A node that does not answer takes 10 s; a stream that opens later is closed."""
        tunnel = self.open()
        late: list[Any] = []
        self.far.decide = late.append
        dialing = tunnel.dial("10.0.0.1", 6443)
        self.far.wait(9.5)
        self.assertNoResult(dialing)
        self.far.wait(0.5)
        error = self.failureResultOf(dialing, StreamRefused).value
        self.assertEqual(error.code, "timeout")
        self.assertEqual(str(error), "node n1 (192.0.2.7:22) did not connect to 10.0.0.1:6443 within 10 s")
        recorder = Recorder()
        there = late[0].accept()
        there.receiver = recorder
        there.resume()
        self.far.pump()
        self.assertEqual(recorder.log, ["closed"])
        self.assertEqual(tunnel.streams, 0)

    def test_cancel(self) -> None:
        """Dialing may be cancelled."""
        tunnel = self.open()
        dialing = tunnel.dial("a", 1)
        dialing.cancel()
        self.failureResultOf(dialing, CancelledError)
        self.far.pump()
        self.assertEqual(tunnel.streams, 0)
        self.assertTrue(tunnel.is_open)

    def test_not_opened(self) -> None:
        """A tunnel that was never open has upstream's text, a closed one has another."""
        tunnel = self.far.tunnel()
        error = self.failureResultOf(tunnel.dial("a", 1), NotOpened).value
        self.assertEqual(str(error), "tunnel is not opened.")
        error = self.assertRaises(NotOpened, tunnel.close, "bye")
        self.assertEqual(str(error), "Cannot close tunnel. Tunnel was not opened.")
        tunnel = self.open()
        tunnel.close("bye")
        self.far.pump()
        error = self.failureResultOf(tunnel.dial("a", 1), TunnelLost).value
        self.assertEqual(str(error), "the tunnel to node n1 (192.0.2.7:22) is closed")

    def test_lost_while_dialing(self) -> None:
        """A lost tunnel fails pending dials."""
        tunnel = self.open()
        self.far.decide = lambda incoming: None
        dialing = tunnel.dial("a", 1)
        self.far.pump()
        self.far.pipes[1].abort()
        self.failureResultOf(dialing, TunnelLost)
        self.nothing_left()


class EndTests(TunnelTestCase):
    """Ends."""

    def test_lost(self) -> None:
        """`lost` fires once, with the reason, and streams are closed."""
        tunnel = self.open()
        recorder = Recorder()
        channel = self.dial(tunnel)
        channel.receiver = recorder
        channel.resume()
        self.far.pipes[1].abort()
        self.assertEqual(len(self.lost), 1)
        self.assertEqual(recorder.log, ["closed"])
        self.assertFalse(tunnel.is_open)
        tunnel.close("again")  # does nothing
        self.nothing_left()

    def test_dead(self) -> None:
        """A silent node is given up within three keepalives; a node that rejects them is not."""
        tunnel = self.open(keepalive=15.0)
        self.far.wait(200)
        self.assertTrue(tunnel.is_open)
        for pipe in self.far.pipes:
            pipe.paused = True
        self.far.wait(45)
        self.assertFalse(tunnel.is_open)
        self.assertIsInstance(self.lost[0], PeerDead)

    def test_round_trip(self) -> None:
        """The round trip is known, from the handshake and then from a probe."""
        tunnel = self.open(keepalive=15.0)
        self.far.wait(3)
        self.assertEqual(tunnel.round_trip, 0.0)  # the clock stood still
        self.assertEqual(self.far.servers[0].opener.packets, 3)  # service, request, probe

    def test_retire_idle(self) -> None:
        """A tunnel without streams that retires is closed at once."""
        tunnel = self.open()
        tunnel.retire(30.0)
        self.far.pump()
        self.assertEqual(str(self.lost[0]), "the node left the list")
        self.nothing_left()

    def test_retire_busy(self) -> None:
        """With open streams it accepts no new ones, marks itself as draining, and closes after the last."""
        tunnel = self.open()
        channel = self.dial(tunnel)
        channel.receiver = Recorder()
        channel.resume()
        self.assertFalse(channel.is_leaving)
        tunnel.retire(30.0)
        self.assertTrue(tunnel.draining)
        self.assertTrue(channel.is_leaving)
        self.failureResultOf(tunnel.dial("a", 1), TunnelLost)
        self.far.wait(10)
        self.assertTrue(tunnel.is_open)
        channel.close()
        self.far.wait(1)
        self.assertFalse(tunnel.is_open)
        self.nothing_left()

    def test_retire_grace(self) -> None:
        """Streams that do not end are cut when the grace is over."""
        tunnel = self.open()
        channel = self.dial(tunnel)
        recorder = Recorder()
        channel.receiver = recorder
        channel.resume()
        tunnel.retire(5.0)
        self.far.wait(4.5)
        self.assertTrue(tunnel.is_open)
        self.far.wait(0.5)
        self.assertFalse(tunnel.is_open)
        self.assertEqual(recorder.log, ["closed"])
        self.nothing_left()

    def test_retire_unopened(self) -> None:
        """One that is being opened is given up."""
        tunnel = self.far.tunnel()
        opening = tunnel.open()
        tunnel.retire(5.0)
        self.failureResultOf(opening, CancelledError)
        self.nothing_left()


_DONE = Failure(ConnectionDone())


class Chatter(Protocol):
    """Sends data and receives the echo."""

    def __init__(self) -> None:
        self.got = b""
        self.over: Failure | None = None

    def connectionMade(self) -> None:
        """Send the data."""
        assert self.transport is not None
        self.transport.write(b"hello")

    def dataReceived(self, data: bytes) -> None:
        """Receive the echo."""
        self.got += data

    def connectionLost(self, reason: Failure = _DONE) -> None:
        """Record the end."""
        self.over = reason


class EndpointTests(TunnelTestCase):
    """An ``IStreamClientEndpoint`` through a tunnel."""

    def connect(self, tunnel: NodeTunnel, build: Callable[[], Protocol] = Chatter) -> Deferred[Any]:
        """Connect a protocol."""
        connecting: Deferred[Any] = tunnel.endpoint("10.0.0.1", 10250).connect(Factory.forProtocol(build))
        self.far.pump()
        return connecting

    def test_connect(self) -> None:
        """A protocol of Twisted's talks through it."""
        protocol = self.successResultOf(self.connect(self.open()))
        self.assertEqual(protocol.got, b"hello")
        protocol.transport.loseConnection()
        self.far.pump()
        protocol.over.trap(ConnectionDone)

    def test_refused(self) -> None:
        """A refusal is Twisted's kind of error, with the node's reason."""
        tunnel = self.open()
        self.far.decide = self.far.refusing(2, b"Connection refused")
        error = self.failureResultOf(self.connect(tunnel), ConnectError).value
        self.assertIn('did not connect to 10.0.0.1:10250: its sshd reports: "Connection refused"', str(error))

    def test_gone(self) -> None:
        """Without an open tunnel the connection fails too."""
        error = self.failureResultOf(self.connect(self.far.tunnel()), ConnectError).value
        self.assertIn("tunnel is not opened.", str(error))

    def test_cancel(self) -> None:
        """Cancelling leaves no stream behind."""
        tunnel = self.open()
        connecting = tunnel.endpoint("10.0.0.1", 10250).connect(Factory.forProtocol(Chatter))
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.far.pump()
        self.assertEqual(tunnel.streams, 0)
