"""The ciphers that result from a key exchange (RFC 4253 section 7.2).  No I/O."""

from __future__ import annotations

from hashlib import sha256

from twisted.conch.ssh.transport import SSHCiphers

from tower.conch.transport.ciphers import KEY_SIZES, make_opener, make_sealer
from tower.conch.transport.packets import Opener, Sealer


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
        """Return the sealer for packets after our NEWKEYS.

        :param sequence: number of the next packet.
        """
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
