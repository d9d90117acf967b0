"""Public SSH keys in the form that clouds accept."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Collection

from attrs import field, frozen

from tower.cloud.errors import CloudError


class BadPublicKey(CloudError):
    """A key to install is not a public key, or not of a type that the cloud accepts."""


@frozen
class PublicKey:
    """One key.

    :ivar type: ``ssh-ed25519``, ``ssh-rsa``, …
    :ivar line: type and base64, without comment, options and newline.
    """

    type: str
    line: str = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the line, hexadecimal."""
        return hashlib.sha256(self.line.encode()).hexdigest()


def read_public_key(key: bytes, types: Collection[str]) -> PublicKey:
    """Read ``<type> <base64>`` of one of *types*, which the cloud accepts; a comment may follow."""
    words = key.split(None, 2)
    try:
        kind, blob = words[0].decode("ascii"), b64decode(words[1], validate=True)
    except (IndexError, ValueError):
        raise BadPublicKey("the key to install does not have the form '<type> <base64>'") from None
    length = len(kind)
    if blob[: 4 + length] != length.to_bytes(4, "big") + kind.encode() or b"\n" in key.strip():
        raise BadPublicKey("the key to install contradicts its type, or is more than one key")
    if kind not in types:
        raise BadPublicKey(f"this cloud does not accept {kind} keys: use one of {', '.join(sorted(types))}")
    return PublicKey(kind, f"{kind} {words[1].decode('ascii')}")
