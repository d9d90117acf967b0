"""Tower's ends of SSH on bare loopback connections, for peers that do not know Tower.

Such a peer does not send a hello, so these ends open their tunnel as soon as the peer is authenticated.  All
else is what proxy and agent run: the same transports, the same fast path.
"""

from __future__ import annotations

import struct
from typing import Any

from twisted.conch.ssh.common import NS
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.fakes.ssh_pairs import Gate
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.budget import Budget
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.net.pipes import Receiver, Splice
from tower.v2.enrol import Claim
from tower.v2.hello import AgentHello
from tower.v2.transport import ClientTransport, ServerTransport

LOOPBACK = "127.0.0.1"
KEEPALIVE = 30.0  # s: longer than the silence of a peer on a busy machine
CLUSTER = "alpha"
MIB = 1 << 20


def counted(transport: ServerTransport | ClientTransport) -> list[int]:
    """Return a list that grows with each change of the keys we send with, the first one not counted."""
    changes: list[int] = []
    before = transport.on_keys

    def note() -> None:
        changes.append(transport.sealer.sequence)
        before()

    transport.on_keys = note
    return changes


class ProxyEnd(ServerTransport):
    """A server that opens its tunnel without a hello; every channel echoes.

    :ivar tunnel: on top of it; set before it is connected, as is `socket`.
    :ivar changes: see `counted`.
    """

    socket: Connection
    tunnel: SSHTunnel
    changes: list[int]

    def _accepted(self, claim: Claim) -> None:
        super()._accepted(claim)
        self.start_keepalives(self.clock.seconds())
        self.tunnel.open_up(CLUSTER, "", "", 0.0, Budget(8 * MIB), self.echo)
        self.changes = counted(self)

    def echo(self, incoming: Incoming) -> None:
        """Accept a channel that echoes."""
        channel = incoming.accept()
        channel.receiver = Splice(channel, channel)
        channel.resume()


class Proxy:
    """Listens for agents.

    :param keepalive: of its ends, s.
    :ivar ends: of all agents so far.
    """

    def __init__(self, reactor: Any, limits: TransportLimits, keepalive: float = KEEPALIVE) -> None:
        self._reactor = reactor
        self._limits = limits
        self._keepalive = keepalive
        self.host_key = KeyPair.generate()
        self.gate = Gate()
        self.ends: list[ProxyEnd] = []
        self._port: Any = listen(reactor, 0, LOOPBACK, self._accept)
        address: Any = self._port.getHost()
        self.port: int = address.port

    def _accept(self, connection: Connection) -> Receiver:
        end = ProxyEnd(
            self._reactor, [self.host_key], self.gate, limits=self._limits, keepalive=self._keepalive
        )
        end.ready.addErrback(lambda _: None)
        end.socket = connection
        end.tunnel = SSHTunnel(self._reactor, connection, end, UNFRAMED, UNFRAMED)
        self.ends.append(end)
        end.tunnel.start()
        return connection.receiver

    async def stop(self) -> None:
        """Close the port and its connections, and wait for that."""
        await self._port.stopListening()
        for end in self.ends:
            await finish(self._reactor, end)


class AgentEnd(ClientTransport):
    """A client that opens its tunnel without a hello; see `ProxyEnd`."""

    socket: Connection
    tunnel: SSHTunnel
    changes: list[int]
    opened: Deferred[AgentEnd]

    def _accepted(self) -> None:
        self.authenticated()
        self.setService(self.connection)
        self.start_keepalives(self.clock.seconds())
        self.tunnel.open_up(CLUSTER, "", "", 0.0, Budget(8 * MIB))
        self.changes = counted(self)
        self.opened.callback(self)


async def dial(
    reactor: Any,
    port: int,
    key: KeyPair,
    user: str,
    host_key: str,
    limits: TransportLimits,
    **lists: list[bytes],
) -> AgentEnd:
    """Connect to an SSH server and return our end when the server has authenticated us.

    :param lists: to offer instead of the defaults: ``supportedCiphers``, for example.
    """
    connection = await connect(reactor, LOOPBACK, port)
    end = AgentEnd(reactor, key, user, {host_key}, AgentHello(), limits=limits, keepalive=KEEPALIVE)
    for name, value in lists.items():
        setattr(end, name, value)
    end.opened = Deferred()
    end.ready.addErrback(lambda failure: None if end.opened.called else end.opened.errback(failure))
    end.socket = connection
    end.tunnel = SSHTunnel(reactor, connection, end, UNFRAMED, UNFRAMED)
    end.tunnel.start()
    return await end.opened


class Echoed:
    """Sends bytes into a channel as it takes them, and collects the echo.

    :ivar done: fires with the whole echo, when the channel is closed.
    """

    def __init__(self, channel: Channel, data: bytes) -> None:
        self._channel = channel
        self._data = memoryview(data)
        self._back = bytearray()
        self.done: Deferred[bytes] = Deferred()
        channel.receiver = self
        channel.resume()
        self.drained()

    def received(self, data: memoryview) -> None:
        """Collect."""
        self._back += data

    def drained(self) -> None:
        """Send on."""
        while self._data:
            piece, self._data = self._data[:100_000], self._data[100_000:]
            if not self._channel.send(piece):
                return
        self._channel.finish()

    def ended(self) -> None:
        """The echo is over."""
        self._channel.close()

    def closed(self, reason: Exception) -> None:
        """Report."""
        self.done.callback(bytes(self._back))


async def echoed(end: AgentEnd, port: int, data: bytes) -> bytes:
    """Send *data* to *port* through a ``direct-tcpip`` channel (RFC 4254 section 7.2); return the echo."""
    where = NS(LOOPBACK) + struct.pack(">L", port) + NS(LOOPBACK) + struct.pack(">L", 1)
    mux = end.tunnel.mux
    assert mux is not None
    return await Echoed(await mux.open(b"direct-tcpip", where), data).done


async def finish(reactor: Any, end: ProxyEnd | AgentEnd) -> None:
    """Close our end and wait until its socket is closed, which waits for the peer for a short time."""
    end.close("the test is over")
    while end.socket.fileno() >= 0:
        await deferLater(reactor, 0.01, lambda: None)
