# mypy: untyped-calls-exclude=twisted
"""Conch's SSH transport with our packets: AEAD ciphers, strict key exchange, rekeying, and limits.

`SecureTransport` is mixed into Conch's server and client transports.  It uses Conch's negotiation, the
server's halves of the key exchanges, and the dispatch of messages to methods and services.  It replaces:

* packets (`tower.conch.transport.packet_transport`): Conch has no AEAD ciphers and copies its buffer for
  every packet;
* the switch of keys: Conch switches both directions at the peer's NEWKEYS.  Here each direction switches with
  its own NEWKEYS, so a message sent between the two is sealed with the right key, and held messages are sent
  right after our NEWKEYS (as in OpenSSH), a round trip earlier.

It uses two internals of Conch, only here: ``_keyExchangeState``, which Conch's `ssh_KEXINIT` reads; and
`_keySetup`, which Conch's server calls with the shared secret.
"""

from __future__ import annotations

from twisted.conch.ssh.transport import MSG_KEXINIT, MSG_NEWKEYS

from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.kex import (
    EXCHANGES,
    PLACEHOLDER_MACS,
    STRICT_CLIENT,
    STRICT_SERVER,
    NewKeys,
    exchanges_of,
    make_kexinit,
)
from tower.conch.transport.keys import ED25519
from tower.conch.transport.limits import (
    EXCHANGE_WORTH,
    EXCHANGES_A_SECOND,
    EXCHANGES_AT_ONCE,
    TokenBucket,
    TransportLimits,
)
from tower.conch.transport.packet_transport import PacketTransport
from tower.conch.transport.packets import LONGEST_PACKET
from tower.errors import PeerError
from tower.reactor.timers import Clock


class SecureTransport(PacketTransport):
    """A `PacketTransport` with key exchange; see the module."""

    __slots__ = ("_exchanges", "_new_keys")

    supportedKeyExchanges = EXCHANGES
    supportedPublicKeys = [ED25519]
    supportedCiphers = list(CIPHERS)
    supportedMACs = PLACEHOLDER_MACS
    supportedCompressions = [b"none"]

    def __init__(self, clock: Clock, limits: TransportLimits) -> None:
        super().__init__(clock, limits)
        self._new_keys: NewKeys | None = None
        self._exchanges: TokenBucket | None = None

    def connectionMade(self) -> None:
        """Send our version line and start the first key exchange."""
        super().connectionMade()
        self.sendKexInit()

    def handshake_done(self) -> None:
        """Cancel the handshake's deadline and schedule the first change of keys."""
        self._timers.cancel("handshake")
        self._timers.set("rekey", self.limits.rekey_seconds, self.start_rekey)

    def start_rekey(self) -> None:
        """Start a key exchange, unless one is in progress or the peer is not authenticated."""
        if self._authenticated and not self._over and self._keyExchangeState == self._KEY_EXCHANGE_NONE:
            self.sendKexInit()

    def rekey_if_due(self) -> None:
        """Start a key exchange if the keys are used up; cheap, so call it often."""
        limit = self.limits.rekey_bytes
        if self.sealer.octets >= limit or self.opener.octets >= limit:
            self.start_rekey()

    def sendKexInit(self) -> None:
        """Start a key exchange, or answer the peer's KEXINIT."""
        if self._keyExchangeState != self._KEY_EXCHANGE_NONE:
            raise RuntimeError("a key exchange is in progress")
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
            return  # the connection was lost in this call
        self._keyExchangeState = self._KEY_EXCHANGE_REQUESTED
        self._holding_back = True
        self._timers.set("exchange", self.limits.exchange, self._exchange_timed_out)
        self.on_exchange()

    def markers(self) -> tuple[bytes, ...]:
        """Return the extensions to announce in the first list of exchanges.  Override to add more."""
        return (STRICT_CLIENT if self.isClient else STRICT_SERVER,)

    def _exchange_timed_out(self) -> None:
        self.fail(PeerError(f"no new keys within {self.limits.exchange:g} s"))

    def check_kexinit(self, packet: bytes) -> None:
        """Check the peer's KEXINIT before Conch parses it; for `ssh_KEXINIT` of the subclasses."""
        exchanges = exchanges_of(packet)
        if self.sessionID is not None and not self._authenticated:
            raise PeerError("a second key exchange before authentication")
        if self.sessionID is not None and self._keyExchangeState == self._KEY_EXCHANGE_NONE:
            self._count_exchange()
        self._order.started(exchanges, self.opener.sequence - 1)
        self.awaits_keys = True

    def _count_exchange(self) -> None:
        """Count an exchange that the peer started: each costs us a signature and a key pair.

        :raise PeerError: there are too many, by time and by bytes sealed and opened.
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
        # An idle connection need not keep the offers in memory for an hour.
        self.ourKexInitPayload = self.otherKexInitPayload = b""
        del self.nextEncryptions
        self._order.agreed()
        self.sendPacket(MSG_NEWKEYS, b"")
        self.sealer = new_keys.sealer(0 if self._order.strict else self.sealer.sequence)
        self._send_held()
        self.on_keys()

    def ssh_NEWKEYS(self, packet: bytes) -> None:
        """Open with the new key from now on."""
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
        """Called once, after the first key exchange.  Override.

        Conch calls `connectionSecure` after every exchange, which would request authentication again.
        """
