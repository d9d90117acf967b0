"""Restore of a backup into an empty state directory."""

from __future__ import annotations

from pathlib import Path

from tower.drafts import draft_of, sync
from tower.errors import ConfigurationError
from tower.store.archive import DATABASE, Backup, SavedFile, disk_problem
from tower.store.sqlite import SIZE_LIMIT
from tower.store.sqlite_file import SQLiteFile
from tower.trust.statedir import LOCK, RESTORING, StateDir


def restore(backup: Backup, directory: Path) -> None:
    """Write a backup to an empty or new state directory; after an error the directory is empty again.

    :raise ConfigurationError: the directory is not empty or in use, or cannot be written.
    """
    state = StateDir(directory)
    state.lock()
    written: list[Path] = []
    try:
        present = sorted(path.name for path in directory.iterdir() if path.name != LOCK)
        if present:
            raise ConfigurationError(
                f"state directory {directory}: not empty (it has {present[0]}): restore into a new directory"
            )
        try:
            state.write(RESTORING, b"")
            for name, file in backup.files.items():
                _write(directory, name, file, written)
            SQLiteFile(str(directory / DATABASE), SIZE_LIMIT).load()
            sync(directory)
        except BaseException:
            _remove(directory, written)
            raise
        finally:
            state.remove(RESTORING)
    except OSError as e:
        raise ConfigurationError(f"cannot restore into {directory}: {disk_problem(e)}") from e
    finally:
        state.close()


def _write(directory: Path, name: str, file: SavedFile, written: list[Path]) -> None:
    path = directory / name
    for parent in reversed(path.relative_to(directory).parents[:-1]):
        folder = directory / parent
        if not folder.exists():
            folder.mkdir(mode=0o700)
            written.append(folder)
    with draft_of(path) as draft:
        draft.write(file.data, file.mode)
        draft.put(replace=False)
    written.append(path)


def _remove(directory: Path, written: list[Path]) -> None:
    for path in reversed(written):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    for suffix in ("-wal", "-shm"):
        (directory / (DATABASE + suffix)).unlink(missing_ok=True)
