"""Tunnels to nodes whose SSH server is OpenSSH's."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.fakes.receivers import Recorder
from tests.integration.closed_sockets import sockets_closed
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK
from tests.integration.ssh_ends import KEEPALIVE, MIB, Echoed
from tests.integration.sshd import SSHD, Sshd, write_key
from tower.clusters.node import Node
from tower.conch.connection.channel import Channel
from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.keys import fingerprint
from tower.conch.transport.limits import HandshakeTimeout, TransportLimits
from tower.errors import StreamRefused, TunnelLost
from tower.net.budget import Budget
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.net.pipes import Receiver, Splice
from tower.nodes.ssh.auth import AuthRefused
from tower.nodes.ssh.client import NothingInCommon
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.command import run_ssh_command
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeyRefused, HostKeyUnknown
from tower.nodes.ssh.known_hosts import KnownHosts
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel

reactor: Any = _reactor

LOOPBACK_6 = "::1"
DATA = random.Random(6).randbytes(8 * MIB)
EVERY_TYPE = ("ed25519", "ecdsa", "ecdsa384", "ecdsa521", "rsa")
OFTEN = TransportLimits(handshake=30, rekey_bytes=MIB)
UNANSWERED = 3  # keepalives after which sshd gives us up
RESOLVED = 60.0  # s for a name that does not resolve


class NodeTestCase(TestCase):
    """A folder, a key in it, an echo service, and the servers that the test starts."""

    timeout = 600

    def setUp(self) -> None:
        """Make them."""
        if SSHD is None:
            raise SkipTest("no OpenSSH server")
        self.addCleanup(sockets_closed)
        self.folder = Path(tempfile.mkdtemp(prefix="tower-node-"))
        self.folder.chmod(0o711)
        self.addCleanup(shutil.rmtree, self.folder)
        self.key = self.folder / "key"
        self.line = write_key(self.key)
        self.known = self.folder / "known_hosts"
        self.tunnels: list[NodeTunnel] = []
        self.sockets: list[Connection] = []
        self.addCleanup(lambda: Deferred.fromCoroutine(self._all_gone()))
        self.echo_port = self.serve(lambda connection: Splice(connection, connection))

    async def _all_gone(self) -> None:
        """Close what is open and wait for the last socket."""
        for tunnel in self.tunnels:
            if tunnel.is_open:
                tunnel.close("the test is over")
        while any(socket.fileno() >= 0 for socket in self.sockets):
            await deferLater(reactor, 0.01)

    def serve(self, make: Any, host: str = LOOPBACK) -> int:
        """Listen; *make* returns a connection's receiver."""

        def accept(connection: Connection) -> Receiver:
            self.sockets.append(connection)
            receiver: Receiver = make(connection)
            return receiver

        port: Any = listen(reactor, 0, host, accept)
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    def sshd(
        self,
        *,
        host: str = LOOPBACK,
        types: tuple[str, ...] = ("ed25519",),
        options: Mapping[str, str] | None = None,
        **more: str,
    ) -> Sshd:
        """Start a server that lets the key in; options have OpenSSH's names."""
        server = Sshd(
            self.folder / f"sshd-{len(list(self.folder.iterdir()))}",
            host=host,
            host_key_types=types,
            authorized=[self.line],
            options={**(options or {}), **more},
        )
        self.addCleanup(server.stop)
        server.start()
        self.known.write_text(server.known_hosts_line())
        return server

    def tunnel(
        self, server: Sshd, *, limits: TransportLimits | None = None, blind: bool = False, **named: Any
    ) -> NodeTunnel:
        """Return a tunnel to *server*, not opened."""
        host_keys = AnyHostKey() if blind else KnownHosts(self.known)
        login = NodeLogin(server.user, lambda: ClientKey.load(self.key), host_keys)

        def dial(host: str, port: int) -> Deferred[Connection]:
            return connect(reactor, host, port).addCallback(self._note)

        tunnel = NodeTunnel(
            reactor,
            reactor,
            Node(server.host, server.port),
            login,
            Budget(32 * MIB),
            epoch=reactor.seconds,
            limits=limits,
            **{"keepalive": KEEPALIVE, "dial": dial, **named},
        )
        self.tunnels.append(tunnel)
        return tunnel

    def _note(self, connection: Connection) -> Connection:
        self.sockets.append(connection)
        return connection

    async def open(self, server: Sshd, **named: Any) -> NodeTunnel:
        """Return a tunnel to *server*."""
        tunnel = self.tunnel(server, **named)
        await tunnel.open()
        return tunnel

    async def cause(self, tunnel: NodeTunnel) -> Exception:
        """Return why *tunnel* is not opened."""
        with self.assertRaises(OpenFailed) as caught:
            await tunnel.open()
        error = caught.exception
        self.assertTrue(str(error).startswith("error getting SSH client to "), str(error))
        cause: Exception = error.cause
        return cause

    async def echoed(self, tunnel: NodeTunnel, data: bytes = DATA) -> bytes:
        """Return the echoed data."""
        return await Echoed(await tunnel.dial(LOOPBACK, self.echo_port), data).done

    async def recorded(self, tunnel: NodeTunnel, port: int | None = None) -> tuple[Channel, Recorder]:
        """Return a stream to *port*, or to the echo, with a recorder."""
        channel = await tunnel.dial(LOOPBACK, port or self.echo_port)
        recorder = Recorder()
        channel.receiver = recorder
        channel.resume()
        return channel, recorder

    async def until(self, done: Any) -> None:
        """Wait until *done* returns something true; the test's own limit ends it otherwise."""
        while not done():
            await deferLater(reactor, 0.01)


