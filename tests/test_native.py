"""Tests of `tower.native`, with a folder of small sources and files that pretend to be compiled."""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import subprocess
import sys
import sysconfig
from base64 import urlsafe_b64encode
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower import native

ROOT = Path(__file__).resolve().parent.parent
#: A small extension of Python, which can be loaded.
LOADABLE = min(
    Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"), key=lambda path: path.stat().st_size
)
#: Offset of the machine in an ELF header, and the value of a machine that no Python runs on (AT&T WE 32100).
MACHINE, OTHER = 18, b"\x01\x00"
#: A module that is never compiled.
OTHER_MODULE = "tower.errors"
#: Prints the files of modules, and the result of the choice.
PROBE = """
import importlib, json, sys
import tower
files = [importlib.import_module(name).__file__ for name in sys.argv[1:]]
print(json.dumps([files, tower.WHY_PURE]))
"""


def elf(data: bytes = b"", table: int = 64) -> bytes:
    """Return the header of an ELF file for 64 bits, with a table at *table*, and *data*."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, table)
    return bytes(header) + data


class NativeTestCase(SynchronousTestCase):
    """A test with a tree of sources."""

    def setUp(self) -> None:
        """Write the sources."""
        self.root = Path(self.mktemp()).resolve()
        for module in (*native.MODULES, OTHER_MODULE):
            path = native.source_of(self.root, module)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"NAME = {module!r}\n")
        finders = list(sys.meta_path)
        self.addCleanup(lambda: sys.meta_path.__setitem__(slice(None), finders))

    def extension(self, module: str) -> Path:
        """Return the path of a compiled module."""
        return native.source_of(self.root, module).with_suffix(EXTENSION_SUFFIXES[0])

    def folders(self, module: str) -> list[str]:
        """Return the ``__path__`` of the package that contains a module."""
        return [str(native.source_of(self.root, module).parent)]

    def compile(self) -> Path:
        """Write what a compilation, and one of another commit, leave; return the path of the library."""
        library = native.library_of(self.root)
        code = LOADABLE.read_bytes()
        for module in native.MODULES:
            self.extension(module).write_bytes(code + library.encode())
        self.extension(OTHER_MODULE).write_bytes(code)
        path = self.root / f"{library}{EXTENSION_SUFFIXES[0]}"
        path.write_bytes(elf(b"no code"))
        return path

    def record(self) -> Path:
        """Write the list of an installed wheel's files with their digests; return its path."""
        path = self.root / "kubesphere_tower-1.0.dist-info" / "RECORD"
        path.parent.mkdir()
        with path.open("w") as record:
            for file in self.root.rglob("*.so"):
                digest = urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().rstrip("=")
                record.write(f"{file.relative_to(self.root)},sha256={digest},{file.stat().st_size}\n")
        return path

    def fails(self, *words: str) -> None:
        """Check that the modules in Python are chosen, for a reason with *words* that is logged."""
        why = native.choose("", self.root)
        for word in (*words, "install Tower again, or set TOWER_NATIVE=0"):
            self.assertIn(word, why)
        self.assertEqual(native.warnings_of(why), [f"running without compiled modules: {why}"])
        self.assertIsInstance(sys.meta_path[0], native.PythonFinder)
        error = self.assertRaises(SystemExit, native.choose, "1", self.root)
        self.assertEqual(error.code, f"TOWER_NATIVE=1: {why}")


class ListTests(SynchronousTestCase):
    """`MODULES`."""

    def test_names(self) -> None:
        """The names are sorted, and each is a module of Tower that is not a package."""
        self.assertEqual(list(native.MODULES), sorted(set(native.MODULES)))
        for module in native.MODULES:
            path = native.source_of(ROOT, module)
            self.assertTrue(path.is_file(), path)
            self.assertNotEqual(path.name, "__init__.py")

    def test_group(self) -> None:
        """The name of the library changes with the sources."""
        self.assertRegex(native.library_of(ROOT), r"\Atower_[0-9a-f]{16}__mypyc\Z")


