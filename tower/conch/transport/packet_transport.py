# mypy: untyped-calls-exclude=twisted
"""The packets of `tower.conch.transport.transport`: receive, dispatch, send; the life of the connection.

They replace those of Conch's ``SSHTransportBase``, which has no AEAD ciphers and copies its buffer for every
packet.  Memory that a peer could fill is bounded: messages held back during a key exchange, the version line,
packets before authentication, replies to unknown messages.  Nothing is logged: the reason of the end goes to
the owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService
from twisted.conch.ssh.transport import (
    DISCONNECT_BY_APPLICATION,
    DISCONNECT_PROTOCOL_ERROR,
    DISCONNECT_TOO_MANY_CONNECTIONS,
    MSG_DISCONNECT,
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_UNIMPLEMENTED,
    SSHTransportBase,
)
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import ITCPTransport
from twisted.python.failure import Failure

from tower.conch.transport.ciphers import Opener, Sealer
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.handshake_buffer import OURS, SSH_2, HandshakeBuffer
from tower.conch.transport.kex import KexOrder, goes_during_exchange
from tower.conch.transport.limits import (
    Closed,
    Disconnected,
    HandshakeTimeout,
    TooManyConnections,
    TransportLimits,
)
from tower.conch.transport.packets import LONGEST_PACKET, ClearOpener, ClearSealer
from tower.errors import PeerError
from tower.net.pipes import Buffer
from tower.reactor.timers import Clock, Timers

#: Bytes that `ClearSealer.seal_into` needs after a message, and the most that a packet adds to it.
_ROOM = 32

#: Unknown messages that are answered before the connection is closed.
_UNKNOWN_MESSAGES = 100
#: Time to flush a closed connection, s.
_CLOSE_GRACE = 5.0

#: Types of messages that Conch dispatches to methods.
_KNOWN = frozenset((*range(1, 7), MSG_KEXINIT, MSG_NEWKEYS, 30, 31))


class _QuietLog:
    """Replaces Conch's log, which has three lines for every key exchange."""

    def debug(self, *_: object, **__: object) -> None:
        """Log nothing."""

    info = warn = error = failure = debug


def do_nothing() -> None:
    """No-op, for unset callbacks."""


