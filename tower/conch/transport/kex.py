"""Key exchange: our offers, the order of messages, the client's halves, the new keys.  No I/O.

Conch negotiates and has the server's halves.  Added here:

* *strict* key exchange (OpenSSH's PROTOCOL section 1.10), the answer to the Terrapin attack: both sides
  announce it in their first KEXINIT; then only messages of the key exchange are allowed until the first keys,
  and the sequence numbers start again at zero with every NEWKEYS;
* `KexOrder`, which rejects the messages that RFC 4253 section 7.1 forbids, in the first exchange and later;
* the client's half of ``mlkem768x25519-sha256`` (draft-ietf-sshm-mlkem-hybrid-kex), which Conch 26.10 has
  only for servers, and of ``curve25519-sha256`` (RFC 8731) in the same form.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from twisted.conch.ssh.common import MP, NS
from twisted.conch.ssh.transport import (
    MSG_DEBUG,
    MSG_DISCONNECT,
    MSG_IGNORE,
    MSG_KEXDH_INIT,
    MSG_KEXDH_REPLY,
    MSG_KEXINIT,
    MSG_NEWKEYS,
    MSG_UNIMPLEMENTED,
    SSHCiphers,
    SSHTransportBase,
)

from tower.conch.transport.ciphers import KEY_SIZES, Opener, Sealer, make_opener, make_sealer
from tower.conch.transport.fields import Malformed, MessageReader
from tower.errors import PeerError

try:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
except ImportError:  # an older cryptography; Conch does not offer the hybrid exchange then either
    _HYBRID: tuple[bytes, ...] = ()
else:
    _HYBRID = (b"mlkem768x25519-sha256",)

#: The exchanges that we offer, the preferred one first.
EXCHANGES: list[bytes] = [
    name
    for name in (*_HYBRID, b"curve25519-sha256", b"curve25519-sha256@libssh.org")
    if name in SSHTransportBase.supportedKeyExchanges
]

#: Markers for strict key exchange in the list of exchanges, of the client and of the server.
STRICT_CLIENT = b"kex-strict-c-v00@openssh.com"
STRICT_SERVER = b"kex-strict-s-v00@openssh.com"

#: With AEAD ciphers no MAC is used (PROTOCOL section 1.6), but the lists must have a name in common.
PLACEHOLDER_MACS: list[bytes] = [
    b"hmac-sha2-256-etm@openssh.com",
    b"hmac-sha2-512-etm@openssh.com",
    b"hmac-sha2-256",
    b"hmac-sha2-512",
    b"hmac-sha1",
]

#: Allowed in the middle of a key exchange (RFC 4253 section 7.1), except in a strict first one.
_ANY_TIME = frozenset((MSG_IGNORE, MSG_UNIMPLEMENTED, MSG_DEBUG))


class OutOfOrder(PeerError):
    """A message that is not allowed now."""

    def __init__(self, kind: int, awaited: int | None) -> None:
        instead = "" if awaited is None else f" instead of {awaited}"
        super().__init__(f"message {kind}{instead} is not allowed now")
        self.kind = kind


class KexOrder:
    """Checks the order of the peer's messages by their types.

    :ivar awaited: the message of the key exchange that must come next; None outside of an exchange.
    :ivar strict: whether both sides use strict key exchange.
    :ivar first: whether the first exchange is not over.
    """

    __slots__ = ("_peer_marker", "_second", "awaited", "first", "strict")

    def __init__(self, *, is_client: bool) -> None:
        self._peer_marker = STRICT_SERVER if is_client else STRICT_CLIENT
        self._second = MSG_KEXDH_REPLY if is_client else MSG_KEXDH_INIT
        self.awaited: int | None = MSG_KEXINIT
        self.strict = False
        self.first = True

    def check(self, kind: int) -> None:
        """Accept a message of type *kind* or raise `OutOfOrder`."""
        if self.awaited is None:
            if kind == MSG_NEWKEYS or MSG_KEXDH_INIT <= kind < 50:
                raise OutOfOrder(kind, None)
        elif kind not in {self.awaited, MSG_DISCONNECT} and (
            kind not in _ANY_TIME or (self.first and self.strict)
        ):
            raise OutOfOrder(kind, self.awaited)

    def started(self, exchanges: Sequence[bytes], packets_before: int) -> None:
        """Handle the peer's KEXINIT.

        :param packets_before: packets that the peer sent before it.
        :raise OutOfOrder: strict key exchange allows no packets before the first one.
        """
        if self.first:
            self.strict = self._peer_marker in exchanges
            if self.strict and packets_before:
                raise OutOfOrder(MSG_KEXINIT, None)
        self.awaited = self._second

    def agreed(self) -> None:
        """Expect the peer's NEWKEYS: the secret is agreed on."""
        self.awaited = MSG_NEWKEYS

    def finished(self) -> None:
        """Handle the peer's NEWKEYS."""
        self.awaited = None
        self.first = False


def goes_during_exchange(kind: int) -> bool:
    """Return whether we may send a message of type *kind* between our KEXINIT and our NEWKEYS."""
    return kind in _ANY_TIME or kind == MSG_DISCONNECT or MSG_NEWKEYS <= kind < 50


