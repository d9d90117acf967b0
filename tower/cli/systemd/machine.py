"""The machine that a service is installed on, or the directory of its image."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from tower.cli.client import CommandFailed
from tower.cli.systemd.service_files import MARK, ServiceFile
from tower.escaping import escaped
from tower.files import read_plain

#: Exists if systemd runs; see ``sd_booted(3)``.
BOOTED = Path("/run/systemd/system")

#: Largest file that is compared, B.
_LIMIT = 1 << 20

Run = Callable[[Sequence[str]], None]


def run_command(argv: Sequence[str]) -> None:
    """Run a command of systemd.

    :raise CommandFailed: it is missing or failed.
    """
    line = " ".join(argv)
    try:
        done = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as e:
        raise CommandFailed(f"cannot run '{line}': {e.strerror}: install systemd") from e
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        reason = escaped(output[-1]) if output else f"exit code {done.returncode}"
        raise CommandFailed(f"'{line}' failed: {reason}")


@frozen
class ServiceHost:
    """Files and commands of a machine.

    :ivar root: its root directory; one that is not ``/`` is an image, on which no service runs.
    """

    root: Path
    run: Run = run_command

    @property
    def is_image(self) -> bool:
        """Whether this is another machine's file system."""
        return self.root != Path("/")

    def check(self) -> None:
        """Reject a machine without systemd, and a user without the right to install services.

        :raise CommandFailed: with the cure.
        """
        if self.is_image:
            if not self.root.is_dir():
                raise CommandFailed(f"--root {self.root} is not a directory: create it")
            return
        if os.geteuid() != 0:
            raise CommandFailed("only root can install services: run the command with sudo")
        if not BOOTED.is_dir():
            raise CommandFailed(
                f"systemd does not run on this machine ({BOOTED} does not exist): start the program by other "
                "means, or write the files to an image with --root DIR"
            )

    def check_owner(self, file: ServiceFile) -> None:
        """Reject to replace or remove a file that Tower has not written.

        :raise CommandFailed: with the cure.
        """
        path = self.at(file)
        if file.kept:
            return
        if path.is_symlink():
            cure = "systemctl unmask" if os.readlink(path) == os.devnull else "rm"
            name = file.path.name if cure != "rm" else path
            raise CommandFailed(f"{path} is a link to {os.readlink(path)}: remove it first: {cure} {name}")
        found = self._read(path)
        if found is not None and not found.startswith(MARK.encode()):
            raise CommandFailed(f"{path} was not written by this command: rename or remove it first")

    def at(self, file: ServiceFile) -> Path:
        """Return the path of *file* on this machine."""
        return self.root / file.path.relative_to("/")

    def write(self, file: ServiceFile) -> str:
        """Write *file* atomically; return what was done.

        :raise CommandFailed: it cannot be written.
        """
        path = self.at(file)
        found = self._read(path)
        if found is not None and file.kept:
            return f"kept {path}"
        if found == file.content.encode() and path.stat().st_mode & 0o777 == file.mode:
            return f"unchanged {path}"
        draft = path.with_name(f".{path.name}.new")
        try:
            self._make_directory(path.parent)
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode)
            with os.fdopen(descriptor, "w") as stream:
                os.fchmod(descriptor, file.mode)
                stream.write(file.content)
                stream.flush()
                os.fsync(descriptor)
            draft.replace(path)
        except OSError as e:
            raise _failed("write", path, e) from e
        return f"{'created' if found is None else 'replaced'} {path}"

    def remove(self, file: ServiceFile) -> str | None:
        """Remove *file*, and an empty directory of drop-ins; return what was done, if anything."""
        path = self.at(file)
        try:
            path.unlink()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise _failed("remove", path, e) from e
        if (
            path.parent.suffix == ".d"
            and path.parent.name.endswith(".service.d")
            and not any(path.parent.iterdir())
        ):
            path.parent.rmdir()
        return f"removed {path}"

    def exists(self, file: ServiceFile) -> bool:
        """Return whether *file* exists."""
        return self.at(file).exists()

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_plain(path, _LIMIT)
        except FileNotFoundError:
            return None
        except OSError as e:
            raise _failed("read", path, e) from e

    def _make_directory(self, path: Path) -> None:
        """Create a directory and its parents, which all users may read, whatever the umask."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=0o755)
            each.chmod(0o755)


def _failed(verb: str, path: Path, error: OSError) -> CommandFailed:
    return CommandFailed(f"cannot {verb} {path}: {error.strerror}")
