# mypy: untyped-calls-exclude=twisted
"""Conch's SSH transport with our packets: AEAD ciphers, strict key exchange, rekeying, and limits.

`SecureTransport` is mixed into Conch's server and client transports.  What it takes from Conch is the
negotiation, the server's halves of the key exchanges, and the dispatch of messages to methods and services.
What it replaces, and why:

* the packets (`sendPacket`, `dataReceived`): Conch knows no AEAD and copies its buffer for
  every packet;
* the switch of keys: Conch changes both directions when the peer's NEWKEYS comes.  Here each direction
  changes with its own NEWKEYS, so a message sent between the two is sealed with the right key, and what
  was held back goes out as soon as ours is sent (as OpenSSH does), a round trip earlier;
* whatever a peer could make grow: what is held back during a key exchange, the version line, packets
  before authentication, answers to messages nobody knows;
* logging: a connection that comes and goes is no news, and the reason of its end goes to its owner.

Of Conch's internals it touches these, here and nowhere else: ``_keyExchangeState``, which Conch's
`ssh_KEXINIT` reads; and `_keySetup`, which Conch's server calls with the shared secret.
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

from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.handshake_buffer import HandshakeBuffer
from tower.conch.transport.kex import (
    EXCHANGES,
    PLACEHOLDER_MACS,
    STRICT_CLIENT,
    STRICT_SERVER,
    KexOrder,
    exchanges_of,
    goes_during_exchange,
    make_kexinit,
)
from tower.conch.transport.keys import ED25519
from tower.conch.transport.limits import (
    EXCHANGE_WORTH,
    EXCHANGES_A_SECOND,
    EXCHANGES_AT_ONCE,
    Closed,
    Disconnected,
    HandshakeTimeout,
    NoRoom,
    TransportLimits,
)
from tower.conch.transport.newkeys import NewKeys
from tower.conch.transport.packets import LONGEST_PACKET, ClearOpener, ClearSealer, Opener, Sealer
from tower.conch.transport.rate_limit import TokenBucket
from tower.conch.transport.versions import OURS, SSH_2
from tower.errors import PeerError
from tower.net.pipes import Buffer
from tower.reactor.timers import Clock, Timers

#: What `Sealer.seal_into` needs behind a message, and what a packet has beside it, B at most.
_ROOM = 32

#: Messages nobody knows that are answered before the connection is given up.
_UNKNOWN_MESSAGES = 100
#: How long a connection that we closed may take to be flushed, s.
_CLOSE_GRACE = 5.0


class _QuietLog:
    """In place of Conch's log, which makes three lines about every key exchange that nobody reads."""

    def debug(self, *_: object, **__: object) -> None:
        """Say nothing."""

    info = warn = error = failure = debug


def nothing() -> None:
    """Stand in for a hook that nobody uses."""


