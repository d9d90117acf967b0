"""Backups of a proxy's state directory: a tar file with the records, the keys, and a manifest.

A backup is made while the proxy runs.  The records are a consistent copy by SQLite; the other files are read
before and after it, and again if they changed, as during a rotation of keys.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tower import __version__
from tower.drafts import draft_of
from tower.errors import ConfigurationError
from tower.files import read_plain
from tower.store.archive import COUNT_LIMIT, DATABASE, Backup, SavedFile, disk_problem, read
from tower.store.sqlite_file import checked_copy, explained
from tower.trust.statedir import FILE_LIMIT, LOCK, RESTORING

#: Files that a backup omits: the proxy makes them again.
_OMITTED = (LOCK, RESTORING, "admin.kubeconfig", DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")

#: Name of a file that is being written.
_DRAFT = re.compile(r"\..*\.[0-9a-f]{12}")

#: Attempts to read files that do not change meanwhile.
_ATTEMPTS = 5


def take(directory: Path, now: float, *, with_secrets: bool = True) -> Backup:
    """Return a backup of the state directory; the proxy may run.

    :param now: s since the epoch.
    :param with_secrets: False: the records only, without any key.
    :raise ConfigurationError: it is not a proxy's state directory, or cannot be read.
    """
    path = directory / DATABASE
    if (directory / RESTORING).exists():
        raise ConfigurationError(f"{directory}: a restore was interrupted: finish it before a backup")
    if not path.is_file():
        raise ConfigurationError(
            f"{path} not found: set --state-dir to the state directory of a tower-proxy on this machine"
        )
    if not with_secrets:
        return Backup(__version__, now, has_secrets=False, files={DATABASE: _database(path)})
    before = _files(directory)
    for _ in range(_ATTEMPTS):
        database = _database(path)
        after = _files(directory)
        if before == after:
            return Backup(__version__, now, has_secrets=True, files={DATABASE: database, **after})
        before = after
    raise ConfigurationError(f"{directory}: files changed during each attempt: try again")


def write(backup: Backup, path: Path, *, replace: bool = False) -> None:
    """Write a backup to *path*, mode 0600, and verify it by reading it again.

    :param replace: whether a file of this name may be replaced.
    :raise ConfigurationError: it cannot be written, as on a full disk; no part of it stays.
    """
    try:
        if os.path.lexists(path) and not replace:
            raise FileExistsError
        with draft_of(path) as draft:
            draft.write(backup.encode())
            if read(draft.path) != backup:
                raise ConfigurationError(f"{path}: the backup differs when it is read again: check the disk")
            draft.put(replace=replace)
    except FileExistsError as e:
        raise ConfigurationError(f"{path} exists: choose another name, or add --force to replace it") from e
    except OSError as e:
        raise ConfigurationError(f"cannot write {path}: {disk_problem(e)}") from e


def _database(path: Path) -> SavedFile:
    try:
        with (
            closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=10)) as source,
            closing(sqlite3.connect(":memory:")) as copy,
        ):
            source.backup(copy)
            data = copy.serialize()
    except sqlite3.Error as e:
        raise ConfigurationError(f"{path}: {explained(e)}") from e
    return SavedFile(checked_copy(data, str(path)), 0o600)


def _files(directory: Path) -> dict[str, SavedFile]:
    found: dict[str, SavedFile] = {}
    try:
        for path in _walk(directory):
            mode = stat.S_IMODE(path.lstat().st_mode) & 0o777
            data = read_plain(path, FILE_LIMIT + 1)
            if len(data) > FILE_LIMIT or len(found) >= COUNT_LIMIT:
                raise ConfigurationError(
                    f"{path}: larger than {FILE_LIMIT} B, or one of more than {COUNT_LIMIT} files: "
                    "move it away"
                )
            found[str(path.relative_to(directory))] = SavedFile(data, mode)
    except OSError as e:
        raise ConfigurationError(f"{e.filename or directory}: {e.strerror}") from e
    return found


def _walk(directory: Path) -> Iterator[Path]:
    """Yield the regular files below *directory*, sorted, without drafts and without links."""
    for path in sorted(directory.iterdir()):
        if path.name in _OMITTED or path.is_symlink() or _DRAFT.fullmatch(path.name):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path
