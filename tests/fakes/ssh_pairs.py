"""Both ends of an SSH connection in memory, on one clock, with the bytes in between in the test's hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from tower.clusters.agent_rejection import AgentRejected
from tower.conch.connection import mux
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.conch.transport.transport import SecureTransport
from tower.errors import Unauthorized
from tower.v2.hello import AgentHello
from tower.v2.transport import ClientTransport, ServerTransport
from tower.v2.userauth import Gatekeeper

HOST_KEY = KeyPair.generate()
AGENT_KEY = KeyPair.generate()


class Wire(StringTransport):
    """A transport that is disconnected as soon as one side closes it."""

    disconnected = False

    def abortConnection(self) -> None:
        """See ITCPTransport."""
        super().abortConnection()
        self.loseConnection()


class Gate(Gatekeeper):
    """A gatekeeper with fixed keys and tokens.

    :ivar enrolled: pairs of cluster and fingerprint.
    :ivar tokens: token to the cluster it is for.
    :ivar asked: what it was asked, in order.
    :ivar rejection: raised for each key, if set.
    :ivar pending: if a list, verdicts about keys wait in it until the test fires them.
    """

    def __init__(self) -> None:
        self.enrolled: set[tuple[str, str]] = set()
        self.tokens: dict[str, str] = {}
        self.asked: list[tuple[str, ...]] = []
        self.rejection: AgentRejected | None = None
        self.pending: list[Deferred[bool]] | None = None

    def is_enrolled(self, cluster: str, fingerprint: str) -> bool | Deferred[bool]:
        """See Gatekeeper."""
        self.asked.append(("key", cluster, fingerprint))
        if self.rejection is not None:
            raise self.rejection
        if self.pending is None:
            return (cluster, fingerprint) in self.enrolled
        verdict: Deferred[bool] = Deferred()
        self.pending.append(verdict)
        return verdict

    async def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes) -> None:
        """See Gatekeeper."""
        self.asked.append(("token", cluster, token, fingerprint))
        if self.tokens.get(token) != cluster:
            raise Unauthorized(reason="the token is unknown")
        self.enrolled.add((cluster, fingerprint))


class Ends:
    """A server's and a client's transport, not yet connected.

    :ivar lost: why which end was lost.
    :ivar cut: how many bytes are delivered at once; None for all there are.
    :ivar carried: delivered data, and its sender.
    """

    def __init__(self, server: SecureTransport, client: SecureTransport) -> None:
        self.cut: int | None = None
        self.ends: tuple[SecureTransport, SecureTransport] = (server, client)
        self.lost: dict[SecureTransport, Exception] = {}
        self._wires: dict[SecureTransport, Wire] = {}
        self.carried: list[tuple[SecureTransport, bytes]] = []
        for end in self.ends:
            end.lost.addCallback(self._note, end)

    def _note(self, reason: Exception, end: SecureTransport) -> None:
        self.lost[end] = reason

    def connect(self) -> None:
        """Connect both and carry bytes until there are none."""
        for end in self.ends:
            end.makeConnection(Wire())
        self.pump()

    def wire(self, end: SecureTransport) -> Wire:
        """Return the transport under one end."""
        transport: Any = end.transport
        if transport is not None:  # an end that is over has let go of it
            self._wires[end] = transport
        return self._wires[end]

    def pump(self) -> None:
        """Carry bytes until there are none, and close closing connections."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Carry what is there once in each direction; return whether there was anything."""
        moved = False
        for end, other in (self.ends, self.ends[::-1]):
            data = self.wire(end).value()
            self.wire(end).clear()
            if data:
                moved = True
                self.carried.append((end, data))
                step = self.cut or len(data)
                for start in range(0, len(data), step):
                    if other not in self.lost:
                        other.dataReceived(data[start : start + step])
        for end in self.ends:
            if self.wire(end).disconnecting and end not in self.lost:
                self.lose()
                return True
        return moved

    def lose(self) -> None:
        """Break the connection, after delivering bytes in transit."""
        for end, other in (self.ends, self.ends[::-1]):
            data = self.wire(end).value()
            self.wire(end).clear()
            if data and other not in self.lost:
                other.dataReceived(data)
        for end in self.ends:
            if end not in self.lost:
                end.connectionLost(Failure(ConnectionDone()))


class Pair(Ends):
    """A proxy's and an agent's transport, not yet connected.

    :ivar clock: of both.
    """

    def __init__(
        self,
        *,
        gate: Gate | None = None,
        token: str | None = None,
        pinned: tuple[str, ...] = (HOST_KEY.fingerprint,),
        host_keys: tuple[KeyPair, ...] = (HOST_KEY,),
        limits: TransportLimits | None = None,
        client_limits: TransportLimits | None = None,
        keepalive: float = 0.0,
    ) -> None:
        self.clock = Clock()
        if gate is None:
            gate = Gate()
            gate.enrolled.add(("alpha", AGENT_KEY.fingerprint))
        self.gate = gate
        self.server = ServerTransport(self.clock, host_keys, gate, keepalive=keepalive, limits=limits)
        self.client = ClientTransport(
            self.clock,
            AGENT_KEY,
            "alpha",
            pinned,
            AgentHello(version="1", name="host", targets=("kubernetes",)),
            token=token,
            keepalive=keepalive,
            limits=client_limits or limits,
        )
        super().__init__(self.server, self.client)
        for ready in (self.server.ready, self.client.ready):
            ready.addErrback(lambda failure: None)


class Mux(mux.Mux):
    """Records channel messages."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []

    def message(self, kind: int, payload: memoryview) -> None:
        """See tower.conch.connection.mux.Mux."""
        self.got.append((kind, bytes(payload)))


def raiser(error: Exception) -> Callable[..., Any]:
    """Return a callable that raises *error*."""

    def call(*args: object) -> None:
        raise error

    return call


class Sent:
    """The part of a transport that the service uses."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, bytes]] = []
        self.unknown = 0
        self.order: list[tuple[bytes, int]] = []

    def answered(self, name: bytes) -> None:
        """Record the answered request and the number of packets."""
        self.order.append((name, len(self.packets)))

    def refused(self, name: bytes) -> None:
        """Refusals are seen by their packets."""

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        """Record it."""
        self.packets.append((messageType, payload))

    def sendUnimplemented(self) -> None:
        """Count it."""
        self.unknown += 1