@contextmanager
def counting(tunnel: NodeTunnel) -> Iterator[list[None]]:
    """Count the changes of keys that we send with."""
    assert tunnel._tunnel is not None
    ssh: Any = tunnel._tunnel._ssh
    changes: list[None] = []
    before = ssh.on_keys

    def note() -> None:
        changes.append(None)
        before()

    ssh.on_keys = note
    yield changes


class HandshakeTests(NodeTestCase):
    """Negotiation with OpenSSH."""

    async def test_ciphers(self) -> None:
        """Each cipher, and AES-128-GCM if the server leaves it to us; key exchange is strict."""
        for cipher in (*CIPHERS, b""):
            server = self.sshd(options={"Ciphers": cipher.decode()} if cipher else {})
            tunnel = await self.open(server)
            self.assertTrue(await self.echoed(tunnel) == DATA)
            assert tunnel._tunnel is not None
            ssh: Any = tunnel._tunnel._ssh
            self.assertTrue(ssh._order.strict)
            name = "ChaChaSealer" if b"chacha" in cipher else "GCMSealer"
            self.assertEqual(type(ssh.sealer).__name__, name)
            self.assertGreater(tunnel.round_trip, 0)

    async def test_host_keys(self) -> None:
        """Each type of host key; a server with all types presents the known one."""
        for kind in EVERY_TYPE:
            server = self.sshd(types=(kind,))
            tunnel = await self.open(server)
            self.assertEqual(tunnel.host_key, _fingerprint(server.host_keys[0]))
        server = self.sshd(types=EVERY_TYPE)
        for line in server.host_keys:
            self.known.write_text(f"[{LOOPBACK}]:{server.port} {line}\n")
            os.utime(self.known, (len(line), len(line)))
            tunnel = await self.open(server)
            self.assertEqual(tunnel.host_key, _fingerprint(line))

    async def test_client_keys(self) -> None:
        """Each type of client key; the file is read for each tunnel, so a new key is used at once."""
        server = self.sshd()
        for kind in EVERY_TYPE:
            server.authorize(write_key(self.key, kind))
            tunnel = await self.open(server)
            self.assertEqual(await self.echoed(tunnel, b"hello"), b"hello")

    async def test_rsa_signatures(self) -> None:
        """A server gets an RSA signature that it accepts, also if it accepts less than it lists."""
        for algorithm in ("rsa-sha2-256", "rsa-sha2-512"):
            server = self.sshd(PubkeyAcceptedAlgorithms=algorithm)
            server.authorize(write_key(self.key, "rsa"))
            await self.open(server)

    async def test_nothing_in_common(self) -> None:
        """The error about a server without a common cipher has the server's list."""
        server = self.sshd(Ciphers="aes128-ctr,aes256-ctr")
        cause = await self.cause(self.tunnel(server))
        self.assertIsInstance(cause, NothingInCommon)
        self.assertIn("aes128-ctr,aes256-ctr", str(cause))

    async def test_only_odd_macs(self) -> None:
        """A server whose MACs we lack has no need of them with our ciphers."""
        await self.open(self.sshd(MACs="umac-64@openssh.com"))

    async def test_other_host_key(self) -> None:
        """A server with an unknown key, or one other than the known one, receives no login."""
        server = self.sshd()
        self.known.write_text(f"[{LOOPBACK}]:{server.port} {self.line}\n")
        cause = await self.cause(self.tunnel(server))
        self.assertIsInstance(cause, HostKeyRefused)
        self.assertIn(f"{self.known} line 1", str(cause))
        self.assertIn(_fingerprint(server.host_keys[0]), str(cause))
        self.known.write_text("")
        self.assertIsInstance(await self.cause(self.tunnel(server)), HostKeyUnknown)
        await self.open(server, blind=True)
        self.assertNotIn("Failed publickey", server.log())

    async def test_wrong_key(self) -> None:
        """A key that the server does not know is refused, with user, key and methods in the text."""
        server = self.sshd()
        write_key(self.key, "ecdsa")
        cause = await self.cause(self.tunnel(server))
        self.assertIsInstance(cause, AuthRefused)
        for word in (server.user, ClientKey.load(self.key).fingerprint, 'it offers "publickey'):
            self.assertIn(word, str(cause))

    async def test_version_6(self) -> None:
        """A node with an IPv6 address, and a target with one."""
        server = self.sshd(host=LOOPBACK_6)
        port = self.serve(lambda connection: Splice(connection, connection), host=LOOPBACK_6)
        tunnel = await self.open(server)
        channel = await tunnel.dial(LOOPBACK_6, port)
        self.assertEqual(await Echoed(channel, b"hello").done, b"hello")

    async def test_never_speaks(self) -> None:
        """A silent port is given up when the time limit of the handshake is over."""
        server = self.sshd()
        server.port = self.serve(lambda connection: Recorder(ended=connection.close))
        cause = await self.cause(self.tunnel(server, limits=TransportLimits(handshake=0.2)))
        self.assertIsInstance(cause, HandshakeTimeout)
        self.assertIn("i/o timeout", str(cause))

    async def test_speaks_something_else(self) -> None:
        """So is one behind which something else speaks, at once."""

        def answer(connection: Connection) -> Receiver:
            connection.send(b"220 mail.example.org ESMTP\r\n" * 200)
            return Recorder(ended=connection.close)

        server = self.sshd()
        server.port = self.serve(answer)
        self.assertIn("no SSH version line", str(await self.cause(self.tunnel(server))))

    async def test_no_listener(self) -> None:
        """A node without a server."""
        server = self.sshd()
        server.port = free_port()
        self.assertIn("connection refused", str(await self.cause(self.tunnel(server))))


