"""Requirements of the compilation of the data path: switch, pinned packages, C compiler, Python headers."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from pathlib import Path

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
