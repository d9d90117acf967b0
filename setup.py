"""Packaging: the list of packages, which includes the twistd plugin, and the compilation of the data path.

``TOWER_NATIVE=1 pip install .`` compiles `tower.native.MODULES`; see ``tools/wheels/native_build.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import find_packages, setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools" / "wheels"))

from native_build import BuildNative, NativeDistribution
from native_requirements import is_wanted

packages = [*find_packages(include=["tower*"]), "twisted.plugins"]
if is_wanted():
    setup(packages=packages, distclass=NativeDistribution, cmdclass={"build_ext": BuildNative})
else:
    setup(packages=packages)