class StreamTests(NodeTestCase):
    """Streams."""

    async def test_rekey(self) -> None:
        """Keys are changed in the middle of a transfer: by the server, by us, and by both."""
        for limits, settings in ((None, "1M none"), (OFTEN, "default none"), (OFTEN, "1M none")):
            server = self.sshd(RekeyLimit=settings)
            tunnel = await self.open(server, limits=limits)
            with counting(tunnel) as changes:
                transfers = [Deferred.fromCoroutine(self.echoed(tunnel)) for _ in range(3)]
                self.assertTrue(await gatherResults(transfers) == [DATA] * 3)
            self.assertGreater(len(changes), 4)

    async def test_many(self) -> None:
        """A hundred streams at once, each with its own bytes."""
        tunnel = await self.open(self.sshd())
        parts = [DATA[at : at + 20_000] for at in range(0, 2_000_000, 20_000)]
        echoes = [Deferred.fromCoroutine(self.echoed(tunnel, part)) for part in parts]
        back = await gatherResults(echoes)
        self.assertTrue(back == parts)
        await self.until(lambda: not tunnel.streams)

    async def test_half_close(self) -> None:
        """Either side may end while the other goes on."""
        tunnel = await self.open(self.sshd())
        ends: list[Connection] = []

        def keep(connection: Connection) -> Receiver:
            ends.append(connection)
            recorders.append(Recorder())
            return recorders[-1]

        recorders: list[Recorder] = []
        port = self.serve(keep)
        channel, near = await self.recorded(tunnel, port)
        await self.until(lambda: ends)
        channel.send(b"question")
        channel.finish()
        await self.until(lambda: "ended" in recorders[0].log)
        self.assertEqual(bytes(recorders[0].got), b"question")
        ends[0].send(b"answer")
        ends[0].finish()
        await self.until(lambda: "closed" in near.log)
        self.assertEqual((bytes(near.got), near.log), (b"answer", ["received", "ended", "closed"]))

        channel, near = await self.recorded(tunnel, port)
        await self.until(lambda: len(ends) == 2)
        ends[1].send(b"first")
        ends[1].finish()
        await self.until(lambda: "ended" in near.log)
        channel.send(b"last")
        channel.finish()
        await self.until(lambda: "closed" in recorders[1].log)
        self.assertEqual((bytes(near.got), bytes(recorders[1].got)), (b"first", b"last"))

    async def test_paused(self) -> None:
        """A stream that is not read delays no other stream, and buffers its window at most."""
        tunnel = await self.open(self.sshd())
        held = await tunnel.dial(LOOPBACK, self.serve(_Source))
        held.receiver = Recorder()
        self.assertTrue(await self.echoed(tunnel) == DATA)
        self.assertLessEqual(held._window.held, held._window.size)
        held.abort()

    async def refused(self, tunnel: NodeTunnel, host: str = LOOPBACK, port: int = 1) -> StreamRefused:
        """Return how a stream is refused."""
        with self.assertRaises(StreamRefused) as caught:
            await tunnel.dial(host, port, RESOLVED)
        refused: StreamRefused = caught.exception
        return refused

    async def test_refused(self) -> None:
        """No listener, no such name, or forwarding that is turned off, in general or to this address."""
        tunnel = await self.open(self.sshd())
        self.assertEqual((await self.refused(tunnel, LOOPBACK, free_port())).code, "refused")
        self.assertEqual((await self.refused(tunnel, "nowhere.invalid", 1)).code, "name")
        for settings in ({"AllowTcpForwarding": "no"}, {"PermitOpen": f"{LOOPBACK}:{self.echo_port}"}):
            tunnel = await self.open(self.sshd(options=settings))
            error = await self.refused(tunnel, LOOPBACK, 1)
            self.assertEqual(error.code, "not-allowed")
            self.assertIn("AllowTcpForwarding", str(error))
        self.assertEqual(await self.echoed(tunnel, b"allowed"), b"allowed")

    async def test_command(self) -> None:
        """A command's outputs and exit status."""
        if os.geteuid() != 0:
            raise SkipTest("only root has an account with a shell here")
        server = Sshd(self.folder / "root", authorized=[self.line], user="root")
        self.addCleanup(server.stop)
        server.start()
        self.known.write_text(server.known_hosts_line())
        said = await run_ssh_command(
            reactor,
            "cat; echo out; echo err >&2; exit 3",
            "root",
            f"{LOOPBACK}:{server.port}",
            ClientKey.load(self.key),
            host_keys=KnownHosts(self.known),
            dial=lambda host, port: connect(reactor, host, port).addCallback(self._note),
        )
        self.assertEqual(said, (b"out\n", b"err\n", 3))


