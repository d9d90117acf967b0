"""A public SSH key, as clouds want it."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Collection

from attrs import field, frozen

from tower.cloud.errors import CloudError


class BadPublicKey(CloudError):
    """What should be installed is no public key, or none that this cloud takes."""


@frozen
class PublicKey:
    """One key.

    :ivar type: ``ssh-ed25519``, ``ssh-rsa``, …
    :ivar line: type and base64, without comment, options or line's end.
    """

    type: str
    line: str = field(repr=False)

    @property
    def digest(self) -> str:
        """Names the key; hexadecimal."""
        return hashlib.sha256(self.line.encode()).hexdigest()


def read_public_key(key: bytes, types: Collection[str]) -> PublicKey:
    """Read ``<type> <base64>``; a comment may follow.

    :param types: those that the cloud takes.
    :raise BadPublicKey: saying what is wrong.
    """
    words = key.split(None, 2)
    try:
        kind, blob = words[0].decode("ascii"), b64decode(words[1], validate=True)
    except (IndexError, ValueError):
        raise BadPublicKey("the key to install is not of the form '<type> <base64>'") from None
    length = len(kind)
    if blob[: 4 + length] != length.to_bytes(4, "big") + kind.encode() or b"\n" in key.strip():
        raise BadPublicKey("the key to install says two things of its type, or is more than one")
    if kind not in types:
        raise BadPublicKey(f"this cloud takes no {kind} keys: use one of {', '.join(sorted(types))}")
    return PublicKey(kind, f"{kind} {words[1].decode('ascii')}")
