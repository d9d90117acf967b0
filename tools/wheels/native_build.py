"""The compilation of `tower.native.MODULES`: its requirements, and the command of setuptools that runs it."""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import sysconfig
from pathlib import Path

from setuptools import Distribution
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "TOWER_NATIVE"

_CURE = f"on Debian and Ubuntu, apt-get install gcc python3-dev; or install Tower without {VARIABLE}"


def is_wanted() -> bool:
    """Return whether `VARIABLE` selects compiled modules; end the program if its value is not valid."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise SystemExit(f"{VARIABLE}={value}: must be 0, 1 or empty")
    return value == "1"


def requirements() -> list[str]:
    """Return the pinned packages that the compilation needs; end the program if `check_compiler` fails."""
    check_compiler()
    lines = [
        line for name in ("requirements", "requirements-native") for line in (ROOT / f"{name}.lock").open()
    ]
    return [line.strip() for line in lines if line.strip() and line[0] not in "#-"]


def check_compiler() -> None:
    """End the program if there is no C compiler, or no headers of Python."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(command)[0]) is None:
        raise SystemExit(f"{VARIABLE}=1: the C compiler '{command}' is not installed: {_CURE}")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise SystemExit(f"{VARIABLE}=1: {header} is not installed: {_CURE}")


class NativeDistribution(Distribution):  # type: ignore[misc, unused-ignore]
    """A distribution with extension modules, which `BuildNative` lists."""

    def has_ext_modules(self) -> bool:
        """Return True, so that wheels are for one platform."""
        return True


class BuildNative(build_ext):  # type: ignore[misc, unused-ignore]
    """Compiles the modules, and removes extensions that were compiled from other sources."""

    def run(self) -> None:
        """Translate the modules to C, then compile that."""
        check_compiler()
        try:
            from mypyc.build import mypycify
        except ImportError as e:
            raise SystemExit(f"{VARIABLE}=1: {e}: pip install -r requirements-native.lock") from e
        native = runpy.run_path(str(ROOT / "tower" / "native.py"))  # importing tower would load the modules
        paths = [str(native["source_of"](Path(), module)) for module in native["MODULES"]]
        self.distribution.ext_modules = mypycify(
            paths, group_name=native["group_of"](ROOT), target_dir="build/native", debug_level="1"
        )
        self.swig_opts = None  # the only option that cannot be finalized twice
        self.finalize_options()  # again, because the modules are known only now
        self._remove_old()
        super().run()

    def _remove_old(self) -> None:
        """Remove extensions for this Python from other sources; otherwise a wheel would contain them."""
        root = ROOT if self.inplace else Path(self.build_lib)
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        new = {root / self.get_ext_filename(extension.name) for extension in self.extensions}
        for old in {*root.glob(f"tower_*__mypyc{suffix}"), *root.glob(f"tower/**/*{suffix}")} - new:
            old.unlink()
