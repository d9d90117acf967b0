"""A cluster of KubeSphere Tower in a host cluster, with its objects as the old proxy leaves them."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.integration.harness import Tower
from tests.integration.kubernetes_tower import NAMESPACE
from tests.integration.kubesphere import DAY, FINALIZER
from tests.integration.member import Member
from tests.integration.old_installation import PROXY, old_objects
from tests.integration.old_peers import OldAgent, OldProxy
from tests.integration.ports import PARTNER
from tests.integration.programs import LOOPBACK
from tower.kube.kubeconfig import kubeconfig
from tower.trust.pki import Issued, pem_of_key, self_signed

#: Headings of the page about migration with commands for a host cluster.
HOST_HEADINGS = (
    "Prepare the host cluster",
    "Replace the proxy in the host cluster",
    "KubeSphere's console",
    "Go back in the host cluster",
)


class AdoptedCluster:
    """The cluster alpha: its objects, an old proxy at the address of *tower*, and an old agent.

    :param tower: not running now; the cluster gets its last port.
    :param host: has the objects, and is the member, too.
    :ivar cluster: the Cluster object at first.
    :ivar created: its Service at first.
    :ivar token: of the agent.
    :ivar authority: file with the CA of the old proxy; `authority_key` has its key.
    """

    name = "alpha"
    token = "fedcba9876543210" * 4
    cluster: dict[str, Any]

    def __init__(self, folder: Path, tower: Tower, host: Member) -> None:
        self._host = host
        self._port = tower.cluster_ports[-1]
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubesphere")])
        self._ca = self_signed(name, DAY, time.time())
        self._create(self._wanted_service())
        self.created = self.service()
        address = self.created["spec"]["clusterIP"]
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", address, LOOPBACK]
        self._pair = self._ca.server_certificate(names, DAY, time.time())
        self.authority = self._written(folder / "old-ca.crt", self._ca.pem)
        self.authority_key = self._written(folder / "old-ca.key", pem_of_key(self._ca.key))
        certificate = self._written(folder / "old-front.crt", self._pair.certificate_pem)
        key = self._written(folder / "old-front.key", self._pair.key_pem)
        self.proxy = OldProxy(
            folder,
            self.name,
            self.token,
            port=tower.port,
            kubernetes_port=self._port,
            kubesphere_port=self._port + PARTNER,
            pair=(certificate, key),
        )
        self.agent = OldAgent(
            folder,
            self.proxy.url,
            self.name,
            self.token,
            host.service,
            ca=host.ca,
            bearer=host.cluster_admin.token_file,
        )

    def start(self) -> None:
        """Start the programs, and create the Cluster object."""
        self.proxy.start()
        self.agent.program.start()
        self.proxy.wait_for_agents()
        for each in old_objects({}):
            if each["kind"] == "Deployment":
                self._create(each)
        self._create(self._wanted_cluster())
        self.cluster = json.loads(self._host.kubectl("get", "cluster", self.name, "-o", "json"))

    def stop(self) -> None:
        """End the programs."""
        for each in (self.agent.program, self.proxy.program):
            each.stop()

    def replicas(self) -> str:
        """Return the number of old proxies that their Deployment requires."""
        words = ("-n", NAMESPACE, "get", "deployment", PROXY, "-o", "jsonpath={.spec.replicas}")
        return self._host.kubectl(*words)

    def service(self) -> dict[str, Any]:
        """Return its Service."""
        found = self._host.kubectl("-n", NAMESPACE, "get", "service", f"mc-{self.name}", "-o", "json")
        service: dict[str, Any] = json.loads(found)
        return service

    def _create(self, obj: dict[str, Any]) -> None:
        self._host.kubectl("create", "-f", "-", stdin=json.dumps(obj).encode())

    def _wanted_service(self) -> dict[str, Any]:
        service = f"mc-{self.name}"
        ports = (("kubernetes", 6443, self._port), ("kubesphere", 80, self._port + PARTNER))
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": service,
                "namespace": NAMESPACE,
                "labels": {"app": service, "app.kubernetes.io/name": service},
            },
            "spec": {
                "selector": {"app": "tower", "app.kubernetes.io/name": "tower"},
                "ports": [
                    {"name": name, "port": port, "protocol": "TCP", "targetPort": target}
                    for name, port, target in ports
                ],
            },
        }

    def _wanted_cluster(self) -> dict[str, Any]:
        address = self.created["spec"]["clusterIP"]
        caller: Issued = self._ca.client_certificate(
            "kubernetes-admin", ["system:masters"], self.name, "", DAY, time.time()
        )
        access = kubeconfig(
            server=f"https://{address}:6443",
            ca_pem=self._ca.pem,
            cluster=self.name,
            user="kubernetes-admin",
            certificate=(caller.certificate_pem, caller.key_pem),
        )
        system = json.loads(self._host.kubectl("get", "namespace", "kube-system", "-o", "json"))
        when = "2025-06-01T10:00:00Z"
        conditions = [
            ("Initialized", "Initialized", "Cluster has been initialized"),
            ("AgentAvailable", "", "Agent has connected to proxy successfully."),
            ("Ready", "Ready", "Cluster is available now"),
        ]
        return {
            "apiVersion": "cluster.kubesphere.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {
                "name": self.name,
                "labels": {"cluster-role.kubesphere.io/member": "", "kubesphere.io/managed": "true"},
                "annotations": {"kubesphere.io/creator": "admin", "kubesphere.io/description": "Berlin"},
                "finalizers": [FINALIZER],
            },
            "spec": {
                "enable": True,
                "joinFederation": True,
                "provider": "kubesphere",
                "connection": {
                    "type": "proxy",
                    "kubernetesAPIEndpoint": f"https://{address}:6443",
                    "kubesphereAPIEndpoint": f"http://{address}:80",
                    "kubernetesAPIServerPort": self._port,
                    "kubesphereAPIServerPort": self._port + PARTNER,
                    "token": self.token,
                    "kubeconfig": base64.b64encode(access.encode()).decode(),
                },
            },
            "status": {
                "uid": system["metadata"]["uid"],
                "kubernetesVersion": "v1.36.3",
                "kubeSphereVersion": "v4.1.3",
                "nodeCount": 1,
                "conditions": [
                    {
                        "type": kind,
                        "status": "True",
                        **({"reason": reason} if reason else {}),
                        "message": text,
                        "lastTransitionTime": when,
                        "lastUpdateTime": when,
                    }
                    for kind, reason, text in conditions
                ],
            },
        }

    @staticmethod
    def _written(path: Path, content: bytes) -> Path:
        path.touch(0o600)
        path.write_bytes(content)
        return path
