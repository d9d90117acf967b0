"""Keys of identities whose token may be guessable: the audit log shows them to other users."""

from __future__ import annotations

import secrets
from hashlib import blake2b

_SALT = secrets.token_bytes(16)


def token_key(method: str, digest: bytes) -> str:
    """Return the key of the identity with a token: the same for equal tokens, until this process ends.

    The token cannot be guessed from it.

    :param method: name of the method that authenticates the token.
    :param digest: SHA-256 of the token.
    """
    return f"{method}:{blake2b(digest, digest_size=16, key=_SALT).hexdigest()}"
