"""Tests of `tools/image/check-image`: which modules of the data path an image has."""

from __future__ import annotations

import runpy
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.native import MODULES

_TOOL = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "image" / "check-image"))
_LIBRARY = "/opt/tower/tower_0123456789abcdef__mypyc.cpython-313-x86_64-linux-gnu.so"


def _extension(module: str) -> str:
    return f"/opt/tower/{module.replace('.', '/')}.cpython-313-x86_64-linux-gnu.so"


class BuildTests(SynchronousTestCase):
    """Images whose ELF files have these paths."""

    def build(self, *paths: str) -> tuple[bool, list[str]]:
        """Return whether the image is compiled, and its faults."""
        binaries = {path: _TOOL["Binary"]("EM_X86_64") for path in paths}
        config = {"architecture": "amd64", "config": {"User": _TOOL["USER"]}}
        image = _TOOL["Image"]("sha256:0", 1, config, dict.fromkeys(paths, 0o100644), binaries)
        return _TOOL["is_compiled"](image), list(_TOOL["faults"](image))

    def test_native(self) -> None:
        """An image with the library and each extension is compiled."""
        self.assertEqual(self.build(_LIBRARY, *map(_extension, MODULES)), (True, []))

    def test_pure(self) -> None:
        """An image with other extensions only is not compiled, without a fault."""
        other = "/opt/tower/cryptography/hazmat/bindings/_rust.abi3.so"
        self.assertEqual(self.build(other), (False, []))

    def test_incomplete(self) -> None:
        """Missing extensions are a fault, since all modules would run in Python."""
        (fault,) = self.build(_LIBRARY, *map(_extension, MODULES[2:]))[1]
        self.assertEqual(fault, f"{MODULES[0]}, {MODULES[1]}: not compiled, unlike other modules")