def make_kexinit(
    exchanges: Sequence[bytes],
    host_keys: Sequence[bytes],
    ciphers: Sequence[bytes],
    macs: Sequence[bytes],
    compressions: Sequence[bytes],
) -> bytes:
    """Return a KEXINIT payload, type included, with a fresh cookie; each list serves both directions."""
    lists = _lists(*map(tuple, (exchanges, host_keys, ciphers, macs, compressions)))
    return b"%c%b%b" % (MSG_KEXINIT, secrets.token_bytes(16), lists)


@lru_cache(maxsize=32)
def _lists(*names: tuple[bytes, ...]) -> bytes:
    exchanges, host_keys, *others = names
    lists = (exchanges, host_keys, *(each for each in others for _ in range(2)), (), ())
    return b"".join(NS(b",".join(each)) for each in lists) + bytes(5)


def exchanges_of(packet: bytes) -> tuple[bytes, ...]:
    """Return the key exchanges that a KEXINIT (without its type) offers.

    :raise Malformed: it is not a valid KEXINIT; Conch must not parse it.
    """
    return _exchanges(packet[16:])


@lru_cache(maxsize=16)
def _exchanges(lists: bytes) -> tuple[bytes, ...]:
    """Parse the part after the cookie; many agents are the same program, so it is mostly cached."""
    fields = MessageReader(lists)
    each = [fields.names() for _ in range(10)]
    fields.boolean()
    fields.number()
    fields.end()
    if not all(each[:8]):
        raise Malformed("a KEXINIT with an empty list")
    return tuple(each[0])


class Curve25519Half:
    """The client's half of a ``curve25519-sha256`` exchange (RFC 8731), used once.

    :ivar public: the client's public value.
    """

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, reply: bytes) -> bytes:
        """Return the shared secret in the encoding that is hashed.

        :param reply: the server's public value.
        :raise Malformed: *reply* is invalid.
        """
        return MP(int.from_bytes(self.exchange(reply), "big"))

    def exchange(self, public: bytes) -> bytes:
        """Return the raw X25519 secret.

        :raise Malformed: *public* is not a key, or makes the secret zero.
        """
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise Malformed("an invalid X25519 public key") from error


class HybridHalf:
    """``mlkem768x25519-sha256``, draft-ietf-sshm-mlkem-hybrid-kex section 2."""

    def __init__(self) -> None:
        self._kem = MLKEM768PrivateKey.generate()
        self._curve = Curve25519Half()
        self.public = self._kem.public_key().public_bytes_raw() + self._curve.public

    def agree(self, reply: bytes) -> bytes:
        """See `Curve25519Half.agree`; the reply is the ML-KEM ciphertext (1088 B) and the X25519 key."""
        try:
            quantum = self._kem.decapsulate(reply[:-32])
        except ValueError as error:
            raise Malformed("an invalid ML-KEM ciphertext") from error
        return NS(sha256(quantum + self._curve.exchange(reply[-32:])).digest())


ClientHalf: TypeAlias = Curve25519Half | HybridHalf


def client_half(exchange: bytes) -> ClientHalf:
    """Return the client's half for one of `EXCHANGES`."""
    return HybridHalf() if exchange in _HYBRID else Curve25519Half()


class NewKeys:
    """The keys of one key exchange; each direction switches to them with its own NEWKEYS.

    :param agreed: names of the negotiated ciphers.
    :param secret: the shared secret in the encoding that is hashed.
    :param session_id: the hash of the first exchange.
    """

    __slots__ = ("_incoming", "_outgoing")

    def __init__(
        self, agreed: SSHCiphers, secret: bytes, exchange_hash: bytes, session_id: bytes, *, is_client: bool
    ) -> None:
        to_server, to_client = b"AC", b"BD"  # letters of IV and key
        ours, theirs = (to_server, to_client) if is_client else (to_client, to_server)

        def keys(cipher: bytes, letters: bytes) -> tuple[bytes, bytes, bytes]:
            key_size, iv_size = KEY_SIZES[cipher]
            key = derived(letters[1:], key_size, secret, exchange_hash, session_id)
            return cipher, key, derived(letters[:1], iv_size, secret, exchange_hash, session_id)

        self._outgoing = keys(agreed.outCipType, ours)
        self._incoming = keys(agreed.inCipType, theirs)

    def sealer(self, sequence: int) -> Sealer:
        """Return the sealer for packets after our NEWKEYS."""
        return make_sealer(*self._outgoing, sequence)

    def opener(self, sequence: int, limit: int) -> Opener:
        """Return the opener for packets after the peer's NEWKEYS; see `sealer`.

        :param limit: longest packet, B.
        """
        return make_opener(*self._incoming, sequence, limit)


def derived(letter: bytes, size: int, secret: bytes, exchange_hash: bytes, session_id: bytes) -> bytes:
    """Return *size* bytes of key or IV (RFC 4253 section 7.2, with SHA-256)."""
    common = secret + exchange_hash
    key = sha256(common + letter + session_id).digest()
    while len(key) < size:
        key += sha256(common + key).digest()
    return key[:size]
