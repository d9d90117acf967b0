"""Packaging: the list of packages, which includes the twistd plugin, and the compilation of the data path.

``TOWER_NATIVE=1 pip install .`` compiles `tower.native.MODULES`, which needs a C compiler and Python's
headers.  mypyc and what it reads the types of are installed for the build only, in the versions that
``requirements-dev.lock`` pins.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
NATIVE = os.environ.get("TOWER_NATIVE") == "1"


def pinned() -> list[str]:
    """Return the requirements of the build: all packages of the lock files."""
    lines = [line for name in ("requirements.lock", "requirements-dev.lock") for line in (ROOT / name).open()]
    return [line.strip() for line in lines if line.strip() and line[0] not in "#-"]


class NativeDistribution(Distribution):  # type: ignore[misc, unused-ignore]
    """A distribution with extension modules, which `BuildNative` lists."""

    def has_ext_modules(self) -> bool:
        """Return True, so that wheels are for one platform."""
        return True


class BuildNative(build_ext):  # type: ignore[misc, unused-ignore]
    """Compiles `tower.native.MODULES`."""

    def finalize_options(self) -> None:
        """List the modules."""
        from mypyc.build import mypycify

        native = runpy.run_path(str(ROOT / "tower" / "native.py"))  # importing tower would load the modules
        paths = [str(native["source_of"](Path(), module)) for module in native["MODULES"]]
        self.distribution.ext_modules = mypycify(
            paths, group_name=native["group_of"](ROOT), target_dir="build/native", debug_level="1"
        )
        super().finalize_options()


packages = [*find_packages(include=["tower*"]), "twisted.plugins"]
if NATIVE:
    setup(
        packages=packages,
        distclass=NativeDistribution,
        cmdclass={"build_ext": BuildNative},
        setup_requires=pinned(),
    )
else:
    setup(packages=packages)
