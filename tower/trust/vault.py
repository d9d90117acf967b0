"""Secrets in records: sealed by a key that is in a file, and not in the database.

Who has the database alone, such as a backup of it, reads none of them.  They are sealed as Fernet does it: by
AES-128 in CBC mode with HMAC-SHA256.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from tower.errors import ConfigurationError

#: Largest key file that is read, B.
FILE_LIMIT = 64 * 1024

#: Identity of a file's content: while it is the same, so is the content.
_Signature = tuple[int, int, int, int]


class VaultError(ConfigurationError):
    """The key file cannot be used."""


class UnsealFailed(VaultError):
    """Something was sealed with a key that the file does not hold; what is sealed now opens again."""


class Vault:
    """:param path: of the key file: one key in a line, as `new_key` makes them.  The first one seals; all of
        them open, so that a new one can be put in front of the others.  Lines that begin with ``#`` do not
        count.  The file is made when something is to be sealed and there is none; changes count at once.
    :param now: returns the time of day, s since the epoch; what is sealed shows when.
    """

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], float] | None = None) -> None:
        self.path = Path(path)
        self._now = now
        self._signature: _Signature | None = None
        self._keys: list[Fernet] = []

    def seal(self, plain: bytes, about: str) -> str:
        """Return *plain* so that only `open` with the same *about* returns it.

        :param about: what it belongs to, such as the uid of a cluster; no secret, and without a NUL.
        :raise VaultError: there is no key file that can be used, and none can be made.
        """
        if not self._has_keys():
            self._create()
            self._has_keys()
        data = about.encode() + b"\0" + plain
        first = self._keys[0]
        token = first.encrypt(data) if self._now is None else first.encrypt_at_time(data, int(self._now()))
        return token.decode("ascii")

    def open(self, sealed: str, about: str) -> bytes:
        """Return what was sealed for *about*.

        :raise NotOpened: it was sealed with another key, for something else, or was changed since.
        :raise VaultError: the key file cannot be used.
        """
        if not self._has_keys():
            raise UnsealFailed(f"key file {self.path}: is not there: put it back, as from a backup")
        try:
            data = MultiFernet(self._keys).decrypt(sealed.encode())
        except InvalidToken:
            raise UnsealFailed(f"key file {self.path}: holds no key that opens what was sealed") from None
        owner, _, plain = data.partition(b"\0")
        if owner != about.encode():
            raise UnsealFailed("what was sealed belongs to something else")
        return plain

    def is_current(self, sealed: str) -> bool:
        """Tell whether the first key of the file sealed this.

        :raise VaultError: the key file cannot be used.
        """
        if not self._has_keys():
            return False
        try:
            self._keys[0].decrypt(sealed.encode())
        except InvalidToken:
            return False
        return True

    def _has_keys(self) -> bool:
        """Read the file if it changed; return whether there is one."""
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
                f"key file {self.path}: others may read it (mode {status.st_mode & 0o777:03o}): "
                f"chmod 600 {self.path}"
            )
        if status.st_uid not in (os.geteuid(), 0):
            raise VaultError(
                f"key file {self.path}: belongs to uid {status.st_uid}, not to {os.geteuid()}, who runs this"
            )

    def _parsed(self, data: bytes) -> list[Fernet]:
        keys = []
        for number, line in enumerate(data[:FILE_LIMIT].splitlines(), 1):
            line = line.strip()
            if not line or line.startswith(b"#"):
                continue
            try:
                keys.append(Fernet(line))
            except ValueError:  # whose text may hold the line
                raise VaultError(
                    f"key file {self.path}: line {number} is no key: a key is 32 bytes in base64url"
                ) from None
        if not keys or len(data) > FILE_LIMIT:
            raise VaultError(
                f"key file {self.path}: holds no key: put it back, as from a backup, or remove it"
            )
        return keys

    def _create(self) -> None:
        """Make the file; one that somebody else made in this moment stays."""
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(new_key() + b"\n")
                    file.flush()
                    os.fsync(descriptor)
                os.link(draft, self.path)
            finally:
                draft.unlink(missing_ok=True)
            self._sync()
        except FileExistsError:
            return
        except OSError as e:
            raise VaultError(f"cannot make the key file {self.path}: {e.strerror}") from e

    def _sync(self) -> None:
        """Make the file's name durable: without the key all that it seals would be lost."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def new_key() -> bytes:
    """Return a new line for a key file."""
    return Fernet.generate_key()
