"""Rooms import lower rooms only, and each describes itself; tests do not import each other."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parent.parent
LINT = Path(sys.executable).parent / "lint-imports"
#: Most modules of its own that a folder may have.
MODULES = 20


class OrderTests(SynchronousTestCase):
    """The contract of import-linter in pyproject.toml, on a package of empty rooms."""

    def setUp(self) -> None:
        """Make the package."""
        self.path = Path(self.mktemp())
        self.path.mkdir()
        shutil.copy(ROOT / "pyproject.toml", self.path)
        config = tomllib.loads((ROOT / "pyproject.toml").read_text())
        layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
        for room in (name for layer in layers for name in layer.split(" | ")):
            self.module(f"{room}/__init__.py", "")
        self.module("__init__.py", "")

    def module(self, name: str, text: str) -> None:
        """Write a module of the package."""
        path = self.path / "tower" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def lint(self) -> subprocess.CompletedProcess[str]:
        """Check the package."""
        command = [str(LINT), "--no-cache"]
        environment = {"PYTHONPATH": str(self.path.resolve())}
        return subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False
        )

    def test_downward(self) -> None:
        """A room may import a lower one."""
        self.module("web/gateway.py", "import tower.net.pipes")
        self.module("net/pipes.py", "")
        self.assertEqual(self.lint().returncode, 0)

    def test_upward(self) -> None:
        """A room that imports a higher one is named."""
        self.module("net/pipes.py", "import tower.web.gateway")
        self.module("web/gateway.py", "")
        done = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("tower.net.pipes -> tower.web.gateway", done.stdout)

    def test_new_room(self) -> None:
        """A room that is missing in the order is named."""
        self.module("attic/__init__.py", "")
        done = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("attic", done.stdout)


class FolderTests(SynchronousTestCase):
    """Rules for every folder of the product."""

    folders = [path.parent for path in (ROOT / "tower").rglob("__init__.py")]

    def test_size(self) -> None:
        """No folder has more modules of its own than a reader can take in."""
        crowded = [
            str(folder)
            for folder in self.folders
            if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > MODULES
        ]
        self.assertEqual(crowded, [])

    def test_described(self) -> None:
        """Each room below the top describes itself in three to ten lines."""
        silent = [
            str(folder)
            for folder in self.folders
            if folder.parent == ROOT / "tower"
            and not 3
            <= len((ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "").splitlines())
            <= 10
        ]
        self.assertEqual(silent, [])


class NameTests(SynchronousTestCase):
    """One name, one meaning."""

    def test_classes(self) -> None:
        """No name is that of two classes; `Options` is twistd's."""
        places: dict[str, list[str]] = {}
        for path in sorted((ROOT / "tower").rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
        twice = {name: found for name, found in places.items() if len(found) > 1 and name != "Options"}
        self.assertEqual(twice, {})


class TestModuleTests(SynchronousTestCase):
    """Shared parts of tests are in helpers: test modules are only run."""

    def test_no_imports(self) -> None:
        """No module imports a `test_*` module."""
        importers = []
        for path in sorted((ROOT / "tests").rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or "", *(alias.name for alias in node.names)]
                elif isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                else:
                    continue
                if any(part.startswith("test_") for name in names for part in name.split(".")):
                    importers.append(f"{path.relative_to(ROOT)}:{node.lineno}")
        self.assertEqual(importers, [])
