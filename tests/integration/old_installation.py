"""An installation of KubeSphere Tower as in the field: objects in the host cluster, a proxy, an agent."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from tests.integration.backends import Backend
from tests.integration.member import Member
from tests.integration.old_peers import OldAgent, OldProxy
from tests.integration.person import Person
from tests.integration.ports import PARTNER, free_ports
from tests.integration.programs import LOOPBACK, PATIENCE, wait_for
from tests.integration.relay import Relay

OFFSET = PARTNER  # from a cluster's port to that of its KubeSphere
TOKENS = {"alpha": "0123456789abcdef" * 4, "beta": "fedcba9876543210" * 4}
SYSTEM = "kubesphere-system"
PROXY, AGENT = "tower", "cluster-agent"  # the Deployments of the old programs


def old_objects(ports: dict[str, int]) -> list[dict[str, Any]]:
    """Return the objects of KubeSphere Tower in a host cluster, and the Deployment in a member."""
    group = "cluster.kubesphere.io"
    labels = {"matchLabels": {"app": "any"}}
    pod = {"metadata": {"labels": {"app": "any"}}, "spec": {"containers": [{"name": "any", "image": "any"}]}}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"clusters.{group}"},
            "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [version]},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        *(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": SYSTEM},
                "spec": {"replicas": 1, "selector": labels, "template": pod},
            }
            for name in (PROXY, AGENT)
        ),
        *(
            {
                "apiVersion": f"{group}/v1alpha1",
                "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {
                    "joinFederation": True,
                    "connection": {
                        "type": "proxy",
                        "token": TOKENS[name],
                        "kubernetesAPIServerPort": port,
                        "kubesphereAPIServerPort": port + OFFSET,
                    },
                },
            }
            for name, port in ports.items()
        ),
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "host"},
            "spec": {"connection": {"type": "direct"}},
        },
    ]


class OldInstallation:
    """One API server that is host and member, an old proxy, an old agent of alpha, its KubeSphere.

    The Deployments of the old programs are only objects here; `settle` applies them.  The addresses of users
    and agents point to the old proxy until they are moved.

    :param folder: for the output and the files of its programs.
    :ivar ports: for clusters; alpha's is `port`.
    :ivar address: where agents expect the proxy.
    :ivar kubesphere: ``host:port`` of alpha's KubeSphere, once it runs.
    :ivar agent: alpha's, once it runs.
    """

    kubesphere: str
    agent: OldAgent

    def __init__(self, folder: Path, member: Member) -> None:
        self._member = member
        self.ports = free_ports(4)
        self.port = self.ports[2]
        self._folder = folder
        self._backend = Backend(folder, "alpha")
        self.proxy = OldProxy(
            folder,
            "alpha",
            TOKENS["alpha"],
            kubernetes_port=self.port,
            kubesphere_port=self.port + OFFSET,
        )
        self._agents, self._users = Relay(self.proxy.port), Relay(self.port)
        self.address = f"{LOOPBACK}:{self._agents.port}"
        self._objects = old_objects({"alpha": self.port, "beta": self.port})

    def start(self) -> None:
        """Create the objects, with beta on alpha's port, as happens (hole 7); start the programs."""
        crd, *others = self._objects
        kubectl = self._member.kubectl
        kubectl("apply", "-f", "-", stdin=json.dumps(crd).encode())
        kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}")
        listed = {"apiVersion": "v1", "kind": "List", "items": others}
        wait_for("the objects", lambda: self._applied(json.dumps(listed).encode()))
        self._backend.start()
        self.kubesphere = f"{LOOPBACK}:{self._backend.ports['alpha']['http']}"
        self.agent = OldAgent(
            self._folder,
            f"http://{self.address}",
            "alpha",
            TOKENS["alpha"],
            self._member.service,
            ca=self._member.ca,
            bearer=self._member.cluster_admin.token_file,
            kubesphere_service=self.kubesphere,
        )
        self.settle()
        self.agent.wait_until_ready()

    def stop(self) -> None:
        """End the programs and remove the objects."""
        if hasattr(self, "agent"):
            self.agent.program.stop()
        for program in (self.proxy.program, self._backend.program):
            program.stop()
        for relay in (self._agents, self._users):
            relay.close()
        crd, *_ = self._objects
        name = crd["metadata"]["name"]
        self._member.kubectl("get", name)  # a kind that was never read may stay for minutes
        self._member.kubectl("delete", "crd", name)
        self._member.remove_namespace(SYSTEM)

    def settle(self) -> None:
        """Start and stop the programs as their Deployments require."""
        for name, program, start in (
            (PROXY, self.proxy.program, self.proxy.start),
            (AGENT, self.agent.program, self.agent.program.start),
        ):
            asked = ("-n", SYSTEM, "get", "deployment", name, "-o", "jsonpath={.spec.replicas}")
            replicas = self._member.kubectl(*asked)
            if replicas == "1" and not program.running():
                start()
            elif replicas == "0":
                program.stop()

    def move(self, host: str, port: int, *, cut: bool = True) -> None:
        """Point the addresses to another proxy, which serves agents on *port*.

        :param cut: whether connections end, as at a load balancer; DNS leaves them.
        """
        for relay, target in ((self._agents, port), (self._users, self.port)):
            relay.host, relay.target = host, target
            if cut:
                relay.cut()

    def move_back_by_dns(self) -> None:
        """Point them to the old proxy."""
        self.move(LOOPBACK, self.proxy.port, cut=False)

    def user(self) -> Person:
        """Return a user with an old kubeconfig for alpha."""
        return Person(self.proxy.kubeconfig(self._users.port))

    def ask_kubesphere(self, host: str = LOOPBACK) -> int:
        """Return the status of a request to alpha's KubeSphere port; 0: it does not listen."""
        connection = http.client.HTTPConnection(host, self.port + OFFSET, timeout=PATIENCE)
        try:
            connection.request("GET", "/report")
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def _applied(self, manifest: bytes) -> bool:
        """Apply objects; a new kind may take a moment to be known."""
        try:
            self._member.kubectl("apply", "-f", "-", stdin=manifest)
        except AssertionError:
            return False
        return True
