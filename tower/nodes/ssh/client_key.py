"""Private keys for the login at nodes, read from files of OpenSSH, OpenSSL or kube-apiserver."""

from __future__ import annotations

import os
import shlex
import stat
from base64 import b64decode
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from tower.conch.transport.keys import fingerprint
from tower.conch.transport.signatures import SIGNATURES, SMALLEST_RSA, PrivateKey, sign
from tower.errors import ConfigurationError
from tower.files import ANYWHERE, Files, read_plain

#: Largest key file that is read, B: an RSA key of 16384 bits takes 13 KiB.
_LARGEST = 64 * 1024

_CURVES = frozenset(("secp256r1", "secp384r1", "secp521r1"))

_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_ENCRYPTED = "it has a passphrase, which Tower cannot enter: remove it with `ssh-keygen -p`"


class KeyUnusable(ConfigurationError):
    """A private key file that cannot be read, or has no usable key."""


class ClientKey:
    """A private key; its repr and its errors do not reveal it.

    :ivar kind: its type, such as ``ssh-ed25519``.
    :ivar blob: the public key in SSH's wire format.
    :ivar fingerprint: of the public key, ``SHA256:…``.
    :ivar algorithms: its signature algorithms, preferred first.
    :ivar authorized_key: its line for ``authorized_keys``: type, base64, end of line, no comment.
    """

    __slots__ = ("_private", "algorithms", "authorized_key", "blob", "fingerprint", "kind")

    def __init__(self, private: PrivateKey) -> None:
        self._private = private
        line = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        self.authorized_key = line + b"\n"
        self.kind, encoded = line.split(b" ")[:2]
        self.blob = b64decode(encoded)
        self.fingerprint = fingerprint(self.blob)
        self.algorithms = SIGNATURES[self.kind]

    def __repr__(self) -> str:
        return f"<ClientKey {self.kind.decode()} {self.fingerprint}>"

    def sign(self, algorithm: bytes, data: bytes) -> bytes:
        """Return the SSH signature of *data* with one of `algorithms`."""
        return sign(self._private, algorithm, data)

    @classmethod
    def load(cls, path: str | Path, files: Files = ANYWHERE) -> ClientKey:
        """Return the key in a file that only its owner may read; see `check_owner`.

        :param files: opens *path*.
        :raise KeyUnusable: with upstream's text and a cure.
        """
        try:
            text = read_plain(path, _LARGEST + 1, files, lambda status: check_owner(path, status))
        except OSError as error:
            reason = f"open {path}: {(error.strerror or str(error)).lower()}"
            raise KeyUnusable(f"error reading SSH key {path}: '{reason}'") from error
        try:
            return cls.parse(text)
        except ValueError as error:
            raise KeyUnusable(f"error parsing SSH key: '{path}: {error}'") from error

    @classmethod
    def parse(cls, text: bytes) -> ClientKey:
        """Return the key in *text*, PEM or OpenSSH's format; raise ValueError with the problem."""
        if len(text) > _LARGEST:
            raise ValueError("it is too large for a key")
        load = load_ssh_private_key if text.lstrip().startswith(_OPENSSH) else load_pem_private_key
        try:
            private = load(text, password=None)
        except TypeError:  # raised by cryptography if a password is required
            raise ValueError(_ENCRYPTED) from None
        except (ValueError, UnsupportedAlgorithm, InternalError):
            # not chained: the parser's message may quote the file
            raise ValueError("it is not a private key in PEM or OpenSSH's format") from None
        if isinstance(private, RSAPrivateKey):
            if private.key_size < SMALLEST_RSA:
                raise ValueError(
                    f"an RSA key of {private.key_size} bits; at least {SMALLEST_RSA} are required"
                )
        elif isinstance(private, ec.EllipticCurvePrivateKey):
            if private.curve.name not in _CURVES:
                raise ValueError(f"SSH does not support keys on the curve {private.curve.name}")
        elif not isinstance(private, Ed25519PrivateKey):
            raise ValueError("SSH servers no longer accept its type: use ed25519, ECDSA or RSA")  # noqa: TRY004
        return cls(private)


def check_owner(path: str | Path, status: os.stat_result) -> None:
    """Reject a private key that other users may read, as ``ssh`` does, or that belongs to another user.

    A key of root is accepted if its group is ours and may only read it: Kubernetes mounts a Secret like this
    for a pod with an ``fsGroup``.

    :raise KeyUnusable: with the command that fixes it.
    """
    user, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    name = shlex.quote(str(path))
    if status.st_uid == 0 != user and mode & 0o037 == 0 and status.st_gid in {os.getegid(), *os.getgroups()}:
        return
    if status.st_uid != user:
        raise KeyUnusable(
            f"error reading SSH key {path}: 'it belongs to uid {status.st_uid}, but this process runs as "
            f"{user}': chown {user} {name} && chmod 600 {name}"
        )
    if mode & 0o077:
        raise KeyUnusable(
            f"error reading SSH key {path}: 'other users may read it (mode {mode:04o})': chmod 600 {name}"
        )
