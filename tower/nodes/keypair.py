"""The SSH key pair of a cluster: two files, created if they are missing, and never overwritten.

Names and modes are kube-apiserver's: the public key's path is the private key's with ``.pub`` appended.  It
is written last, so if it exists, the pair is complete.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.files import ANYWHERE, Files, read_plain
from tower.nodes.ssh.client_key import ClientKey, KeyUnusable

#: Types of keys that can be created; existing keys may have any type that `ClientKey` supports.
Kind: TypeAlias = Literal["ed25519", "rsa"]

#: Size of a new RSA key, bits, and its exponent.
_RSA_BITS, _RSA_EXPONENT = 2048, 65537

#: Modification time, size, inode, mode and owner of a file.
_Identity: TypeAlias = tuple[int, int, int, int, int]

#: No file has these.
_NEVER: _Identity = (0, 0, 0, 0, 0)

#: Largest public key file that is read, B.
_LARGEST = 64 * 1024

_log = Logger()


class KeyPairFiles:
    """A private key file and its public key file.

    :param kind: type of a new key.
    :param files: opens both.
    :ivar path: of the private key.
    :ivar public_path: of the public key.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind = "ed25519", files: Files = ANYWHERE) -> None:
        self.path = Path(path)
        self.public_path = Path(f"{self.path}.pub")
        self.kind: Kind = kind
        self._files = files
        self._private: tuple[_Identity, ClientKey] | None = None
        self._seen: tuple[_Identity | None, _Identity | None] | None = None

    def switch(self, path: str | os.PathLike[str], kind: Kind, files: Files = ANYWHERE) -> None:
        """Switch to another pair; it counts as `changed`."""
        if Path(path) != self.path:
            self.path, self.public_path = Path(path), Path(f"{path}.pub")
            self._private, self._seen = None, (_NEVER, _NEVER)
        self.kind, self._files = kind, files

    def ensure(self) -> None:
        """Create what is missing: the pair, or the public key of an existing private key.

        A public key without its private key is replaced with the pair.  An existing private key is never
        written to, unless the file is empty.

        :raise ConfigurationError: a file cannot be read or written, or has no usable key; existing files are
            unchanged.
        """
        if not self._size(self.path):
            self._generate()
        elif not self._size(self.public_path):
            self._derive()

    def _derive(self) -> None:
        """Create the public key; if it cannot be written, next to a mounted Secret for example, only warn."""
        key = self.private()
        _log.info("Private key exists, but public key does not: {path}", path=str(self.public_path))
        try:
            self._put(self._draft(self.public_path, _public_file(key)), self.public_path)
        except ConfigurationError as error:
            _log.warn("{error}; the private key is enough to log in", error=str(error))

    def _size(self, path: Path) -> int:
        """Return the size of *path*, B; 0 if it does not exist; 1 for a dangling link.

        :raise ConfigurationError: the file cannot be inspected, or is not a regular file, which is never
            replaced.
        """
        try:
            status = self._files.stat(path)
        except FileNotFoundError:
            return int(self._files.is_link(path))
        except OSError as error:
            raise ConfigurationError(f"Error detecting if key exists: {path}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"SSH key {path}: not a regular file: set another path")
        return status.st_size

    def _generate(self) -> None:
        _log.info("Key doesn't exist, attempting to create {path}", path=str(self.path))
        if not self._is_directory(self.path.parent):
            raise ConfigurationError(
                f"SSH key {self.path}: directory {self.path.parent} does not exist: create it with mode 0700"
            )
        secret, key = _create(self.kind)
        drafts = [self._draft(self.path, secret)]
        try:
            drafts.append(self._draft(self.public_path, _public_file(key)))
            # removed first: a missing public key is created next time, a wrong one is hard to notice
            self._remove(self.public_path)
        except BaseException:
            for draft in drafts:
                self._remove(draft)
            raise
        self._put(drafts[0], self.path)
        self._put(drafts[1], self.public_path)

    def private(self) -> ClientKey:
        """Return the current private key; the file is parsed only if it has changed.

        :raise KeyUnusable: with upstream's text and a cure.
        """
        identity = self._identity(self.path)
        known = self._private
        if known is not None and identity is not None and known[0] == identity:
            return known[1]
        self._private = None
        key = ClientKey.load(self.path, self._files)
        if identity is not None:
            self._private = identity, key
        return key

    def public_line(self) -> bytes:
        """Return the public key as a line of ``authorized_keys`` without a comment, for clouds to install.

        :raise ConfigurationError: a file cannot be read, has no usable key, or the two are not a pair.
        """
        self._seen = self._identities()
        if not self._size(self.public_path):
            self._derive()
            self._seen = self._identities()
        line = self.private().authorized_key
        if self._size(self.public_path) and self._read_public() != line:
            raise KeyUnusable(
                f"{self.public_path} is not the public key of {self.path}: delete it; "
                "Tower creates the right one"
            )
        return line

    def changed(self) -> bool:
        """Return whether a file has changed since the last call of `public_line`."""
        return self._seen is not None and self._identities() != self._seen

    def _identities(self) -> tuple[_Identity | None, _Identity | None]:
        return self._identity(self.path), self._identity(self.public_path)

    def _read_public(self) -> bytes:
        path = self.public_path
        try:
            text = read_plain(path, _LARGEST, self._files)
        except OSError as error:
            raise KeyUnusable(
                f"error reading SSH key {path}: '{(error.strerror or str(error)).lower()}'"
            ) from error
        try:
            load = load_pem_public_key if text.lstrip().startswith(b"-----") else load_ssh_public_key
            key: Any = load(text.strip())
            line: bytes = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        except (ValueError, UnsupportedAlgorithm):
            # not chained: the parser's message may quote the file
            raise KeyUnusable(
                f"error parsing SSH key {path}: 'it is not a public key in PEM or OpenSSH's format': "
                "delete it; Tower creates it from the private key"
            ) from None
        return line + b"\n"

    # The files

    def _identity(self, path: Path) -> _Identity | None:
        try:
            status = self._files.stat(path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid

    def _is_directory(self, path: Path) -> bool:
        try:
            return stat.S_ISDIR(self._files.stat(path).st_mode)
        except OSError:
            return False

    def _remove(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(path)

    def _draft(self, path: Path, data: bytes) -> Path:
        """Write *data* to a file next to *path*: a full disk is noticed before anything is replaced."""
        draft = Path(f"{path}.tmp")
        try:
            self._remove(draft)
            descriptor = self._files.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fchmod(file.fileno(), 0o600)  # whatever the umask is
                    os.fsync(file.fileno())
            except BaseException:
                self._remove(draft)
                raise
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
        return draft

    def _put(self, draft: Path, path: Path) -> None:
        try:
            self._files.replace(draft, path)
            directory = self._files.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            self._remove(draft)
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error


def _create(kind: Kind) -> tuple[bytes, ClientKey]:
    """Return a new private key and its file, in the format of OpenSSH or, for RSA, of kube-apiserver."""
    if kind == "rsa":
        rsa = generate_private_key(_RSA_EXPONENT, _RSA_BITS)
        secret = rsa.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return secret, ClientKey(rsa)
    edwards = Ed25519PrivateKey.generate()
    secret = edwards.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return secret, ClientKey(edwards)


def _public_file(key: ClientKey) -> bytes:
    """Return a public key file: PEM for RSA, as from kube-apiserver; OpenSSH's line for other types."""
    if key.kind != b"ssh-rsa":
        return key.authorized_key
    return load_ssh_public_key(key.authorized_key).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