class SecureTransport(SSHTransportBase):
    """Packets, key exchange and the end of a connection; see the module.

    :ivar sealer: makes the packets we send; another one after each key exchange.
    :ivar opener: opens those we get; likewise, changed by `dispatch`.
    :ivar on_exchange: called when a key exchange begins to hold back what we send.
    :ivar on_keys: called when it no longer does.
    :ivar awaits_keys: whether the peer has begun a key exchange: `dispatch` alone knows what it may send now.
    :ivar lost: fires with the reason, an exception, when the connection is gone.
    """

    __slots__ = (
        "_arrivals",
        "_authenticated",
        "_exchanges",
        "_held",
        "_held_bytes",
        "_new_keys",
        "_order",
        "_over",
        "_reason",
        "_sending_held",
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
    #: What the peer's version line has to be.
    wanted_version = SSH_2
    supportedKeyExchanges = EXCHANGES
    supportedPublicKeys = [ED25519]
    supportedCiphers = list(CIPHERS)
    supportedMACs = PLACEHOLDER_MACS
    supportedCompressions = [b"none"]

    _log: Any = _QuietLog()

    transport: ITCPTransport | None
    sealer: Sealer
    opener: Opener

    def __init__(self, clock: Clock, limits: TransportLimits) -> None:
        self.clock = clock
        self.limits = limits
        self.sealer = ClearSealer(0)
        self.opener = ClearOpener(limit=limits.early_packet)
        self.on_exchange: Callable[[], None] = nothing
        self.on_keys: Callable[[], None] = nothing
        self.lost: Deferred[Exception] = Deferred()
        self.awaits_keys = False
        self._order = KexOrder(is_client=self.isClient)
        self._arrivals: HandshakeBuffer | None = HandshakeBuffer()
        self._authenticated = False
        self._over = False
        self._reason: Exception | None = None
        self._sending_held = False
        self._held: list[tuple[int, bytes]] = []
        self._held_bytes = 0
        self._new_keys: NewKeys | None = None
        self._exchanges: TokenBucket | None = None
        self._unknown = 0
        self._timers = Timers(clock)

    # -- timers and the connection's life

    def connectionMade(self) -> None:
        """Introduce ourselves and start the first key exchange."""
        assert self.transport is not None
        self._timers.set("handshake", self.limits.handshake, self._too_slow)
        self.transport.write(self.ourVersionString + b"\r\n")
        self.sendKexInit()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Stop everything and report why."""
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
        # No cycles are left behind: a proxy that agents come to and leave need not wait for the collector.
        self.transport = None
        self.on_exchange = self.on_keys = nothing

    def ended(self, reason: Exception) -> None:
        """Called once when the connection is gone, before `lost` fires.  Override."""

    def _too_slow(self) -> None:
        self.fail(HandshakeTimeout(f"not authenticated within {self.limits.handshake:g} s"))

    def close(self, text: str) -> None:
        """Say *text* to the peer and close, after what is queued."""
        self.fail(Closed(text), DISCONNECT_BY_APPLICATION)

    def fail(self, reason: Exception, code: int = DISCONNECT_PROTOCOL_ERROR) -> None:
        """Close because of *reason*; the peer gets its text, `lost` the exception.  Only the first counts.

        Where the text is for our own people, the peer gets `PeerError.for_peer`.
        """
        if self._over or self._reason is not None:
            return
        self._reason = reason.with_traceback(None)
        told = reason.for_peer if isinstance(reason, PeerError) else ""
        text = (told or str(reason)).encode()[:256]
        self.sendPacket(MSG_DISCONNECT, code.to_bytes(4, "big") + NS(text) + NS(b""))
        if not self._over:  # else the connection broke under it
            self._end(reason)

    def _end(self, reason: Exception) -> None:
        assert self.transport is not None
        self._over = True
        self._reason = reason.with_traceback(None)
        self._timers.cancel_all()
        self._timers.set("close", _CLOSE_GRACE, self.transport.abortConnection)
        self.transport.loseConnection()

    def sendDisconnect(self, reason: int, desc: bytes | str) -> None:
        """Close; what Conch calls when it finds something wrong."""
        self.fail(PeerError(desc if isinstance(desc, str) else desc.decode("ascii", "replace")), reason)

    def loseConnection(self) -> None:
        """Close; Conch's name for it."""
        self.close("closed")

    @property
    def peer(self) -> str:
        """What the other end is called where its words are repeated.  Override."""
        return "the peer"

    def ssh_DISCONNECT(self, packet: bytes) -> None:
        """The peer says why it goes."""
        fields = MessageReader(packet)
        code, text = fields.number(), fields.string()
        # Whoever is on the way may say what he likes until packets are sealed.
        is_full = code == DISCONNECT_TOO_MANY_CONNECTIONS and not isinstance(self.opener, ClearOpener)
        self._end((NoRoom if is_full else Disconnected)(code, text, self.peer))

    def authenticated(self) -> None:
        """The peer is who it should be: longer packets, and changes of keys, are allowed from now on."""
        self._authenticated = True
        self.opener.limit = LONGEST_PACKET

    def greeted(self) -> None:
        """The handshake is over: its deadline no longer counts, and keys are changed by time."""
        self._timers.cancel("handshake")
        self._timers.set("rekey", self.limits.rekey_seconds, self.start_rekey)

    # -- packets in

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of the peer, cut anywhere."""
        if self._over:
            return
        arrivals = self._arrivals
        assert arrivals is not None, "who took the parsing gets the bytes"
        arrivals.add(data)
        try:
            if not self._authenticated and arrivals.total > self.limits.early_bytes:
                raise PeerError("too much before authentication")
            if not self.gotVersion and not self.take_version(arrivals):
                return
            while not self._over and (payload := arrivals.packet(self.opener)) is not None:
                self.dispatch(payload)
        except PeerError as error:
            self.fail(error)
        else:
            self.rekey_if_due()

    def take_version(self, arrivals: HandshakeBuffer) -> bool:
        """Take the peer's version line; return whether it has come."""
        line = arrivals.version(self.wanted_version, from_server=self.isClient)
        if line is None:
            return False
        self.gotVersion, self.otherVersionString = True, line
        return True

    def release(self) -> bytes:
        """Leave the parsing to the caller and return the bytes that are not parsed yet.

        From now on the caller takes packets apart with `opener`, which it reads anew after each call of
        `dispatch`, and calls `dispatch` with every payload it does not deal with itself.
        """
        arrivals, self._arrivals = self._arrivals, None
        assert arrivals is not None, "somebody else took it"
        return arrivals.rest()

    def dispatch(self, payload: Buffer) -> None:
        """Act on one message; one that makes no sense ends the connection."""
        if self._over:
            return
        message = bytes(payload)
        kind = message[0]
        service = self.service
        try:
            if kind >= 50 and service is not None and self._order.awaited is None:
                service.packetReceived(kind, message[1:])  # most are, so they go straight there
                return
            self._order.admit(kind)
            self.dispatchMessage(kind, message[1:])
        except PeerError as error:
            self.fail(error)

    def dispatchMessage(self, messageNum: int, payload: bytes) -> None:
        """Call the method or the service that a message is for."""
        service = self.service
        if messageNum >= 50 and service is not None:
            service.packetReceived(messageNum, payload)
        elif messageNum in _KNOWN:
            SSHTransportBase.dispatchMessage(self, messageNum, payload)
        else:
            self.sendUnimplemented()

    def setService(self, service: SSHService) -> None:
        """Stop the service that runs, if any, and start another."""
        if self.service is not None:
            self.service.serviceStopped()
        self.service = service
        service.transport = self
        service.serviceStarted()

    def sendUnimplemented(self) -> None:
        """Answer a message nobody knows, with its sequence number."""
        self._unknown += 1
        if self._unknown > _UNKNOWN_MESSAGES:
            raise PeerError("too many unknown messages")
        number = self.opener.sequence - 1 & 0xFFFFFFFF
        self.sendPacket(MSG_UNIMPLEMENTED, number.to_bytes(4, "big"))

    def ssh_DEBUG(self, packet: bytes) -> None:
        """Ignore it."""

    def ssh_UNIMPLEMENTED(self, packet: bytes) -> None:
        """Ignore it: nothing we send needs to be known."""

    # -- packets out

    @property
    def in_key_exchange(self) -> bool:
        """Whether only the key exchange may send now: `sendPacket` holds the rest back until `on_keys`."""
        return self._sending_held

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        """Send one message, or hold it back until the key exchange under way allows it."""
        if self._over:
            return
        assert self.transport is not None
        if self._sending_held and not goes_during_exchange(messageType):
            self._held.append((messageType, payload))
            self._held_bytes += len(payload) + 64
            if self._held_bytes > self.limits.held:
                self.fail(PeerError("too much waits for the end of a key exchange"))
            return
        self.transport.write(self.sealer.seal(b"%c%b" % (messageType, payload)))
        if messageType >= 50:
            self.rekey_if_due()

    def send_secret(self, kind: int, payload: bytearray) -> None:
        """Do as `sendPacket`, overwrite *payload*, and leave no other copy of it in memory.

        One that has to wait for the end of a key exchange is copied after all.
        """
        if self._over or self._sending_held:
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

    def _let_go(self) -> None:
        """Send what the key exchange held back."""
        self._sending_held = False
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

    # -- key exchange

    def start_rekey(self) -> None:
        """Begin a key exchange, unless one is under way or nobody is authenticated."""
        if self._authenticated and not self._over and self._keyExchangeState == self._KEY_EXCHANGE_NONE:
            self.sendKexInit()

    def rekey_if_due(self) -> None:
        """Begin a key exchange if the keys have sealed or opened enough; cheap, call it often."""
        limit = self.limits.rekey_bytes
        if self.sealer.octets >= limit or self.opener.octets >= limit:
            self.start_rekey()

    def sendKexInit(self) -> None:
        """Begin a key exchange, or answer the peer's beginning."""
        if self._keyExchangeState != self._KEY_EXCHANGE_NONE:
            raise RuntimeError("a key exchange is under way")
        exchanges = list(self.supportedKeyExchanges)
        if self.sessionID is None:
            exchanges += self.markers()
        self.ourKexInitPayload = make_kexinit(
            exchanges,
            self.supportedPublicKeys,
            self.supportedCiphers,
            self.supportedMACs,
            self.supportedCompressions,
        )
        self.sendPacket(MSG_KEXINIT, self.ourKexInitPayload[1:])
        if self._over:
            return  # the connection broke under it
        self._keyExchangeState = self._KEY_EXCHANGE_REQUESTED
        self._sending_held = True
        self._timers.set("exchange", self.limits.exchange, self._exchange_too_slow)
        self.on_exchange()

    def markers(self) -> tuple[bytes, ...]:
        """Return what the first list of exchanges says about us besides them.  Override to say more."""
        return (STRICT_CLIENT if self.isClient else STRICT_SERVER,)

    def _exchange_too_slow(self) -> None:
        self.fail(PeerError(f"no new keys within {self.limits.exchange:g} s"))

    def check_kexinit(self, packet: bytes) -> None:
        """Look at the peer's KEXINIT before Conch does; for `ssh_KEXINIT` of the subclasses."""
        exchanges = exchanges_of(packet)
        if self.sessionID is not None and not self._authenticated:
            raise PeerError("a second key exchange before authentication")
        if self.sessionID is not None and self._keyExchangeState == self._KEY_EXCHANGE_NONE:
            self._count_exchange()
        self._order.started(exchanges, self.opener.sequence - 1)
        self.awaits_keys = True

    def _count_exchange(self) -> None:
        """Note that the peer begins an exchange: each is a signature and a key for us, whatever it is for it.

        :raise PeerError: there are too many, for the time and for what went to and fro.
        """
        now = self.clock.seconds()
        if self._exchanges is None:
            self._exchanges = TokenBucket(EXCHANGES_AT_ONCE, EXCHANGES_A_SECOND, now)
        moved = self.sealer.octets + self.opener.octets
        if not self._exchanges.take(now, moved / EXCHANGE_WORTH):
            raise PeerError("too many key exchanges")

    def _keySetup(self, sharedSecret: bytes, exchangeHash: bytes) -> None:
        """Send NEWKEYS, and seal with the new key from then on."""
        if self.sessionID is None:
            self.sessionID = exchangeHash
        self._new_keys = new_keys = NewKeys(
            self.nextEncryptions, sharedSecret, exchangeHash, self.sessionID, is_client=self.isClient
        )
        # An idle connection need not remember for an hour what was offered.
        self.ourKexInitPayload = self.otherKexInitPayload = b""
        del self.nextEncryptions
        self._order.agreed()
        self.sendPacket(MSG_NEWKEYS, b"")
        self.sealer = new_keys.sealer(0 if self._order.strict else self.sealer.sequence)
        self._let_go()
        self.on_keys()

    def ssh_NEWKEYS(self, packet: bytes) -> None:
        """The peer seals with the new key from now on."""
        MessageReader(packet).end()
        new_keys, self._new_keys = self._new_keys, None
        assert new_keys is not None
        first = self._order.first
        sequence = 0 if self._order.strict else self.opener.sequence
        limit = LONGEST_PACKET if self._authenticated else self.limits.early_packet
        self.opener = new_keys.opener(sequence, limit)
        self._order.finished()
        self.awaits_keys = False
        self._keyExchangeState = self._KEY_EXCHANGE_NONE
        self._timers.cancel("exchange")
        if first:
            self.secured()
        else:
            self._timers.set("rekey", self.limits.rekey_seconds, self.start_rekey)

    def secured(self) -> None:
        """Called once, when the first key exchange is over.  Override.

        Conch's `connectionSecure` is called after every one, which would ask for authentication again.
        """


_KNOWN = frozenset((*range(1, 7), MSG_KEXINIT, MSG_NEWKEYS, 30, 31))
