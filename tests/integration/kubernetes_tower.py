"""A proxy of real processes that keeps its records in a host cluster."""

from __future__ import annotations

from pathlib import Path

from tests.integration.harness import Tower
from tests.integration.ports import free_port, free_ports
from tests.integration.programs import Program

CRDS = Path(__file__).parent.parent.parent / "deploy" / "crds"
NAMESPACE = "kubesphere-system"


class KubernetesTower(Tower):
    """Elects no leader.

    :param kubeconfig: of the host cluster.
    :param clusters: number of ports for clusters; those of removed clusters are in quarantine.
    :ivar metrics_port: port of its metrics.
    """

    def __init__(self, folder: Path, kubeconfig: Path, *options: str, clusters: int = 8) -> None:
        super().__init__(folder)
        self.cluster_ports = free_ports(clusters)
        self.health_port, self.metrics_port = free_port(), free_port()
        self._kubeconfig = kubeconfig
        self.proxy = self.hosted_program(*options)

    def hosted_program(self, *options: str) -> Program:
        """Return the proxy's program; nothing is started."""
        return self.proxy_program(
            f"--kubeconfig={self._kubeconfig}",
            "--leader-elect=false",
            f"--health-port={self.health_port}",
            f"--metrics-port={self.metrics_port}",
            *options,
        )
