# mypy: untyped-calls-exclude=twisted
"""The ed25519 keys of proxies and agents: create, store, sign, verify.

ed25519 is the only type: Tower-to-Tower needs no other, and with one type no downgrade can be negotiated.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key

from tower.conch.transport.fields import Malformed, MessageReader
from tower.errors import ConfigurationError

#: The only key type and signature algorithm (RFC 8709).
ED25519 = b"ssh-ed25519"

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class Folder(Protocol):
    """Directory of a key file: `tower.trust.statedir.StateDir`, which is in a higher room."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file atomically."""


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a public key as OpenSSH prints it: ``SHA256:`` and unpadded base64."""
    digest = base64.b64encode(hashlib.sha256(blob).digest())
    return "SHA256:" + digest.decode().rstrip("=")


def checked_fingerprint(text: str) -> str:
    """Return *text* if it is a fingerprint.

    :raise ConfigurationError: it is not.
    """
    if not _FINGERPRINT.fullmatch(text):
        raise ConfigurationError(
            f"{text!r} is not a host key fingerprint: "
            "expected SHA256: and 43 characters of base64, as `tower join` prints it"
        )
    return text


def verify(blob: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether *signature* (an SSH signature) of *data* was made with the ed25519 key *blob*.

    :raise Malformed: *blob* is not an ed25519 key.
    """
    public = _public_key(blob)
    fields = MessageReader(signature)
    if fields.string() != ED25519:
        return False
    raw = fields.string()
    fields.end()
    try:
        public.verify(raw, data)
    except InvalidSignature:
        return False
    return True


def _public_key(blob: bytes) -> Ed25519PublicKey:
    fields = MessageReader(blob)
    kind, raw = fields.string(), fields.string()
    fields.end()
    if kind != ED25519 or len(raw) != 32:
        raise Malformed("not an ed25519 key")
    return Ed25519PublicKey.from_public_bytes(raw)


class HostKey(Key):
    """A key for Conch, which reads its blob and makes a signature at every key exchange.

    Conch's own `Key` determines the key's type each time, which takes longer than the signature.
    """

    def __init__(self, pair: KeyPair, private: Ed25519PrivateKey) -> None:
        super().__init__(private)  # type: ignore[no-untyped-call]
        self._pair = pair

    def blob(self) -> bytes:
        """Return the public key blob."""
        return self._pair.blob

    def sign(self, data: bytes, signatureType: bytes | None = None) -> bytes:
        """Return the SSH signature of *data*; there is only one type."""
        return self._pair.sign(data)


class KeyPair:
    """An ed25519 key pair.

    :ivar blob: public key blob (RFC 8709 section 4).
    :ivar conch_key: the same key for Conch, which signs key exchanges with it.
    """

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.conch_key = HostKey(self, private)
        self.blob = NS(ED25519) + NS(private.public_key().public_bytes_raw())
        self.fingerprint = fingerprint(self.blob)

    def __repr__(self) -> str:
        return f"<KeyPair {self.fingerprint}>"

    @classmethod
    def generate(cls) -> KeyPair:
        """Return a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_openssh(cls, text: bytes) -> KeyPair:
        """Return the key of an unencrypted OpenSSH private key file.

        :raise ValueError: it is anything else.
        """
        try:
            private = load_ssh_private_key(text, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError("not an unencrypted OpenSSH private key") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError("not an ed25519 key")  # noqa: TRY004 (the content of the file is wrong, not a type)
        return cls(private)

    def to_openssh(self) -> bytes:
        """Return the content of an OpenSSH private key file.  Secret."""
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())

    def sign(self, data: bytes | bytearray) -> bytes:
        """Return the SSH signature of *data* (RFC 8709 section 6)."""
        return NS(ED25519) + NS(self._private.sign(data))


def load_or_create(folder: Folder, name: str) -> KeyPair:
    """Return the key in the file *name*; create it first (0600) if the file does not exist.

    :raise ConfigurationError: the file holds anything else.
    """
    text = folder.read(name)
    if text is None:
        key = KeyPair.generate()
        folder.write(name, key.to_openssh(), mode=0o600)
        return key
    try:
        return KeyPair.from_openssh(text)
    except ValueError as error:
        raise ConfigurationError(
            f"the key file {name} is damaged: {error}; restore it, or delete it to create a new key"
        ) from error
