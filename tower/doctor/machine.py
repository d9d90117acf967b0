"""Checks of this machine: open files, and a state directory with its disk."""

from __future__ import annotations

import fcntl
import os
import resource
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

from tower.doctor.findings import Step, Verdict, fail, ok, warn
from tower.errors import ConfigurationError
from tower.trust.statedir import FILE_LIMIT

#: Open files below which a program is likely to run out of them.
_FILES_FEW, _FILES_MIN = 4096, 256

#: Free space, B.
_SPACE_LOW, _SPACE_MIN = 256 << 20, 8 << 20


def open_files(limits: Callable[[int], tuple[int, int]] = resource.getrlimit) -> Verdict:
    """Return the verdict about the hard limit of open files, which the programs set for themselves."""
    hard = limits(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= _FILES_FEW:
        return ok("no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}")
    seen, cure = f"at most {hard} open files", "set LimitNOFILE=1048576 in the systemd unit, or ulimit -Hn"
    return fail(seen, cure) if hard < _FILES_MIN else warn(seen, cure)


class ReadOnly:
    """Files of a state directory, which is neither created nor changed; see `Folder`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist.

        :raise ConfigurationError: it cannot be read.
        """
        path = self._path / name
        try:
            with path.open("rb") as file:
                return file.read(FILE_LIMIT)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            raise ConfigurationError(f"{path}: {e.strerror}") from e

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Refuse."""
        raise ConfigurationError(f"{self._path / name}: the doctor changes nothing")


class Directory:
    """A state directory, which the checks do not change.

    :param owner: the program that uses it, such as ``tower-proxy``.
    :param is_required: whether a missing directory is a failure; the programs create it.
    """

    def __init__(self, path: Path, owner: str, *, is_required: bool) -> None:
        self.path = path
        self._owner = owner
        self._is_required = is_required

    def steps(self) -> list[Step]:
        """Return the checks."""
        return [Step("state directory", self._access), Step("free disk", self._space)]

    def _access(self) -> Verdict:
        path, name = self.path, shlex.quote(str(self.path))
        try:
            status = path.stat()
        except FileNotFoundError:
            if self._is_required:
                return fail(f"{path} does not exist", f"set --state-dir to the directory of {self._owner}")
            return ok(f"{path} does not exist yet; {self._owner} creates it")
        if not stat.S_ISDIR(status.st_mode):
            return fail(f"{path} is not a directory", "set --state-dir to another path")
        if status.st_uid != os.geteuid():
            return fail(
                f"{path} is owned by uid {status.st_uid}, and this command runs as {os.geteuid()}",
                f"run this command as the user of {self._owner}, or chown -R {os.geteuid()} {name}",
            )
        if status.st_mode & 0o077:
            return fail(
                f"{path} is accessible to other users (mode {status.st_mode & 0o777:03o})",
                f"chmod 700 {name}",
            )
        open_to = [each for each in sorted(path.iterdir()) if each.is_file() and each.stat().st_mode & 0o077]
        if open_to:
            names = " ".join(str(each) for each in open_to)
            verb = "is" if len(open_to) == 1 else "are"
            return warn(
                f"{names} {verb} accessible to other users", f"chmod 600 {shlex.join(map(str, open_to))}"
            )
        if not os.access(path, os.W_OK | os.X_OK):
            return fail(f"{path} is not writable", "mount its file system writable")
        return ok(f"{path} is private and writable")

    def _space(self) -> Verdict:
        existing = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        found = os.statvfs(existing)
        free = found.f_bavail * found.f_frsize
        seen = f"{free >> 20} MiB free at {existing}"
        if found.f_files and not found.f_favail:
            return fail(f"no free inodes at {existing}", "remove files from that disk")
        if free < _SPACE_MIN:
            return fail(seen, "free space on that disk")
        return warn(seen, "free space on that disk") if free < _SPACE_LOW else ok(seen)

    def is_locked(self) -> bool:
        """Return whether a program of Tower uses the directory."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False
