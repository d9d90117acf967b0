"""A proxy that keeps its records in a host cluster, for tests with real programs."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.harness import Tower
from tests.integration.ports import free_port, free_ports
from tests.integration.programs import Program

ROOT = Path(__file__).resolve().parent.parent.parent
CRDS = ROOT / "deploy" / "crds"
NAMESPACE = "kubesphere-system"


class KubernetesTower(Tower):
    """A proxy that keeps its records in a host cluster, and elects no leader.

    :param clusters: number of ports for clusters.
    :param is_hurried: whether it is `tests.integration.hurried_proxy`.
    :ivar metrics_port: port of its metrics.
    """

    def __init__(
        self, folder: Path, kubeconfig: Path, *extra: str, clusters: int = 4, is_hurried: bool = False
    ) -> None:
        super().__init__(folder)
        self.cluster_ports = free_ports(clusters)
        self.health_port = free_port()
        self.metrics_port = free_port()
        options = (
            *(f"--kubeconfig={kubeconfig}", "--leader-elect=false"),
            *(f"--health-port={self.health_port}", f"--metrics-port={self.metrics_port}"),
        )
        self.proxy = self.proxy_program(*options, *extra)
        if is_hurried:
            argv = [sys.executable, "-m", "tests.integration.hurried_proxy", *self.proxy.argv[1:]]
            self.proxy = Program(self.proxy.name, argv, folder, {"PYTHONPATH": str(ROOT)})
