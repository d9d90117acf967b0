"""What stands behind the agent: a cluster of yours, a real API server, or Tower's own API."""

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

DEVELOPERS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "developers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
}


@dataclass
class Behind:
    """What the agent is told, and what to show.

    :ivar text: what it is, for people.
    :ivar kubeconfig: the agent's.
    :ivar options: more for the agent.
    :ivar hints: lines to paste before the last.
    :ivar show: kubectl's arguments in the last line.
    """

    text: str
    kubeconfig: Path
    options: tuple[str, ...]
    hints: tuple[str, ...]
    show: str


def choose(folder: Path, kubectl: str, programs: Programs, state: Path) -> Behind:
    """Return the cluster that the environment names, or Tower's own API.

    :param state: the proxy's state directory; the proxy runs.
    """
    if given := os.environ.get("DEMO_KUBECONFIG"):
        return yours(Path(given).absolute(), kubectl)
    if os.environ.get("KUBEBUILDER_ASSETS"):
        return api_server(folder, kubectl, programs)
    return tower_itself(state)


def yours(kubeconfig: Path, kubectl: str) -> Behind:
    """Use the cluster of a kubeconfig; nothing is created in it."""
    if not kubeconfig.is_file():
        raise DemoError(f"DEMO_KUBECONFIG={kubeconfig}: there is no such file")
    binding = "create clusterrolebinding tower-demo --clusterrole=view --user=jane"
    return Behind(
        f"the cluster of {kubeconfig}",
        kubeconfig,
        (),
        (f"{kubectl} --kubeconfig {kubeconfig} {binding}   # if jane may see things there",),
        "auth can-i --list",
    )


def api_server(folder: Path, kubectl: str, programs: Programs) -> Behind:
    """Start a real API server of the binaries in KUBEBUILDER_ASSETS."""
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    missing = [name for name in ASSETS if not os.access(assets / name, os.X_OK)]
    if missing:
        raise DemoError(f"KUBEBUILDER_ASSETS={assets} has no {' and no '.join(missing)}")
    place = folder / "cluster"
    programs.start("cluster", [sys.executable, str(REALCLUSTER), "up", "--bare", "--dir", str(place)])
    programs.wait("the API server", (place / "info.json").exists)
    admin = [kubectl, f"--kubeconfig={place / 'admin.kubeconfig'}"]
    output_of([*admin, "apply", "-f", str(RIGHTS)])
    output_of([*admin, "apply", "-f", "-"], json.dumps(DEVELOPERS))
    token = output_of([*admin, "-n", "tower-system", "create", "token", "tower-agent", "--duration=24h"])
    config = json.loads((place / "admin.kubeconfig").read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    agent = folder / "agent.kubeconfig"
    agent.touch(0o600)
    agent.write_text(json.dumps(config))
    return Behind("a real API server", agent, (), (), "get namespaces")


def tower_itself(state: Path) -> Behind:
    """Let Tower's own API stand in: the agent works it as Tower's administrator."""
    (admin,) = state.glob("admin*.kubeconfig")
    return Behind("Tower's own API", admin, ("--no-impersonation",), (), "get clusters")