class PacketTransport(SSHTransportBase):
    """SSH packets on a connection, before and after the first keys.

    :ivar sealer: makes the packets to send; replaced by each key exchange.
    :ivar opener: opens received packets; replaced likewise, within `dispatch`.
    :ivar on_exchange: called when a key exchange begins to hold back messages.
    :ivar on_keys: called when it no longer does.
    :ivar awaits_keys: whether the peer has begun a key exchange: only `dispatch` knows which messages are
        allowed.
    :ivar lost: fires with the reason, an exception, when the connection is lost.
    """

    __slots__ = (
        "_authenticated",
        "_handshake_buffer",
        "_held",
        "_held_bytes",
        "_holding_back",
        "_order",
        "_over",
        "_reason",
        "_timers",
        "_unknown",
        "clock",
        "limits",
        "lost",
        "on_exchange",
        "on_keys",
        "opener",
        "sealer",
    )

    ourVersionString = OURS
    #: Pattern of the peer's version line.
    wanted_version = SSH_2

    _log: Any = _QuietLog()

    transport: ITCPTransport | None
    sealer: Sealer
    opener: Opener

    def __init__(self, clock: Clock, limits: TransportLimits) -> None:
        self.clock = clock
        self.limits = limits
        self.sealer = ClearSealer(0)
        self.opener = ClearOpener(limit=limits.early_packet)
        self.on_exchange: Callable[[], None] = do_nothing
        self.on_keys: Callable[[], None] = do_nothing
        self.lost: Deferred[Exception] = Deferred()
        self.awaits_keys = False
        self._order = KexOrder(is_client=self.isClient)
        self._handshake_buffer: HandshakeBuffer | None = HandshakeBuffer()
        self._authenticated = False
        self._over = False
        self._reason: Exception | None = None
        self._holding_back = False
        self._held: list[tuple[int, bytes]] = []
        self._held_bytes = 0
        self._unknown = 0
        self._timers = Timers(clock)

    # -- the connection's life

    def makeConnection(self, transport: Any) -> None:
        """Start on *transport*, an ``ITransport``."""
        SSHTransportBase.makeConnection(self, transport)

    def connectionMade(self) -> None:
        """Send our version line."""
        assert self.transport is not None
        self._timers.set("handshake", self.limits.handshake, self._handshake_timed_out)
        self.transport.write(self.ourVersionString + b"\r\n")

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Stop all timers and services and report the reason."""
        self._over = True
        self._timers.cancel_all()
        service, self.service = self.service, None
        if service is not None:
            service.serviceStopped()
        why = self._reason
        if why is None:
            cause = None if reason is None else reason.value
            why = cause if isinstance(cause, Exception) else ConnectionLost()
        self.ended(why)
        self.lost.callback(why)
        # No cycles remain: a proxy with many short-lived agents need not wait for the garbage collector.
        self.transport = None
        self.on_exchange = self.on_keys = do_nothing

    def ended(self, reason: Exception) -> None:
        """Called once when the connection is lost, before `lost` fires.  Override."""

    def _handshake_timed_out(self) -> None:
        self.fail(HandshakeTimeout(f"not authenticated within {self.limits.handshake:g} s"))

    def close(self, text: str) -> None:
        """Send *text* to the peer as the reason, and close after flushing."""
        self.fail(Closed(text), DISCONNECT_BY_APPLICATION)

    def fail(self, reason: Exception, code: int = DISCONNECT_PROTOCOL_ERROR) -> None:
        """Close because of *reason*; the peer gets its text, `lost` the exception.  Only the first counts.

        If the text is only for our log, the peer gets `PeerError.for_peer`.
        """
        if self._over or self._reason is not None:
            return
        self._reason = reason.with_traceback(None)
        for_peer = reason.for_peer if isinstance(reason, PeerError) else ""
        text = (for_peer or str(reason)).encode()[:256]
        self.sendPacket(MSG_DISCONNECT, code.to_bytes(4, "big") + NS(text) + NS(b""))
        if not self._over:  # else the connection was lost in this call
            self._end(reason)

    def _end(self, reason: Exception) -> None:
        assert self.transport is not None
        self._over = True
        self._reason = reason.with_traceback(None)
        self._timers.cancel_all()
        self._timers.set("close", _CLOSE_GRACE, self.transport.abortConnection)
        self.transport.loseConnection()

    def sendDisconnect(self, reason: int, desc: bytes | str) -> None:
        """Close because of an error that Conch found."""
        self.fail(PeerError(desc if isinstance(desc, str) else desc.decode("ascii", "replace")), reason)

    def loseConnection(self) -> None:
        """Close; called by Conch."""
        self.close("closed")

    @property
    def peer(self) -> str:
        """Name of the peer in messages that quote it.  Override."""
        return "the peer"

    def ssh_DISCONNECT(self, packet: bytes) -> None:
        """Handle the peer's reason for closing."""
        fields = MessageReader(packet)
        code, text = fields.number(), fields.string()
        # An attacker in the middle can send any text until packets are sealed.
        is_full = code == DISCONNECT_TOO_MANY_CONNECTIONS and not isinstance(self.opener, ClearOpener)
        self._end((TooManyConnections if is_full else Disconnected)(code, text, self.peer))

    def authenticated(self) -> None:
        """Allow longer packets and changes of keys: the peer is authenticated."""
        self._authenticated = True
        self.opener.limit = LONGEST_PACKET

    # -- received packets

    def dataReceived(self, data: bytes) -> None:
        """Handle received bytes, in pieces of any size."""
        if self._over:
            return
        buffer = self._handshake_buffer
        assert buffer is not None, "the parsing was released"
        buffer.add(data)
        try:
            if not self._authenticated and buffer.total > self.limits.early_bytes:
                raise PeerError("too much before authentication")
            if not self.gotVersion and not self.take_version(buffer):
                return
            while not self._over and (payload := buffer.packet(self.opener)) is not None:
                self.dispatch(payload)
        except PeerError as error:
            self.fail(error)
        else:
            self.rekey_if_due()

    def take_version(self, buffer: HandshakeBuffer) -> bool:
        """Parse the peer's version line; return whether it is complete."""
        line = buffer.version(self.wanted_version, from_server=self.isClient)
        if line is None:
            return False
        self.gotVersion, self.otherVersionString = True, line
        return True

    def release(self) -> bytes:
        """Leave the parsing to the caller and return the unparsed bytes.

        From now on the caller parses packets with `opener`, which it reads again after each call of
        `dispatch`, and calls `dispatch` with every payload that it does not handle itself.
        """
        buffer, self._handshake_buffer = self._handshake_buffer, None
        assert buffer is not None, "the parsing was released before"
        return buffer.remaining()

    def dispatch(self, payload: Buffer) -> None:
        """Handle one message; an invalid one closes the connection."""
        if self._over:
            return
        message = bytes(payload)
        kind = message[0]
        service = self.service
        try:
            if kind >= 50 and service is not None and self._order.awaited is None:
                service.packetReceived(kind, message[1:])  # most messages; a short cut
                return
            self._order.check(kind)
            self.dispatchMessage(kind, message[1:])
        except PeerError as error:
            self.fail(error)

    def dispatchMessage(self, messageNum: int, payload: bytes) -> None:
        """Pass a message to its method or service."""
        service = self.service
        if messageNum >= 50 and service is not None:
            service.packetReceived(messageNum, payload)
        elif messageNum in _KNOWN:
            SSHTransportBase.dispatchMessage(self, messageNum, payload)
        else:
            self.sendUnimplemented()

    def setService(self, service: SSHService) -> None:
        """Stop the current service, if any, and start another."""
        if self.service is not None:
            self.service.serviceStopped()
        self.service = service
        service.transport = self
        service.serviceStarted()

    def sendUnimplemented(self) -> None:
        """Answer an unknown message with its sequence number."""
        self._unknown += 1
        if self._unknown > _UNKNOWN_MESSAGES:
            raise PeerError("too many unknown messages")
        number = self.opener.sequence - 1 & 0xFFFFFFFF
        self.sendPacket(MSG_UNIMPLEMENTED, number.to_bytes(4, "big"))

    def ssh_DEBUG(self, packet: bytes) -> None:
        """Ignore it."""

    def ssh_UNIMPLEMENTED(self, packet: bytes) -> None:
        """Ignore it: no message of ours must be known to the peer."""

    # -- sent packets

    @property
    def in_key_exchange(self) -> bool:
        """Whether only messages of the key exchange are sent now; `sendPacket` holds back all others."""
        return self._holding_back

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        """Send one message, or hold it back during a key exchange."""
        if self._over:
            return
        assert self.transport is not None
        if self._holding_back and not goes_during_exchange(messageType):
            self._held.append((messageType, payload))
            self._held_bytes += len(payload) + 64
            if self._held_bytes > self.limits.held:
                self.fail(PeerError("too many messages wait for the end of a key exchange"))
            return
        self.transport.write(self.sealer.seal(b"%c%b" % (messageType, payload)))
        if messageType >= 50:
            self.rekey_if_due()

    def rekey_if_due(self) -> None:
        """Start a key exchange if the keys are used up; cheap, so call it often."""
        raise NotImplementedError

    def send_secret(self, kind: int, payload: bytearray) -> None:
        """Send as `sendPacket`, overwrite *payload*, and leave no other copy of it in memory.

        If it must wait for the end of a key exchange, it is copied.
        """
        if self._over or self._holding_back:
            self.sendPacket(kind, bytes(payload))
        else:
            assert self.transport is not None
            size = 2 + len(payload)
            plain, wire = bytearray(size + _ROOM), bytearray(size + 2 * _ROOM)
            plain[1] = kind
            plain[2:size] = payload
            sealed = self.sealer.seal_into(memoryview(plain), size, memoryview(wire))
            plain[:] = bytes(len(plain))
            self.transport.write(bytes(wire[:sealed]))
            self.rekey_if_due()
        payload[:] = bytes(len(payload))

    def _send_held(self) -> None:
        """Send the messages that the key exchange held back."""
        self._holding_back = False
        held, self._held, self._held_bytes = self._held, [], 0
        for kind, payload in held:
            self.sendPacket(kind, payload)

    def isEncrypted(self, direction: str = "out") -> bool:
        """Return whether packets in that direction ("in", "out" or "both") are sealed."""
        sealed = (
            direction == "in" or not isinstance(self.sealer, ClearSealer),
            direction == "out" or not isinstance(self.opener, ClearOpener),
        )
        return all(sealed)

    isVerified = isEncrypted
