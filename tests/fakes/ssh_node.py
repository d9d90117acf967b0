"""A node in memory: an SSH server with public key login; the test decides about channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from attrs import frozen
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.conch.ssh.service import SSHService
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from tests.fakes.ssh_keys import KEYS, PRIVATE
from tests.fakes.ssh_pairs import HOST_KEY
from tests.fakes.tunnel_pairs import MemoryPipe
from tower.clusters.node import Node
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.connection.messages import REFUSE
from tower.conch.connection.server import USERAUTH, Server
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.keys import ED25519
from tower.conch.transport.limits import TransportLimits
from tower.conch.transport.signatures import RSA, RSA_SHA2_256, RSA_SHA2_512, SIGNATURES
from tower.conch.transport.userauth_messages import (
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.budget import Budget
from tower.net.pipes import Splice
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeys
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel
from tower.reactor.interfaces import ISocketReactor

NODE = Node("192.0.2.7", 22, name="n1")
EVERY_SIGNATURE = b",".join(name for names in SIGNATURES.values() for name in names)
_PK_AUTH = b"publickey"


@frozen
class Asked:
    """A login request.

    :ivar line: the key's line for authorized_keys.
    :ivar good: whether the signature is.
    """

    user: str
    algorithm: bytes
    line: bytes
    good: bool


class NodeAuth(SSHService):
    """The server's side of public key authentication, checked by Conch."""

    name = USERAUTH

    def __init__(self, far: FarNode) -> None:
        self._far = far

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Judge a request."""
        far = self._far
        transport: Any = self.transport
        assert messageNum == MSG_USERAUTH_REQUEST
        fields = MessageReader(packet)
        user, _, method, signed = fields.string(), fields.string(), fields.string(), fields.boolean()
        algorithm, blob = fields.string(), fields.string()
        assert (method, signed) == (_PK_AUTH, True)
        data = NS(transport.sessionID) + bytes((MSG_USERAUTH_REQUEST,)) + fields.before()
        signature = fields.string()
        key = Key.fromString(blob)
        good = key.verify(signature, data) and MessageReader(signature).string() == algorithm
        line = key.toString("openssh") + b"\n"
        far.asked.append(Asked(user.decode(), algorithm, line, good))
        for text in far.greetings:
            transport.sendPacket(MSG_USERAUTH_BANNER, NS(text) + NS(b""))
        if len(far.asked) <= far.refuse_first:
            transport.sendPacket(MSG_USERAUTH_FAILURE, failure())
        elif far.refuse_with is not None:
            transport.sendPacket(MSG_USERAUTH_FAILURE, far.refuse_with)
        elif good:
            transport.sendPacket(MSG_USERAUTH_SUCCESS, b"")
            transport.admit()


class NodeServer(Server):
    """The server's end."""

    tunnel: SSHTunnel

    def __init__(self, far: FarNode, clock: Clock) -> None:
        super().__init__(clock, HOST_KEY, 0.0, TransportLimits())
        self._far = far
        self.supportedPublicKeys = list(far.host_key_algorithms)
        self.ourVersionString = far.version
        self.auth = NodeAuth(far)
        for name, value in far.offers.items():
            setattr(self, name, value)

    def _getHostKeys(self, keyAlg: bytes) -> tuple[Key, Key]:
        kind = next(kind for kind, names in SIGNATURES.items() if keyAlg in names)
        key = Key(PRIVATE[kind])
        return key.public(), key

    def connectionMade(self) -> None:
        """Send the text before the version."""
        assert self.transport is not None
        self.transport.write(self._far.preface)
        super().connectionMade()

    def secured(self) -> None:
        """Send the extensions."""
        if self._far.extensions is not None:
            self.sendPacket(7, self._far.extensions)

    def admit(self) -> None:
        """Accept the login, and send what OpenSSH sends then."""
        self.start_connection()
        self.handshake_done()
        self.sendPacket(80, NS(b"hostkeys-00@openssh.com") + b"\0" + NS(KEYS[ED25519].blob))
        self.tunnel.open_up("node", "", "", 0.0, Budget(64 << 20), self._decide)

    def _decide(self, incoming: Incoming) -> None:
        self._far.decide(incoming)


