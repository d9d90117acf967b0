"""The ciphers that come of a key exchange (RFC 4253 section 7.2).  No I/O."""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

from tower.conch.transport.ciphers import KEY_SIZES, make_opener, make_sealer
from tower.conch.transport.packets import Opener, Sealer


class Agreed(Protocol):
    """The ciphers that both sides agreed on; Conch's ``SSHCiphers`` knows them.

    :ivar outCipType: of what we send.
    :ivar inCipType: of what we get.
    """

    outCipType: bytes
    inCipType: bytes


class NewKeys:
    """What one key exchange brought; each direction changes to it with its own NEWKEYS.

    :param secret: the shared one, encoded as it is hashed.
    :param session_id: the hash of the first exchange.
    """

    __slots__ = ("_incoming", "_outgoing")

    def __init__(
        self, agreed: Agreed, secret: bytes, exchange_hash: bytes, session_id: bytes, *, is_client: bool
    ) -> None:
        to_server, to_client = b"AC", b"BD"  # the letters of IV and key
        ours, theirs = (to_server, to_client) if is_client else (to_client, to_server)

        def keys(cipher: bytes, letters: bytes) -> tuple[bytes, bytes, bytes]:
            key_size, iv_size = KEY_SIZES[cipher]
            key = derived(letters[1:], key_size, secret, exchange_hash, session_id)
            return cipher, key, derived(letters[:1], iv_size, secret, exchange_hash, session_id)

        self._outgoing = keys(agreed.outCipType, ours)
        self._incoming = keys(agreed.inCipType, theirs)

    def sealer(self, sequence: int) -> Sealer:
        """Return what seals from our NEWKEYS on.

        :param sequence: number of the next packet.
        """
        return make_sealer(*self._outgoing, sequence)

    def opener(self, sequence: int, limit: int) -> Opener:
        """Return what opens from the peer's NEWKEYS on; see `sealer`.

        :param limit: longest packet accepted, B.
        """
        return make_opener(*self._incoming, sequence, limit)


def derived(letter: bytes, size: int, secret: bytes, exchange_hash: bytes, session_id: bytes) -> bytes:
    """Return *size* bytes of key or IV (RFC 4253 section 7.2, with SHA-256).

    :param secret: the shared one, encoded as it is hashed.
    """
    common = secret + exchange_hash
    key = sha256(common + letter + session_id).digest()
    while len(key) < size:
        key += sha256(common + key).digest()
    return key[:size]
