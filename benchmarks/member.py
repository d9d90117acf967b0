"""A real kube-apiserver as the backend; see ``tests/integration/realcluster``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT, NotHere, Watched, run
from benchmarks.setting import Ground, System, Upstream, https_way

_REALCLUSTER = (sys.executable, str(ROOT / "tests" / "integration" / "realcluster" / "realcluster"))
_AGENT_RIGHTS = ROOT / "deploy" / "agent-rbac.yaml"

_CRDS = ROOT / "deploy" / "crds"

#: Time limit of the build, which compiles Kubernetes the first time, s.
_BUILD_PATIENCE = 1800.0

#: Time that the API server continues to initialize after it is ready, s.
_SETTLE = 2.0

#: Paths to request: the cheapest one, and an object that the API server reads from its store.
VERSION, OBJECT = "version", "api/v1/namespaces/default"


def _binding(name: str, subject: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [subject],
    }


_GROUP = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}
_ACCOUNT = {"kind": "ServiceAccount", "name": "v1-agent", "namespace": "tower-system"}
_OBJECTS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        _binding("developers", _GROUP),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "v1-agent", "namespace": "tower-system"},
        },
        _binding("v1-agent", _ACCOUNT),
    ],
}


class Member:
    """etcd and an API server with an RSA key, as kubeadm sets them up, and the agents' permissions.

    :ivar admin: the administrator's kubeconfig.
    :ivar own: as Tower's agent reaches it: with permission to impersonate only.
    :ivar mighty: as KubeSphere Tower agents reach it: with all permissions; every user acts as the agent.
    :raise NotHere: it cannot be built on this machine.
    """

    def __init__(self, ground: Ground) -> None:
        print(
            "building a real API server (once, several minutes) if there is none", file=sys.stderr, flush=True
        )
        built = run([*_REALCLUSTER, "build"], timeout=_BUILD_PATIENCE)
        if built.returncode:
            raise NotHere(f"building the API server failed: {built.stderr.strip()[-300:]}")
        self._folder = ground.folder / "cluster"
        self.admin = self._folder / "admin.kubeconfig"
        self._ground = ground
        info = self._folder / "info.json"
        program = ground.start("realcluster", *_REALCLUSTER, "up", "--bare", "--rsa", f"--dir={self._folder}")
        program.wait_until(info.exists, "the API server")
        told = json.loads(info.read_text())
        self._server = Watched(told["pids"]["kube-apiserver"])
        self.kubectl("apply", "-f", str(_AGENT_RIGHTS))
        self.kubectl("apply", "-f", str(ground.write("objects.json", json.dumps(_OBJECTS).encode())))
        port = told["ports"]["kube-apiserver"]
        self.own, self.mighty = (
            Upstream(port, self._folder / "ca.crt", self._token(account))
            for account in ("tower-agent", "v1-agent")
        )
        time.sleep(_SETTLE)

    def direct(self) -> System:
        """Return the API server without a proxy."""
        way = https_way(self.mighty.port, self.mighty.authority)
        bearer = self._ground.write("mighty.token", self.mighty.token.encode())
        way["https"].append(f"-bearer-file={bearer}")
        return self.behind(System("direct-kube", way))

    def behind(self, system: System) -> System:
        """Return *system* with the API server as a part whose CPU is measured."""
        system.parts["server"] = self._server
        return system

    def host(self) -> tuple[str, ...]:
        """Prepare it as the host cluster of a proxy; return the proxy's options."""
        self.kubectl("apply", "-f", str(_CRDS))
        self.kubectl("create", "namespace", "kubesphere-system")
        return f"--kubeconfig={self.admin}", "--leader-elect=false"

    def _token(self, account: str) -> str:
        return self.kubectl("-n", "tower-system", "create", "token", account, "--duration=24h").strip()

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as the administrator; return its output."""
        listed = run([*_REALCLUSTER, "kubectls"], timeout=120).stdout.splitlines()
        kubectl = Path(listed[-1].split(" ", 1)[1])
        done = run([str(kubectl), f"--kubeconfig={self.admin}", *arguments])
        if done.returncode:
            raise NotHere(f"kubectl {' '.join(arguments)}: {done.stderr.strip()[-300:]}")
        return done.stdout
