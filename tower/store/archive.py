"""The archive of a backup: a compressed tar file, whose first entry is a manifest with digests.

All functions take and return whole files in memory.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from attrs import field, frozen

from tower.errors import ConfigurationError
from tower.store.sqlite import SIZE_LIMIT
from tower.store.sqlite_file import checked_copy
from tower.trust.statedir import FILE_LIMIT

#: File of the records.
DATABASE = "tower.db"

#: All objects of a proxy with its records in a host cluster, a JSON array; in place of all other files.
HOST_OBJECTS = "host-objects.json"

#: Name of the manifest, the first entry of the archive.
MANIFEST = "tower-backup.json"

#: Version of the archive's format.
FORMAT = 1

#: Most files of a backup.
COUNT_LIMIT = 10_000

#: Longest path of a file in a backup, characters.
_NAME_LIMIT = 1024


@frozen
class SavedFile:
    """A file of a backup."""

    data: bytes = field(repr=False)
    mode: int


@frozen
class Backup:
    """The content of a backup.

    :ivar version: of the Tower that made it.
    :ivar created: s since the epoch.
    :ivar has_secrets: whether the keys are in it.
    :ivar files: by name, relative to the state directory.
    """

    version: str
    created: float
    has_secrets: bool
    files: Mapping[str, SavedFile]

    @property
    def count(self) -> int:
        """Number of files, or of the host cluster's objects."""
        objects = self.files.get(HOST_OBJECTS)
        return len(self.files) if objects is None else len(json.loads(objects.data))

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        return {
            "format": FORMAT,
            "version": self.version,
            "created": self.created,
            "secrets": self.has_secrets,
            "files": {
                name: {"sha256": hashlib.sha256(file.data).hexdigest(), "mode": file.mode}
                for name, file in self.files.items()
            },
        }

    def encode(self) -> bytes:
        """Return the archive."""
        buffer = io.BytesIO()
        manifest = SavedFile(json.dumps(self.manifest(), indent=1).encode(), 0o600)
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
            for name, file in ((MANIFEST, manifest), *self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = len(file.data), file.mode, int(self.created)
                archive.addfile(entry, io.BytesIO(file.data))
        return buffer.getvalue()


def disk_problem(error: OSError) -> str:
    """Return the cause of a failed write, and the cure if the disk is full."""
    cure = ": free space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{error.strerror or error}{cure}"


class _NotABackup(Exception):
    """The file is not a complete backup; the text is the reason."""


def read(path: Path) -> Backup:
    """Return the backup in *path*, verified.

    :raise ConfigurationError: it is not a backup, is damaged, or a newer Tower made it.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            return _read(archive, path)
    except _NotABackup as e:
        raise ConfigurationError(f"{path}: not a complete backup of Tower: {e}: use another backup") from e
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as e:
        raise ConfigurationError(f"{path}: not a complete backup of Tower: use another backup") from e
    except OSError as e:
        raise ConfigurationError(f"{path}: {e.strerror or e}") from e


def _read(archive: tarfile.TarFile, path: Path) -> Backup:
    manifest: Any = None
    files: dict[str, SavedFile] = {}
    for entry in archive:
        if manifest is None:
            manifest = _manifest(entry, archive.extractfile(entry), path)
            continue
        listed = manifest["files"].get(entry.name)
        if not entry.isreg() or listed is None or entry.name in files:
            raise _NotABackup(f"unexpected entry {entry.name!r}")
        data = _content(entry, archive.extractfile(entry))
        if hashlib.sha256(data).hexdigest() != listed["sha256"]:
            raise _NotABackup(f"{entry.name} is damaged")
        files[entry.name] = SavedFile(data, listed["mode"])
    if manifest is None or set(files) != set(manifest["files"]):
        raise _NotABackup("it is truncated")
    if DATABASE in files:
        checked_copy(files[DATABASE].data, f"{path}, {DATABASE}")
    elif not _has_objects(files):
        raise _NotABackup("it has no records")
    return Backup(manifest["version"], manifest["created"], manifest["secrets"], files)


def _has_objects(files: Mapping[str, SavedFile]) -> bool:
    """Return whether the only file has objects of a host cluster."""
    try:
        objects = json.loads(files[HOST_OBJECTS].data)
    except (KeyError, ValueError, RecursionError):
        return False
    return len(files) == 1 and isinstance(objects, list)


def _manifest(entry: tarfile.TarInfo, source: IO[bytes] | None, path: Path) -> Any:
    if entry.name != MANIFEST:
        raise _NotABackup("it has no manifest")
    try:
        manifest = json.loads(_content(entry, source))
        form, files = manifest["format"], manifest["files"]
        is_valid = (
            isinstance(manifest["version"], str)
            and isinstance(manifest["created"], int | float)
            and isinstance(manifest["secrets"], bool)
            and isinstance(form, int)
            and len(files) <= COUNT_LIMIT + 1
            and all(
                _is_path(name) and isinstance(file["sha256"], str) and 0 <= file["mode"] <= 0o777
                for name, file in files.items()
            )
        )
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise _NotABackup("its manifest is damaged") from e
    if not is_valid:
        raise _NotABackup("its manifest is damaged")
    if form > FORMAT:
        raise ConfigurationError(
            f"{path}: made by a newer Tower ({manifest['version']}): restore it with that version"
        )
    return manifest


def _content(entry: tarfile.TarInfo, source: IO[bytes] | None) -> bytes:
    limit = SIZE_LIMIT if entry.name in (DATABASE, HOST_OBJECTS) else FILE_LIMIT
    if source is None or entry.size > limit:
        raise _NotABackup(f"{entry.name} is not a file of at most {limit} B")
    return source.read()


def _is_path(name: str) -> bool:
    """Return whether *name* is a path inside a directory."""
    segments = name.split("/")
    return len(name) <= _NAME_LIMIT and name.isprintable() and not {"", ".", ".."} & {*segments}
