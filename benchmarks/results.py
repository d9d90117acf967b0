"""Result files: all samples and the environment they were measured in."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.rows import GROUPS, Row
from benchmarks.table import Done, claimed
from benchmarks.works import Numbers
from tower import BUILD


def machine() -> str:
    """Return a description of the machine and the versions."""
    words = [
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().partition('-')[0]},",
        f"Tower {BUILD}, Python {platform.python_version()}, Twisted {version('twisted')},",
        f"cryptography {version('cryptography')}; {time.strftime('%Y-%m-%d')}",
    ]
    return " ".join(words)


def write(path: Path, on: str, done: Done) -> None:
    """Write the claims with their measured ratios, and all samples."""
    ratios = [
        {"claim": claim.name, "must": claim.must, "aim": claim.aim, **vars(seen)}
        for row, claim in claimed(done)
        if (seen := claim.measured(done[row], row.ours)) is not None
    ]
    samples = {row.name: columns for row, columns in done.items()}
    content = {"machine": on, "ratios": ratios, "samples": samples}
    path.write_text(json.dumps(content, indent=1) + "\n")


def read(paths: Sequence[Path]) -> tuple[str, Done]:
    """Merge result files: rounds of a row are concatenated; the machine is the last file's."""
    rows = {row.name: row for group in GROUPS for row in group.rows}
    on = ""
    done: dict[Row, dict[str, list[Numbers]]] = {}
    for path in paths:
        content: dict[str, Any] = json.loads(path.read_text())
        on = content["machine"]
        for name, columns in content["samples"].items():
            for label, samples in columns.items():
                done.setdefault(rows[name], {}).setdefault(label, []).extend(samples)
    return on, done
