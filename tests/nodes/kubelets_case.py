"""Base of the tests of kubelets: a cluster of two nodes that are reached by SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.api_client import FakeAPI
from tests.fakes.kubelets import CA
from tests.fakes.node_tunnels import FakeNodeDialer
from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.kube.client import APIClient
from tower.kube.kubeconfig import KubeAccess
from tower.kube.system_identities import NONE_ALLOWED
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.kubelets import Kubelets
from tower.nodes.record_files import RecordFile
from tower.nodes.tunnels.tunnels import NodeTunnels
from tower.reactor.interfaces import ISocketReactor


class FakeNodes(FakeNodeDialer):
    """All nodes; itself it dials by any of them."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__()
        self.nodes = list(nodes)
        self.tunnels: dict[str, FakeNodeDialer] = {}

    def at(self, node: Node) -> FakeNodeDialer | None:
        """Return the tunnel to one."""
        return self.tunnels.get(node.name)


class KubeletsCase(SynchronousTestCase):
    """A cluster of two nodes."""

    def setUp(self) -> None:
        """Create the kubelets."""
        self.clock, self.api = Clock(), FakeAPI()
        self.nodes = FakeNodes(
            Node("192.0.2.1", 22, "n1", frozenset({"10.0.0.1", "n1.example"})), Node("n2.example", 22, "n2")
        )
        self.access = KubeAccess("https://10.0.0.9:6443", ca_data=CA.pem, token="sesame")
        self.identities = NONE_ALLOWED
        self.kubelets = self.make()

    def make(self, **spec: Any) -> Kubelets:
        """Return kubelets with the credential as it is now."""
        apiserver = MemberAPIServer(
            self.clock,
            cast(ISocketReactor, None),
            lambda: self.access,
            identities=lambda: self.identities,
            why_not="use a flag",
        )
        apiserver.renew()
        self.apiserver = apiserver
        made = SSHSpec("core", "/key", **spec)
        authority = RecordFile(Path(made.kubelet_authority))
        tunnels, api = cast(NodeTunnels, self.nodes), cast(APIClient, self.api)
        return Kubelets(self.clock, "beta", made, tunnels, api, apiserver, authority)