class ChoiceTests(NativeTestCase):
    """`choose`."""

    def test_not_installed(self) -> None:
        """Without compiled modules, those in Python are used, and nothing is logged; 1 ends the program."""
        why = native.choose("", self.root)
        self.assertEqual(why, native.NOT_INSTALLED)
        self.assertEqual(native.warnings_of(why), [])
        error = self.assertRaises(SystemExit, native.choose, "1", self.root)
        cure = "install it again with TOWER_NATIVE=1 pip install ., or unset TOWER_NATIVE"
        self.assertEqual(error.code, f"TOWER_NATIVE=1: {native.NOT_INSTALLED}; {cure}")

    def test_off(self) -> None:
        """TOWER_NATIVE=0 does not look at compiled modules, and nothing is logged."""
        self.patch(native, "load", lambda root: self.fail("loaded"))
        why = native.choose("0", self.root)
        self.assertEqual(why, "TOWER_NATIVE=0")
        self.assertEqual(native.warnings_of(why), [])
        self.assertIsInstance(sys.meta_path[0], native.PythonFinder)

    def test_on(self) -> None:
        """Compiled modules that can be loaded are used; all others come from Python."""
        self.patch(native, "load", lambda root: None)
        for wanted in ("", "1"):
            self.assertEqual(native.choose(wanted, self.root), "")
            self.assertIsNone(sys.meta_path[0].find_spec(native.MODULES[0], self.folders(native.MODULES[0])))
            self.assertIsNotNone(sys.meta_path[0].find_spec(OTHER_MODULE, self.folders(OTHER_MODULE)))
        self.assertEqual(native.warnings_of(""), [])

    def test_wrong(self) -> None:
        """Any other value ends the program with an error that names the valid ones."""
        for wanted in ("yes", "true", "2", " 1"):
            error = self.assertRaises(SystemExit, native.choose, wanted, self.root)
            self.assertEqual(error.code, f"TOWER_NATIVE={wanted}: must be 0, 1 or empty")

    def test_missing_part(self) -> None:
        """If one extension is missing, none is used."""
        self.compile()
        path = self.extension(native.MODULES[7])
        path.unlink()
        self.fails(f"{path} is missing")

    def test_missing_library(self) -> None:
        """If the library is missing, no extension is used."""
        path = self.compile()
        path.unlink()
        self.fails(f"{path} is missing")

    def test_other_sources(self) -> None:
        """If a module has changed since the compilation, no extension is used."""
        self.compile()
        native.source_of(self.root, native.MODULES[-1]).write_text("NAME = 'new'\n")
        self.fails(f"{self.extension(native.MODULES[0])} was compiled from other sources")

    def test_other_part(self) -> None:
        """If one extension is from another compilation, none is used."""
        self.compile()
        path = self.extension(native.MODULES[3])
        path.write_bytes(elf(b"tower_0123456789abcdef__mypyc"))
        self.fails(f"{path} was compiled from other sources")

    def test_garbage(self) -> None:
        """A library that is not one is named, and not used."""
        path = self.compile()
        path.write_bytes(b"garbage" * 100)
        self.fails(f"{path} cannot be loaded (")
        self.assertNotIn(native.library_of(self.root), sys.modules)

    def test_other_machine(self) -> None:
        """If one extension is for another machine, none is imported, and the library is not loaded."""
        self.compile()
        path = self.extension(native.MODULES[-1])
        data = bytearray(path.read_bytes())
        data[MACHINE : MACHINE + 2] = OTHER
        path.write_bytes(data)
        self.patch(native, "_load_library", lambda name, path: self.fail("loaded"))
        self.fails(f"{path} cannot be loaded (")

    def test_unreadable(self) -> None:
        """A directory with the name of an extension, or of the library, is named."""
        library = self.compile()
        path = self.extension(native.MODULES[5])
        path.unlink()
        path.mkdir()
        self.fails(f"{path} cannot be read (Is a directory)")
        path.rmdir()
        path.write_bytes(self.extension(native.MODULES[0]).read_bytes())
        library.unlink()
        library.mkdir()
        self.fails(f"{library} cannot be read (Is a directory)")

    def test_truncated(self) -> None:
        """A truncated library or extension is never given to the loader, which would crash."""
        path = self.compile()
        for data in (b"", elf(table=4096), elf()[:40]):
            path.write_bytes(data)
            self.fails(f"{path} is truncated")
        path = self.extension(native.MODULES[0])
        path.write_bytes(elf(native.library_of(self.root).encode(), table=4096))
        self.fails(f"{path} is truncated")

    def test_recorded(self) -> None:
        """The files of an installed wheel are loaded if all have the digests of the wheel."""
        library = self.compile()
        self.record()
        loaded: list[tuple[str, Path]] = []
        self.patch(native, "_load_library", lambda *words: loaded.append(words))
        self.assertEqual(native.choose("1", self.root), "")
        self.assertEqual(loaded, [(native.library_of(self.root), library)])

    def test_damaged(self) -> None:
        """A damaged file of an installed wheel, with the size that it had, is never given to the loader."""
        library = self.compile()
        self.record()
        self.patch(ctypes, "CDLL", lambda path: self.fail("loaded"))
        for path in (library, self.extension(native.MODULES[0]), self.extension(native.MODULES[-1])):
            whole = path.read_bytes()
            path.write_bytes(whole[:64] + bytes(len(whole) - 64))
            self.fails(f"{path} is damaged (its digest is not in RECORD)")
            path.write_bytes(whole)

    def test_damaged_record(self) -> None:
        """If the list of an installed wheel's files is damaged, no extension is used."""
        self.compile()
        record = self.record()
        record.write_bytes(bytes(record.stat().st_size))
        self.fails(f"{self.extension(native.MODULES[0])} is damaged (its digest is not in RECORD)")
        record.write_bytes(b"")
        self.fails(f"{record} is truncated")

    def test_foreign(self) -> None:
        """Extensions for another Python are named, and not used."""
        path = native.source_of(self.root, native.MODULES[0])
        path = path.with_suffix(".cpython-27-x86_64-linux-gnu.so")
        path.write_bytes(elf())
        self.fails(f"{path} was compiled for another Python")


