"""The key pair with which nodes let us in: two files, made when they are not there, and never overwritten.

The names and modes are kube-apiserver's: the public key is at the private one's path with ``.pub`` behind it,
and written last, so that where it is the pair is whole.
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

#: Kinds of keys that are made; any kind that `ClientKey` knows is used.
Kind: TypeAlias = Literal["ed25519", "rsa"]

#: Size of an RSA key, bits, and its exponent.
_RSA_BITS, _RSA_EXPONENT = 2048, 65537

#: When a file was written, its size, its inode, its mode and its owner.
_Identity: TypeAlias = tuple[int, int, int, int, int]

#: What no file is.
_NEVER: _Identity = (0, 0, 0, 0, 0)

#: The largest public key file that is looked at, B.
_LARGEST = 64 * 1024

_log = Logger()


class KeyPairFiles:
    """A private key file and the public one beside it.

    :param path: of the private key.
    :param kind: of a key that has to be made.
    :param files: where both are looked for, and made.
    :ivar path: of the private key.
    :ivar public_path: of the public one.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind = "ed25519", files: Files = ANYWHERE) -> None:
        self.path = Path(path)
        self.public_path = Path(f"{self.path}.pub")
        self.kind: Kind = kind
        self._files = files
        self._private: tuple[_Identity, ClientKey] | None = None
        self._seen: tuple[_Identity | None, _Identity | None] | None = None

    def turn_to(self, path: str | os.PathLike[str], kind: Kind, files: Files = ANYWHERE) -> None:
        """Be another pair from now on, which counts as one that `changed`."""
        if Path(path) != self.path:
            self.path, self.public_path = Path(path), Path(f"{path}.pub")
            self._private, self._seen = None, (_NEVER, _NEVER)
        self.kind, self._files = kind, files

    def ensure(self) -> None:
        """Make what is missing: the pair, or the public half of a private key that is there.

        A public half without its private one is of no use, and goes with a new pair.  A private key that is
        there is never written to, whatever is in it; but an empty file is none.

        :raise ConfigurationError: a file cannot be read or written, or holds no key that can be used; what
            was there is still there.
        """
        if not self._size(self.path):
            self._generate()
        elif not self._size(self.public_path):
            self._derive()

    def _derive(self) -> None:
        """Make the public half; where it cannot be written, as beside a mounted secret, do without."""
        key = self.private()
        _log.info("Private key exists, but public key does not: {path}", path=str(self.public_path))
        try:
            self._put(self._draft(self.public_path, _public_file(key)), self.public_path)
        except ConfigurationError as error:
            _log.warn("{error}; the private key is enough to log in", error=str(error))

    def _size(self, path: Path) -> int:
        """Return how much there is at *path*, B; a link that leads nowhere counts as something.

        :raise ConfigurationError: nobody can tell, or it is a device or the like, which nothing replaces.
        """
        try:
            status = self._files.stat(path)
        except FileNotFoundError:
            return int(self._files.is_link(path))
        except OSError as error:
            raise ConfigurationError(f"Error detecting if key exists: {path}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"SSH key {path}: it is not a regular file: name another one")
        return status.st_size

    def _generate(self) -> None:
        _log.info("Key doesn't exist, attempting to create {path}", path=str(self.path))
        if not self._is_directory(self.path.parent):
            raise ConfigurationError(
                f"SSH key {self.path}: directory {self.path.parent} is missing: make it, for its owner alone"
            )
        secret, key = _made(self.kind)
        drafts = [self._draft(self.path, secret)]
        try:
            drafts.append(self._draft(self.public_path, _public_file(key)))
            # gone first: half a pair is made whole the next time, a false one is not seen so easily
            self._remove(self.public_path)
        except BaseException:
            for draft in drafts:
                self._remove(draft)
            raise
        self._put(drafts[0], self.path)
        self._put(drafts[1], self.public_path)

    def private(self) -> ClientKey:
        """Return the private key as it is on the disk now; it is parsed only when it has changed.

        :raise KeyUnusable: with upstream's words and a cure.
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
        """Return the public key as a line of ``authorized_keys``, without a comment: what clouds install.

        :raise ConfigurationError: a file cannot be read, holds no such key, or the two are no pair.
        """
        self._seen = self._identities()
        if not self._size(self.public_path):
            self._derive()
            self._seen = self._identities()
        line = self.private().authorized_key
        if self._size(self.public_path) and self._read_public() != line:
            raise KeyUnusable(
                f"{self.public_path} is not the public key of {self.path}: delete it, and it is made anew"
            )
        return line

    def changed(self) -> bool:
        """Tell whether a file is not any more what it was when `public_line` was called last."""
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
            # not chained: the parser's words may quote the file
            raise KeyUnusable(
                f"error parsing SSH key {path}: 'it is no public key in PEM or in OpenSSH's format': "
                "delete it, and it is made anew from the private one"
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
        """Write what *path* is to hold beside it; a full disk is noticed here, when nothing is lost yet."""
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


def _made(kind: Kind) -> tuple[bytes, ClientKey]:
    """Return a new private key's file, as OpenSSH or, for RSA, kube-apiserver writes it, and the key."""
    if kind == "rsa":
        rsa = generate_private_key(_RSA_EXPONENT, _RSA_BITS)
        secret = rsa.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return secret, ClientKey(rsa)
    edwards = Ed25519PrivateKey.generate()
    secret = edwards.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return secret, ClientKey(edwards)


def _public_file(key: ClientKey) -> bytes:
    """Return the content of a public key's file.

    For RSA that is PEM, which kube-apiserver wrote and what read its file expects; for all others the line
    that ``ssh-copy-id`` and everybody else expects.
    """
    if key.kind != b"ssh-rsa":
        return key.authorized_key
    return load_ssh_public_key(key.authorized_key).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