class FarNode:
    """A node whose behaviour the test sets.

    :ivar asked: the login requests.
    :ivar refuse_with: the body of the failure for every login; None accepts all.
    :ivar refuse_first: how many requests are refused before.
    :ivar host_key_algorithms: what it proves its keys with.
    :ivar extensions: the body of its EXT_INFO; None: it sends none.
    :ivar offers: lists of its KEXINIT to be replaced, by Conch's names.
    :ivar wanted: (host, port) of each requested channel.
    :ivar decide: what it does about channels; the default connects all to themselves.
    :ivar servers: every connection's end.
    :ivar dialed: the addresses of all connections.
    """

    answers: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.asked: list[Asked] = []
        self.greetings: Sequence[bytes] = (b"Welcome to the node.\r\n",)
        self.refuse_with: bytes | None = None
        self.refuse_first = 0
        self.host_key_algorithms: Sequence[bytes] = (RSA_SHA2_512, RSA_SHA2_256)
        self.extensions: bytes | None = extensions(EVERY_SIGNATURE)
        self.offers: dict[str, list[bytes]] = {}
        self.version, self.preface = b"SSH-2.0-OpenSSH_9.2p1 Debian-2", b""
        self.wanted: list[tuple[str, int]] = []
        self.decide: Callable[[Incoming], object] = self.echo
        self.servers: list[NodeServer] = []
        self.pipes: list[MemoryPipe] = []
        self.dialed: list[tuple[str, int]] = []

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Connect, as `tower.nodes.ssh.client.Dial`."""
        self.dialed.append((host, port))
        near, far = MemoryPipe(), MemoryPipe()
        near.other, far.other = far, near
        self.pipes += [near, far]
        server = NodeServer(self, self.clock)
        server.tunnel = SSHTunnel(self.clock, far, server, UNFRAMED, UNFRAMED)
        server.tunnel.start()
        self.servers.append(server)
        return succeed(near)

    def tunnel(
        self,
        key: ClientKey = KEYS[RSA],
        host_keys: HostKeys | None = None,
        user: str = "foo",
        node: Node = NODE,
        **named: Any,
    ) -> NodeTunnel:
        """Return a tunnel to it, not opened yet."""
        login = NodeLogin(user, lambda: key, host_keys or AnyHostKey())
        return NodeTunnel(
            cast(ISocketReactor, self.clock),
            self.clock,
            node,
            login,
            Budget(64 << 20),
            epoch=lambda: 5.0,
            **{"dial": self.dial, "keepalive": 0, **named},
        )

    def pump(self) -> None:
        """Carry bytes until none are left."""
        for _ in range(10_000):
            self.clock.advance(0)
            busy = any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls())
            for pipe in list(self.pipes):
                busy |= pipe.carry(1 << 16)
                pipe.settle()
            if not busy:
                return
        raise AssertionError("they do not stop talking")

    def wait(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.pump()

    def echo(self, incoming: Incoming) -> Channel:
        """Connect a channel to itself."""
        assert incoming.kind == b"direct-tcpip"
        fields = MessageReader(incoming.data)
        self.wanted.append((fields.string().decode(), fields.number()))
        channel = incoming.accept()
        channel.receiver = Splice(channel, channel)
        channel.resume()
        return channel

    def refusing(self, reason: int, text: bytes) -> Callable[[Incoming], None]:
        """Return what refuses channels as OpenSSH does."""

        def refuse(incoming: Incoming) -> None:
            body = incoming._remote.to_bytes(4, "big") + reason.to_bytes(4, "big") + NS(text) + NS(b"")
            incoming._mux._pending -= 1
            incoming._mux.wire.send(bytes((REFUSE,)) + body)

        return refuse


def extensions(signatures: bytes) -> bytes:
    """Return the body of an EXT_INFO."""
    return (
        (2).to_bytes(4, "big") + NS(b"server-sig-algs") + NS(signatures) + NS(b"ping@openssh.com") + NS(b"0")
    )


def failure(methods: bytes = _PK_AUTH, *, partly: bool = False) -> bytes:
    """Return the body of a USERAUTH_FAILURE."""
    return NS(methods) + bytes((partly,))
