"""Wheels: one in Python, and a compiled one that is installed, used, and damaged."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import site
import sys
import sysconfig
import tempfile
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from twisted.trial.unittest import SynchronousTestCase

import tower
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, is_ready, run, wait_for
from tower import native

ROOT = Path(__file__).resolve().parent.parent.parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
LIBRARY = f"{native.library_of(ROOT)}{SUFFIX}"
BUILD_PATIENCE = 900.0  # s
PAGE = 4096  # B
#: Files of the checkout that the build reads, in addition to the locks.
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def use(*argv: str | Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    clean = {"PYTHONPATH": "", **environment}
    done = run([str(each) for each in argv], timeout=BUILD_PATIENCE, environment=clean)
    output = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode:
        raise AssertionError(f"{argv}: {output}")
    return output


def zeroed(whole: bytes, start: int, end: int) -> bytes:
    """Return a file of the same size whose blocks from *start* to *end* are zero, as after a power cut."""
    return whole[:start] + bytes(end - start) + whole[end:]


@cache
def dist() -> Path:
    """Build the wheels for this Python, from a copy with leftovers of another build; return their folder."""
    path = Path(tempfile.mkdtemp(prefix="tower-wheels-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(path, ignore_errors=True) if os.getpid() == owner else None)
    copy = path / "source"
    for name in ("deploy", "tools", "tower", "twisted"):
        ignored = shutil.ignore_patterns("__pycache__", "dropin.cache", "*.so")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for source in (*ROOT.glob("requirements*.lock"), *(ROOT / name for name in FILES)):
        shutil.copy(source, copy)
    for name in (f"tower/net/leftover{SUFFIX}", f"tower/net/budget{SUFFIX}", LIBRARY):
        (copy / name).write_bytes(b"leftover")
    variables = {"DIST": str(path), "SOURCE_DATE_EPOCH": "315532800"}
    use(copy / "tools/make-wheels", sys.executable, sys.executable, **variables)
    shutil.rmtree(copy)
    return path


def built(pattern: str) -> zipfile.ZipFile:
    """Open the only wheel whose name matches."""
    (path,) = dist().glob(f"kubesphere_tower-{tower.__version__}-{pattern}.whl")
    return zipfile.ZipFile(path)


class WheelTests(SynchronousTestCase):
    """The files that ``make wheels`` makes."""

    timeout = 1200  # s; a build takes a minute and a half of processor time

    def test_pure(self) -> None:
        """The wheel for all Pythons has no compiled modules."""
        names = built("py3-none-any").namelist()
        self.assertIn("tower/native.py", names)
        self.assertEqual([name for name in names if name.endswith(".so")], [])

    def test_native(self) -> None:
        """The wheel for this Python has all modules, compiled and in Python, and nothing else is compiled."""
        major, minor = sys.version_info[:2]
        wheel = built(f"cp{major}{minor}-cp{major}{minor}-manylinux*")
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        modules = [module.replace(".", "/") for module in native.MODULES]
        self.assertLessEqual({f"{module}.py" for module in modules}, set(names))
        compiled = {name for name in names if name.endswith(".so")}
        self.assertEqual(compiled, {LIBRARY, *(f"{module}{SUFFIX}" for module in modules)})
        pure = {name for name in built("py3-none-any").namelist() if ".dist-info/" not in name}
        self.assertEqual({name for name in names if ".dist-info/" not in name} - compiled, pure)

    def test_symbols(self) -> None:
        """Compiled modules have no debugging symbols; those of the library are next to the wheel."""
        wheel = built("cp*")
        for name in wheel.namelist():
            if name.endswith(".so"):
                sections = {section.name for section in ELFFile(BytesIO(wheel.read(name))).iter_sections()}
                self.assertFalse(sections & {".symtab", ".debug_info", ".debug_line"}, name)
        (symbols,) = dist().glob("*.debug")
        self.assertEqual(symbols.name, f"{LIBRARY}.debug")
        with symbols.open("rb") as file:
            self.assertIsNotNone(ELFFile(file).get_section_by_name(".debug_info"))

    def test_sources(self) -> None:
        """There is one sdist, from which the wheels were built."""
        self.assertEqual(
            [path.name for path in dist().glob("*.tar.gz")], [f"kubesphere_tower-{tower.__version__}.tar.gz"]
        )


class InstalledTests(SynchronousTestCase):
    """The compiled wheel in a new environment, with the libraries of this one."""

    timeout = 1200  # s

    def setUp(self) -> None:
        """Install the wheel without the network."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.commands = self.folder / "venv" / "bin"
        use(sys.executable, "-m", "venv", self.folder / "venv")
        (wheel,) = dist().glob("*-cp*.whl")
        use(self.commands / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
        code = "import site; print(site.getsitepackages()[0])"
        self.packages = Path(use(self.commands / "python", "-c", code).strip())
        (self.packages / "libraries.pth").write_text("\n".join(site.getsitepackages()))

    def version(self, wanted: str) -> tuple[int, str]:
        """Return the exit code and the output of ``tower --version`` with `TOWER_NATIVE`."""
        return self.result(wanted, self.commands / "tower", "--version")

    def result(self, wanted: str, *argv: str | Path) -> tuple[int, str]:
        """Return the exit code and the output of a command with `TOWER_NATIVE`, without the last newline."""
        environment = {"TOWER_NATIVE": wanted, "PYTHONPATH": ""}
        done = run([str(each) for each in argv], environment=environment, folder=self.folder)
        return done.returncode, (done.stdout + done.stderr).decode().removesuffix("\n")

    def proxy(self) -> str:
        """Start a proxy, wait until it serves, and stop it; return its log."""
        port = free_port()
        argv = [
            str(self.commands / "tower-proxy"),
            f"--state-dir={self.folder / 'state'}",
            f"--host={LOOPBACK}",
        ]
        argv += [f"--port={port}", f"--secure-port={free_port()}", "--cluster-ports=none"]
        program = Program("proxy", argv, self.folder, {"TOWER_NATIVE": "", "PYTHONPATH": ""})
        self.addCleanup(program.stop)
        program.start()
        wait_for("the proxy", lambda: is_ready(port, "/health") or not program.running())
        self.assertTrue(program.stop(), program.tail())
        return program.output()

    def test_choice(self) -> None:
        """TOWER_NATIVE selects the modules; by default, the compiled ones are used, and no others."""
        (self.packages / f"tower/errors{SUFFIX}").write_bytes(b"leftover")
        for wanted, build in (("", "native"), ("1", "native"), ("0", "pure")):
            self.assertEqual(self.version(wanted), (0, f"tower {tower.__version__} ({build})"))
        wrong = (1, "TOWER_NATIVE=yes: must be 0, 1 or empty")
        self.assertEqual(self.version("yes"), wrong)
        twistd = (self.commands / "python", "-c", "from twisted.scripts.twistd import run; run()")
        self.assertEqual(self.result("yes", *twistd, "-n", "tower-proxy", "--help"), wrong)
        self.assertNotIn("without compiled modules", self.proxy())

    def test_damage(self) -> None:
        """With one damaged file, Tower runs without compiled modules and logs why; TOWER_NATIVE=1 fails."""
        module = f"{native.MODULES[5].replace('.', '/')}{SUFFIX}"
        for name, damage, reason in (
            (module, None, "is missing"),
            (module, lambda whole: b"garbage" * 100, "is damaged ("),
            (module, lambda whole: whole[:1000], "is truncated"),
            (module, lambda whole: whole[:18] + b"\x01\0" + whole[20:], "is damaged ("),  # another machine
            (module, lambda whole: zeroed(whole, PAGE, 2 * PAGE), "is damaged ("),
            (module, lambda whole: zeroed(whole, PAGE, len(whole)), "is damaged ("),
            (LIBRARY, None, "is missing"),
            (LIBRARY, lambda whole: b"garbage" * 100, "is damaged ("),
            (LIBRARY, lambda whole: whole[:100_000], "is truncated"),
            (LIBRARY, lambda whole: zeroed(whole, PAGE, 2 * PAGE), "is damaged ("),
            (LIBRARY, lambda whole: zeroed(whole, PAGE, len(whole)), "is damaged ("),
        ):
            path = self.packages / name
            whole = path.read_bytes()
            path.unlink()
            if damage is not None:
                path.write_bytes(damage(whole))
            self.assertEqual(self.version(""), (0, f"tower {tower.__version__} (pure)"))
            code, output = self.version("1")
            self.assertEqual(code, 1)
            self.assertTrue(output.startswith(f"TOWER_NATIVE=1: {path} {reason}"), output)
            self.assertTrue(output.endswith("; install Tower again, or set TOWER_NATIVE=0"), output)
            self.assertNotIn("\n", output)
            if damage is None:
                self.assertIn(f"running without compiled modules: {path} {reason}", self.proxy())
            path.write_bytes(whole)
        self.assertEqual(self.version(""), (0, f"tower {tower.__version__} (native)"))

    def test_tracebacks(self) -> None:
        """An error has the same type, text, functions and lines in both; compiled, its paths are relative."""
        code = (
            "import json, traceback\n"
            "from tower.http.bodies import BadBody, ChunkedBody\n"
            "try:\n"
            "    ChunkedBody().feed(b'zz\\r\\n')\n"
            "except BadBody as e:\n"
            "    frames = traceback.extract_tb(e.__traceback__)[1:]\n"
            "    lines = [[each.filename, each.lineno, each.name] for each in frames]\n"
            "    print(json.dumps([type(e).__name__, str(e), lines]))\n"
        )
        found = [
            json.loads(use(self.commands / "python", "-c", code, TOWER_NATIVE=each)) for each in ("1", "0")
        ]
        self.assertGreater(len(found[0][2]), 1)
        for frame in found[0][2]:
            frame[0] = str(self.packages / frame[0])
        self.assertEqual(*found)

    def test_new_sources(self) -> None:
        """If a module in Python is edited, the compiled modules are not used."""
        with (self.packages / f"{native.MODULES[0].replace('.', '/')}.py").open("a") as file:
            file.write("\n")
        self.assertEqual(self.version(""), (0, f"tower {tower.__version__} (pure)"))
