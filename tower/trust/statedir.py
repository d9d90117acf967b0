"""The state directory: private, locked by one process, with atomic writes."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from tower.drafts import draft_of, sync
from tower.errors import ConfigurationError

#: Largest file that is read, B.
FILE_LIMIT = 16 * 1024 * 1024

#: File that is locked.
LOCK = "lock"

#: Marks a directory whose restore from a backup was interrupted.
RESTORING = "restoring"


#: Saves the new contents of files, by name, outside the directory; None: the file is removed.
Save: TypeAlias = Callable[[Mapping[str, bytes | None]], Awaitable[None]]


async def _save_nowhere(files: Mapping[str, bytes | None]) -> None:
    """Do nothing: the directory itself is durable."""


class StateDir:
    """A directory that only its owner can read; created, with its parents, if it is missing.

    Sets the process's umask to 077, since everything that the process writes is private.

    :ivar path: absolute.
    :ivar save: awaited before a change of keys that others depend on, if the directory itself is not durable;
        raises `TowerError`, and nothing is changed.
    :ivar source: the object that `save` writes and whose copy the files are; empty: there is none.
    :raise ConfigurationError: other users may read or own the directory, or it cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.save: Save = _save_nowhere
        self.source = ""
        self._lock: int | None = None
        os.umask(0o077)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
        except FileExistsError as e:
            raise self._no_directory() from e
        except OSError as e:
            raise self._failed(e) from e
        self._check(status)

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISDIR(status.st_mode):
            raise self._no_directory()
        name = shlex.quote(str(self.path))
        if status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"state directory {self.path}: owned by uid {status.st_uid}, but Tower runs as "
                f"{os.geteuid()}: chown -R {os.geteuid()} {name}"
            )
        if status.st_mode & 0o077:
            raise ConfigurationError(
                f"state directory {self.path}: accessible to other users (mode "
                f"{status.st_mode & 0o777:03o}): chmod 700 {name}, or set another directory"
            )

    def lock(self) -> None:
        """Lock the directory until `close`, or until this process and its children exit.

        :raise ConfigurationError: another process holds the lock.
        """
        if self._lock is not None:
            return
        descriptor = -1
        try:
            descriptor = os.open(
                self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(descriptor)
            raise ConfigurationError(
                f"state directory {self.path}: in use by another Tower process: "
                "stop that process, or set another directory"
            ) from e
        except OSError as e:
            if descriptor >= 0:
                os.close(descriptor)
            raise self._failed(e) from e
        self._lock = descriptor

    def require_complete(self) -> None:
        """Reject a directory with a part of a backup only.

        :raise ConfigurationError: with the cure.
        """
        if (self.path / RESTORING).exists():
            raise ConfigurationError(
                f"state directory {self.path}: a restore was interrupted: empty the directory and run "
                "'tower restore' again"
            )

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if the file does not exist.

        :raise ConfigurationError: the file cannot be read, or is larger than `FILE_LIMIT`.
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
            raise ConfigurationError(f"{path}: not written by Tower: larger than {FILE_LIMIT} B")
        return data

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Replace a file's content atomically: after a crash, either the old or the new content is complete.

        :raise ConfigurationError: the file cannot be written, as on a full disk; the old content stays.
        """
        path = self.path / _plain(name)
        try:
            with draft_of(path) as draft:
                draft.write(data, mode)
                draft.put()
        except OSError as e:
            raise ConfigurationError(f"cannot write {path}: {e.strerror}") from e

    async def put(self, name: str, data: bytes) -> None:
        """Save a new content of a file, then write it.

        :raise TowerError: it cannot be saved or written.
        """
        await self.save({name: data})
        self.write(name, data)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists.

        :raise ConfigurationError: the file cannot be removed.
        """
        path = self.path / _plain(name)
        try:
            path.unlink(missing_ok=True)
            sync(self.path)
        except OSError as e:
            raise ConfigurationError(f"cannot remove {path}: {e.strerror}") from e

    async def save_rename(self, name: str, new: str) -> None:
        """Save what `rename` will do.

        :raise TowerError: the file does not exist, or it cannot be saved.
        """
        data = self.read(name)
        if data is None:
            raise ConfigurationError(f"cannot rename {self.path / name} to {new}: it does not exist")
        await self.save({new: data, name: None})

    def rename(self, name: str, new: str) -> None:
        """Rename a file atomically; a file of the new name is replaced.

        :raise ConfigurationError: the file cannot be renamed.
        """
        path = self.path / _plain(name)
        try:
            path.replace(self.path / _plain(new))
            sync(self.path)
        except OSError as e:
            raise ConfigurationError(f"cannot rename {path} to {new}: {e.strerror}") from e

    def _no_directory(self) -> ConfigurationError:
        return ConfigurationError(f"state directory {self.path}: is a file: set the path of a directory")

    def _failed(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"state directory {self.path}: {error.strerror}: set a writable directory")


def _plain(name: str) -> str:
    if not name or "/" in name or name.startswith(".") or name == LOCK:
        raise ValueError(f"{name!r} cannot name a state file")
    return name