class _Source:
    """Sends as much as is taken."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._call = reactor.callLater(0, self.drained)

    def drained(self) -> None:
        """Send more."""
        while self._connection.send(DATA[:100_000]):
            pass

    def received(self, data: memoryview) -> None:
        """Nothing comes."""

    def ended(self) -> None:
        """Stop reading."""
        self._connection.abort()

    def closed(self, reason: Exception) -> None:
        """Stop."""


class EndTests(NodeTestCase):
    """Nodes that die."""

    async def test_killed(self) -> None:
        """A server that is killed in the middle of a transfer: tunnel and streams end at once."""
        server = self.sshd()
        tunnel = await self.open(server, keepalive=30.0)
        _, recorder = await self.recorded(tunnel, self.serve(_Source))
        await self.until(lambda: len(recorder.got) > MIB)
        server.kill()
        reason = await tunnel.lost
        self.assertIsInstance(reason, Exception)
        self.assertEqual(recorder.log[-1], "closed")
        self.assertNotIn("ended", recorder.log)
        with self.assertRaises(TunnelLost):
            await tunnel.dial(LOOPBACK, self.echo_port)

    async def test_stopped(self) -> None:
        """A server that stands still: dialing has its limit, and keepalives find out, streams or not."""
        server = self.sshd()
        tunnel = await self.open(server, keepalive=1.0)
        _, recorder = await self.recorded(tunnel)
        server.pause()
        self.addCleanup(server.resume)
        with self.assertRaises(StreamRefused) as caught:
            await tunnel.dial(LOOPBACK, self.echo_port, timeout=0.2)
        self.assertEqual(caught.exception.code, "timeout")
        self.assertIsInstance(await tunnel.lost, PeerDead)
        self.assertEqual(recorder.log, ["closed"])
        cause = await self.cause(self.tunnel(server, limits=TransportLimits(handshake=0.2)))
        self.assertIn("i/o timeout", str(cause))

    async def test_stands_still_for_a_moment(self) -> None:
        """One that goes on in time is not given up, and nothing is lost."""
        server = self.sshd()
        tunnel = await self.open(server, keepalive=2.0)
        transfer = Deferred.fromCoroutine(self.echoed(tunnel))
        server.pause()
        await deferLater(reactor, 0.5)
        server.resume()
        self.assertTrue(await transfer == DATA)
        self.assertTrue(tunnel.is_open)

    async def test_idle(self) -> None:
        """Keepalives of both sides are answered, so an idle tunnel lives."""
        server = self.sshd(ClientAliveInterval="1", ClientAliveCountMax=str(UNANSWERED))
        tunnel = await self.open(server, keepalive=1.0)
        assert tunnel._tunnel is not None
        ssh: Any = tunnel._tunnel._ssh
        before = ssh.opener.packets
        await deferLater(reactor, UNANSWERED + 2.0)  # long enough for either to give up
        await self.until(lambda: ssh.opener.packets >= before + UNANSWERED + 2)
        self.assertTrue(tunnel.is_open)
        self.assertEqual(await self.echoed(tunnel, b"alive"), b"alive")

    async def test_retire(self) -> None:
        """A retiring tunnel lets its stream end, and then closes."""
        tunnel = await self.open(self.sshd())
        channel, recorder = await self.recorded(tunnel)
        tunnel.retire(30.0)
        with self.assertRaises(TunnelLost):
            await tunnel.dial(LOOPBACK, self.echo_port)
        channel.send(b"still here")
        await self.until(lambda: bytes(recorder.got) == b"still here")
        channel.finish()
        await tunnel.lost
        self.assertEqual(recorder.log, ["received", "ended", "closed"])

    async def test_closed(self) -> None:
        """A server receives a disconnect without our reason."""
        server = self.sshd()
        tunnel = await self.open(server)
        tunnel.close("the list changed")
        await tunnel.lost
        await self.until(lambda: ":11: closed" in server.log())
        self.assertNotIn("the list changed", server.log())


def _fingerprint(line: str) -> str:
    return fingerprint(b64decode(line.split(" ")[1]))