class FinderTests(NativeTestCase):
    """`PythonFinder`."""

    def test_modules(self) -> None:
        """It finds all modules of Tower as Python, even if extensions are next to them."""
        self.compile()
        finder = native.PythonFinder()
        for module in (*native.MODULES, OTHER_MODULE):
            spec = finder.find_spec(module, self.folders(module))
            assert spec is not None
            self.assertEqual(spec.origin, str(native.source_of(self.root, module)))

    def test_package(self) -> None:
        """It finds a package, which has the same name as an extension, with the folder of its modules."""
        self.extension("tower.net").write_bytes(LOADABLE.read_bytes())
        package = self.root / "tower" / "net"
        (package / "__init__.py").touch()
        spec = native.PythonFinder().find_spec("tower.net", self.folders("tower.net"))
        assert spec is not None
        self.assertEqual(spec.origin, str(package / "__init__.py"))
        self.assertEqual(spec.submodule_search_locations, [str(package)])

    def test_others(self) -> None:
        """It leaves compiled modules, Tower itself, and modules of other packages to Python's own finder."""
        module = native.MODULES[0]
        other = self.root / "tower" / "budget.py"
        other.touch()
        finder = native.PythonFinder((module,))
        self.assertIsNone(finder.find_spec(module, self.folders(module)))
        self.assertIsNone(finder.find_spec("tower", None))
        for name in ("towers.budget", "tower.missing"):
            self.assertIsNone(finder.find_spec(name, [str(other.parent)]))

    def test_import(self) -> None:
        """In a program with a library that cannot be loaded, all modules come from Python."""
        tower = self.root / "tower"
        for name in ("__init__.py", "native.py"):
            (tower / name).write_bytes((ROOT / "tower" / name).read_bytes())
        self.compile().write_bytes(b"garbage" * 100)
        names = [*native.MODULES[:2], OTHER_MODULE]
        for wanted, reason in (("0", "TOWER_NATIVE=0"), ("", "cannot be loaded")):
            environment = {"PYTHONPATH": str(self.root), "TOWER_NATIVE": wanted}
            argv = [sys.executable, "-c", PROBE, *names]
            files, why = json.loads(subprocess.check_output(argv, env=environment))
            self.assertEqual(files, [str(native.source_of(self.root, name)) for name in names])
            self.assertIn(reason, why)
