"""The compilation of `tower.native.MODULES`: the command of setuptools that runs it."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path

from native_requirements import ROOT, VARIABLE, check_compiler
from setuptools import Distribution
from setuptools.command.build_ext import build_ext


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
