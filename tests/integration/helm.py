"""Helm, built from its Go module, and what it makes of the charts."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import build
from tests.integration.programs import run

ROOT = Path(__file__).resolve().parent.parent.parent
CHARTS = ROOT / "charts"
PACKAGE = "helm.sh/helm/v4/cmd/helm"
PATIENCE = 200.0  # s, for a run of helm


def helm() -> Path:
    """Return the program; the first call on a machine builds it."""
    return build("tests/integration/helmbuild", "-trimpath", "-ldflags=-s -w", package=PACKAGE)


def run_helm(*arguments: str, home: Path) -> subprocess.CompletedProcess[bytes]:
    """Run helm with its own files in *home*."""
    environment = {"HOME": str(home), "HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home)}
    return run([str(helm()), *arguments], environment=environment, timeout=PATIENCE)


def rendered(chart: str, values: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    """Run ``helm template`` for a release `main` in the namespace `system`."""
    with tempfile.TemporaryDirectory(prefix="tower-test-") as folder:
        home = Path(folder)
        (home / "values.yaml").write_text(json.dumps(values))
        words = ("template", "main", str(CHARTS / chart), "--namespace=system")
        return run_helm(*words, f"--values={home / 'values.yaml'}", home=home)
