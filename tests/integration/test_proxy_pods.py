"""Two replicas of the proxy in pods of their host cluster, with the documented rights, and agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.host import ROOT, host, missing_rights
from tests.integration.member import kubectls
from tests.integration.programs import run, wait_for

SPACE, AGENTS = "kubesphere-system", "tower-system"
CRDS = ROOT / "deploy" / "crds"
LABELS = {"app.kubernetes.io/name": "tower"}
LEADER = "tower.kubesphere.io/leader=true"
RBAC = "rbac.authorization.k8s.io"
WRITE = ["get", "list", "watch", "create", "patch", "update", "delete"]


def rule(group: str, verbs: list[str], *resources: str, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return one rule of a role."""
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs, **named}


def role(name: str, namespace: str | None, *rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a role, of the whole cluster without a namespace, and its binding to the proxy's account."""
    prefix = "" if namespace else "Cluster"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    made = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    return [
        {**made, "kind": f"{prefix}Role", "rules": list(rules)},
        {
            **made,
            "kind": f"{prefix}RoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "tower", "namespace": SPACE}],
        },
    ]


# docs/host-cluster.md lists them.
RIGHTS = [
    *role(
        "tower",
        None,
        rule("cluster.kubesphere.io", WRITE, "clusters"),
        rule("cluster.kubesphere.io", ["patch"], "clusters/status"),
    ),
    *role(
        "tower",
        SPACE,
        rule("tower.kubesphere.io", WRITE, "*"),
        rule("coordination.k8s.io", ["get", "list", "watch", "update"], "leases", names=("tower",)),
        rule("coordination.k8s.io", ["create"], "leases"),
        rule("", WRITE, "secrets", "services"),
        rule("", ["get", "list", "patch"], "pods"),
        rule("discovery.k8s.io", WRITE, "endpointslices"),
    ),
    *role("tower-events", "default", rule("", ["create", "patch"], "events")),
]


def of(kind: str, version: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return an object in the proxy's namespace."""
    metadata = {"name": name, "namespace": SPACE, "labels": LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def variable(name: str, path: str) -> dict[str, Any]:
    """Return a variable of the downward API."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def deployment() -> dict[str, Any]:
    """Return two replicas with an empty state directory each."""
    container = {
        "name": "proxy",
        "image": "kubesphere/tower",
        "command": ["tower-proxy"],
        "args": [
            "--store=kubernetes",
            f"--namespace={SPACE}",
            "--state-dir=/state/tower",
            "--host=0.0.0.0",
            "--port=none",
            "--secure-port=8443",
            "--health-port=8081",
            "--cluster-ports=none",
            f"--publish-service-address=tower.{SPACE}.svc",
        ],
        "env": [variable("POD_NAME", "metadata.name"), variable("POD_NAMESPACE", "metadata.namespace")],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
        "securityContext": {"readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": "tower",
        "containers": [container],
        "volumes": [{"name": "state", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
    return of("Deployment", "apps/v1", "tower", spec=spec)


class ProxyPodTests(SynchronousTestCase):
    """The whole of Tower in one cluster."""

    timeout = 900  # s; the programs are built once
    if missing_rights():
        skip = missing_rights()

    def setUp(self) -> None:
        """Start the cluster and the replicas."""
        self.host = host(CRDS)
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.addCleanup(self.host.kubectl, "delete", "namespace", SPACE, AGENTS, "--ignore-not-found")
        self.addCleanup(self.host.kubectl, "delete", "clusters", "--all", "--timeout=20s")
        selector, name, label = LABELS, *LEADER.split("=")
        ports = [{"port": 8443}]
        self.host.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
            of("ServiceAccount", "v1", "tower"),
            *RIGHTS,
            of("Service", "v1", "tower", spec={"selector": {**selector, name: label}, "ports": ports}),
            deployment(),
        )
        self.rolled_out()

    def rolled_out(self) -> None:
        """Wait until all replicas are ready."""
        self.host.kubectl("rollout", "status", "deployment/tower", "-n", SPACE, "--timeout=60s")

    def leader(self) -> str:
        """Return the name of the leader's pod."""
        (pod,) = wait_for("one leader", lambda: self.host.objects("pods", SPACE, LEADER), every=0.3)
        name: str = pod["metadata"]["name"]
        return name

    def tower(self, *arguments: str) -> str:
        """Run the command ``tower`` in the leader's pod."""
        command = ("tower", "--state-dir=/state/tower", *arguments)
        return self.host.kubectl("exec", self.leader(), "-n", SPACE, "--", *command)

    def test_replicas(self) -> None:
        """The Service selects the leader; another pod takes over users and agents; an update goes through."""
        leader = self.leader()
        self.assertEqual(len(self.host.endpoints("tower", SPACE)), 1)
        self.tower("cluster", "add", "alpha")
        manifest = self.tower("join", "alpha", "--format", "manifest")
        self.host.apply(*(item for item in yaml.safe_load_all(manifest) if item is not None))
        self.host.kubectl("rollout", "status", "deployment/tower-agent", "-n", AGENTS, "--timeout=60s")
        kubeconfig = self.folder / "jane.kubeconfig"
        kubeconfig.write_text(self.tower("kubeconfig", "alpha", "--user", "jane", "--group", "dev"))
        user = [str(kubectls()[-1]), f"--kubeconfig={self.host.through(kubeconfig)}"]

        def served() -> bool:
            return run([*user, "get", "namespaces"]).returncode == 0

        wait_for("an answer through Tower", served, every=0.3)
        self.host.kubectl("delete", "pod", leader, "-n", SPACE)
        wait_for("an answer through another pod", served, every=0.3)
        self.assertNotEqual(self.leader(), leader)
        self.rolled_out()
        old = self.leader()
        self.host.kubectl("rollout", "restart", "deployment/tower", "-n", SPACE)
        self.rolled_out()
        wait_for("an answer after the update", lambda: self.leader() != old and served(), every=0.3)
        self.assertIn("alpha", self.host.kubectl("get", "clusters", "-o", "name"))
