"""Files of a Secret as kubelet mounts them: symbolic links that all change at once."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


class MountedSecret:
    """A directory with the files of a Secret, or of a projected volume."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._folder.mkdir()
        self._count = 0

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self._folder / name

    def swap(self, files: Mapping[str, str | bytes]) -> None:
        """Replace all files at once, by the rename of ``..data`` (kubelet's atomic writer)."""
        before = self._folder / f"..generation_{self._count}"
        self._count += 1
        after = self._folder / f"..generation_{self._count}"
        after.mkdir(0o700)
        for name, content in files.items():
            (after / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        draft, data = self._folder / "..data_tmp", self._folder / "..data"
        draft.symlink_to(after.name)
        draft.replace(data)
        for name in files:
            if not self.path(name).is_symlink():
                self.path(name).symlink_to(f"..data/{name}")
        shutil.rmtree(before, ignore_errors=True)
