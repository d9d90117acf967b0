"""Encryption of secrets in records, with a key in a file outside the database.

So the database alone, such as a backup, reveals no secret.  Secrets are Fernet tokens: AES-128 in CBC mode
with HMAC-SHA256.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from tower.drafts import draft_of
from tower.errors import ConfigurationError

#: Largest key file that is read, B.
FILE_LIMIT = 64 * 1024

#: Identity of a file's content: modification time, size, inode and mode.
_Signature = tuple[int, int, int, int]


class VaultError(ConfigurationError):
    """The key file cannot be used."""


class UnsealFailed(VaultError):
    """The key file holds no key for a sealed secret; new secrets can still be sealed."""


class Vault:
    """Seals and opens secrets with the keys of a file.

    :param path: key file, one key of `new_key` per line; lines that begin with ``#`` are ignored.  The first
        key seals, all keys open: to rotate, insert a new first line.  `seal` creates a missing file.  Changes
        take effect immediately.
    :param now: returns the time of day, s since the epoch, which sealed secrets contain.
    """

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], float] | None = None) -> None:
        self.path = Path(path)
        self._now = now
        self._signature: _Signature | None = None
        self._keys: list[Fernet] = []

    def seal(self, plain: bytes, about: str) -> str:
        """Return *plain* encrypted; only `open` with the same *about* decrypts it.

        :param about: the owner, such as the uid of a cluster; not secret, without NUL.
        :raise VaultError: the key file cannot be used or created.
        """
        if not self._has_keys():
            self._create()
            self._has_keys()
        data = about.encode() + b"\0" + plain
        first = self._keys[0]
        token = first.encrypt(data) if self._now is None else first.encrypt_at_time(data, int(self._now()))
        return token.decode("ascii")

    def open(self, sealed: str, about: str) -> bytes:
        """Return the secret that was sealed for *about*.

        :raise UnsealFailed: it was sealed with another key or for another owner, or was modified.
        :raise VaultError: the key file cannot be used.
        """
        if not self._has_keys():
            raise UnsealFailed(f"key file {self.path}: not found: restore it from a backup")
        try:
            data = MultiFernet(self._keys).decrypt(sealed.encode())
        except InvalidToken:
            raise UnsealFailed(
                f"key file {self.path}: holds no key for this secret: restore the key from a backup"
            ) from None
        owner, _, plain = data.partition(b"\0")
        if owner != about.encode():
            raise UnsealFailed("the secret was sealed for another owner: restore the database from a backup")
        return plain

    def is_current(self, sealed: str) -> bool:
        """Return whether the first key of the file sealed this.

        :raise VaultError: the key file cannot be used.
        """
        if not self._has_keys():
            return False
        try:
            self._keys[0].decrypt(sealed.encode())
        except InvalidToken:
            return False
        return True

    @property
    def key_id(self) -> str:
        """Identifies the first key without revealing it; empty if the file does not exist.

        :raise VaultError: the key file cannot be used.
        """
        return key_id(self._lines()[0]) if self._has_keys() else ""

    def with_key(self, key: bytes) -> bytes:
        """Return the content of the file with *key* as its first key.  Secret.

        :raise VaultError: the key file cannot be read.
        """
        return key + b"\n" + (self.path.read_bytes() if self._has_keys() else b"")

    def add_key(self, key: bytes) -> None:
        """Make *key* the first key of the file, which seals from now on.

        :raise VaultError: the key file cannot be read or written; it is unchanged.
        """
        self._write(self.with_key(key))

    def drop_old_keys(self) -> None:
        """Remove all keys but the first from the file.

        :raise VaultError: the key file cannot be read or written; it is unchanged.
        """
        if not self._has_keys():
            return
        first, *others = self._lines()
        old = {*others} - {first}
        if old:
            lines = self.path.read_bytes().splitlines(keepends=True)
            self._write(b"".join(line for line in lines if line.strip() not in old))

    def _lines(self) -> list[bytes]:
        """Return the keys of the file as they are written."""
        lines = (line.strip() for line in self.path.read_bytes().splitlines())
        return [line for line in lines if line and not line.startswith(b"#")]

    def _write(self, data: bytes) -> None:
        path = self.path.resolve()  # a link stays
        try:
            with draft_of(path) as draft:
                draft.write(data)
                draft.put()
        except OSError as e:
            raise VaultError(
                f"cannot write key file {path}: {e.strerror}: make it and its directory writable by Tower"
            ) from e

    def _has_keys(self) -> bool:
        """Read the file if it changed; return whether it exists."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                signature = status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
                if signature == self._signature:
                    return True
                self._check(status)
                data = file.read(FILE_LIMIT + 1)
        except FileNotFoundError:
            self._signature = None
            return False
        except OSError as e:
            raise VaultError(f"key file {self.path}: {e.strerror}") from e
        self._signature = None
        self._keys = self._parsed(data)
        self._signature = signature
        return True

    def _check(self, status: os.stat_result) -> None:
        if status.st_mode & 0o077:
            raise VaultError(
                f"key file {self.path}: readable by other users (mode {status.st_mode & 0o777:03o}): "
                f"chmod 600 {shlex.quote(str(self.path))}"
            )
        if status.st_uid not in (os.geteuid(), 0):
            raise VaultError(
                f"key file {self.path}: owned by uid {status.st_uid}, but Tower runs as {os.geteuid()}: "
                f"chown {os.geteuid()} {self.path}"
            )

    def _parsed(self, data: bytes) -> list[Fernet]:
        keys = []
        for number, line in enumerate(data[:FILE_LIMIT].splitlines(), 1):
            line = line.strip()
            if not line or line.startswith(b"#"):
                continue
            try:
                keys.append(Fernet(line))
            except ValueError:  # its text may contain the line
                raise VaultError(
                    f"key file {self.path}: line {number} is not a key: a key is 32 bytes in base64url"
                ) from None
        if not keys or len(data) > FILE_LIMIT:
            raise VaultError(f"key file {self.path}: holds no key: restore it from a backup, or remove it")
        return keys

    def _create(self) -> None:
        """Create the file; keep one that another process creates at the same time."""
        try:
            with draft_of(self.path) as draft:
                draft.write(new_key() + b"\n")
                draft.put(replace=False)  # durable: without the key, everything that it sealed is lost
        except FileExistsError:
            return
        except OSError as e:
            raise VaultError(f"cannot create key file {self.path}: {e.strerror}") from e


def new_key() -> bytes:
    """Return a new line for a key file."""
    return Fernet.generate_key()


def key_id(key: bytes) -> str:
    """Return a text that identifies a key of `new_key` without revealing it."""
    return hashlib.sha256(b"tower secrets key " + key).hexdigest()[:16]
