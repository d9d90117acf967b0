"""Tower: one secure front door to all your Kubernetes clusters, wherever they run."""

import os
from pathlib import Path

from tower import native

__version__ = "1.0.0.dev0"

#: Why the compiled modules are not used; empty if they are.
WHY_PURE = native.choose(os.environ.get(native.VARIABLE, ""), Path(__file__).parents[1])

#: Which version of the modules of the data path is used: ``native`` (compiled) or ``pure`` (Python).
BUILD = "pure" if WHY_PURE else "native"

#: Warnings for the logs of programs.
WARNINGS = native.warnings_of(WHY_PURE)

#: Version and build, for ``--version``.
VERSION = f"{__version__} ({BUILD})"
