"""The state directory: private, one program at a time, and every file in it replaced in one step."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from pathlib import Path

from tower.errors import ConfigurationError

#: Largest file that is read from it, B.
FILE_LIMIT = 16 * 1024 * 1024

_LOCK = "lock"


class StateDir:
    """A directory that only its owner can look into; created when it is not there.

    Sets the process's umask to 077, since everything the program writes is private.

    :param path: with its parents, which are created as private as it is.
    :ivar path: the directory, absolute.
    :raise ConfigurationError: others may read it, somebody else owns it, or it cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._lock: int | None = None
        os.umask(0o077)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
        except OSError as e:
            raise self._failed(e) from e
        self._check(status)

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigurationError(f"state directory {self.path}: not a directory: name another one")
        if status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"state directory {self.path}: belongs to uid {status.st_uid}, not to {os.geteuid()}, "
                f"who runs this: chown -R {os.geteuid()} {self.path}"
            )
        if status.st_mode & 0o077:
            raise ConfigurationError(
                f"state directory {self.path}: others may look into it (mode {status.st_mode & 0o777:03o}): "
                f"chmod 700 {self.path}, or name another directory"
            )

    def lock(self) -> None:
        """Keep other programs out until `close`, or until this process and its children are gone.

        :raise ConfigurationError: another program has it.
        """
        if self._lock is not None:
            return
        descriptor = -1
        try:
            descriptor = os.open(
                self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(descriptor)
            raise ConfigurationError(
                f"state directory {self.path}: another Tower runs on it: "
                "stop that one, or name another directory"
            ) from e
        except OSError as e:
            if descriptor >= 0:
                os.close(descriptor)
            raise self._failed(e) from e
        self._lock = descriptor

    def close(self) -> None:
        """Let other programs in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None when there is no such file.

        :raise ConfigurationError: it cannot be read, or is larger than `FILE_LIMIT`.
        """
        path = self.path / _plain(name)
        try:
            with path.open("rb") as file:
                data = file.read(FILE_LIMIT + 1)
        except FileNotFoundError:
            return None
        except OSError as e:
            raise ConfigurationError(f"{path}: {e.strerror}") from e
        if len(data) > FILE_LIMIT:
            raise ConfigurationError(f"{path}: larger than {FILE_LIMIT} B, so not Tower's")
        return data

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Replace a file's content; after a crash it is the old one or the new one, whole.

        :raise ConfigurationError: it cannot be written, as on a full disk; the old one stays.
        """
        path = self.path / _plain(name)
        draft = self.path / f".{name}.{secrets.token_hex(6)}"
        try:
            try:
                _write_new(draft, data, mode)
                draft.replace(path)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
            _sync(self.path)
        except OSError as e:
            raise ConfigurationError(f"cannot write {path}: {e.strerror}") from e

    def remove(self, name: str) -> None:
        """Remove a file, if it is there.

        :raise ConfigurationError: it cannot be removed.
        """
        path = self.path / _plain(name)
        try:
            path.unlink(missing_ok=True)
            _sync(self.path)
        except OSError as e:
            raise ConfigurationError(f"cannot remove {path}: {e.strerror}") from e

    def _failed(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"state directory {self.path}: {error.strerror}; name one that can be written"
        )


def _plain(name: str) -> str:
    if not name or "/" in name or name.startswith(".") or name == _LOCK:
        raise ValueError(f"{name!r} cannot name a state file")
    return name


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(descriptor, mode)  # whatever the umask is
        os.fsync(descriptor)


def _sync(directory: Path) -> None:
    """Make a rename or removal in *directory* durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
