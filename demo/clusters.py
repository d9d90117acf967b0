"""The demo's cluster: an existing cluster, a local API server, or Tower's own API."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from .programs import DemoError, Programs, output_of

ROOT = Path(__file__).resolve().parent.parent
REALCLUSTER = ROOT / "tests" / "integration" / "realcluster" / "realcluster"
RIGHTS = ROOT / "deploy" / "agent-rbac.yaml"
ASSETS = ("etcd", "kube-apiserver")


def binding(role: str) -> dict[str, object]:
    """Return the binding that gives jane's group a role in the demo's cluster."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "developers"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "dev"}],
    }


@dataclass
class Behind:
    """A cluster for the demo, and the commands that show it.

    :ivar text: description for the user.
    :ivar kubeconfig: kubeconfig of the agent.
    :ivar hints: commands to paste before the last one.
    :ivar show: kubectl arguments of the last command.
    """

    text: str
    kubeconfig: Path
    hints: tuple[str, ...]
    show: str


def choose(folder: Path, kubectl: str, programs: Programs, state: Path) -> Behind:
    """Return the cluster that the environment names, or Tower's own API.

    :param state: state directory of the running proxy.
    """
    if given := os.environ.get("DEMO_KUBECONFIG"):
        return yours(Path(given).absolute(), kubectl)
    if os.environ.get("KUBEBUILDER_ASSETS"):
        return api_server(folder, kubectl, programs)
    return tower_itself(state, kubectl)


def yours(kubeconfig: Path, kubectl: str) -> Behind:
    """Use the cluster of a kubeconfig; create nothing in it."""
    if not kubeconfig.is_file():
        raise DemoError(f"DEMO_KUBECONFIG={kubeconfig}: no such file")
    grant = "create clusterrolebinding tower-demo --clusterrole=view --user=jane"
    return Behind(
        f"the cluster of {kubeconfig}",
        kubeconfig,
        (f"{kubectl} --kubeconfig {kubeconfig} {grant}   # grants jane read access",),
        "auth can-i --list",
    )


def api_server(folder: Path, kubectl: str, programs: Programs) -> Behind:
    """Start an API server from the binaries in KUBEBUILDER_ASSETS."""
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    missing = [name for name in ASSETS if not os.access(assets / name, os.X_OK)]
    if missing:
        raise DemoError(f"KUBEBUILDER_ASSETS={assets}: not found: {', '.join(missing)}")
    place = folder / "cluster"
    programs.start("cluster", [sys.executable, str(REALCLUSTER), "up", "--bare", "--dir", str(place)])
    programs.wait("the API server", (place / "info.json").exists)
    admin = [kubectl, f"--kubeconfig={place / 'admin.kubeconfig'}"]
    output_of([*admin, "apply", "-f", str(RIGHTS)])
    output_of([*admin, "apply", "-f", "-"], json.dumps(binding("cluster-admin")))
    token = output_of([*admin, "-n", "tower-system", "create", "token", "tower-agent", "--duration=24h"])
    config = json.loads((place / "admin.kubeconfig").read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    agent = folder / "agent.kubeconfig"
    agent.touch(0o600)
    agent.write_text(json.dumps(config))
    return Behind("a local API server", agent, (), "get namespaces")


def tower_itself(state: Path, kubectl: str) -> Behind:
    """Use Tower's own API as the cluster; the agent has the administrator's credential, jane may read."""
    (admin,) = state.glob("admin*.kubeconfig")
    output_of([kubectl, f"--kubeconfig={admin}", "apply", "-f", "-"], json.dumps(binding("tower:viewer")))
    return Behind("Tower's own API", admin, (), "get clusters")
