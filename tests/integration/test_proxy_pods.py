"""Two replicas of the proxy in pods of their host cluster, from the manifests in ``deploy``, and agents."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.host import ROOT, host, missing_rights
from tests.integration.member import kubectls
from tests.integration.programs import run, wait_for

LEASE = 12.0  # s; shorter than the default, to save time
SLACK = 15.0  # s for a loaded machine
SPACE, AGENTS = "kubesphere-system", "tower-system"
CRDS = ROOT / "deploy" / "crds"
LEADER = "tower.kubesphere.io/leader=true"
RIGHTS, PROXY = (ROOT / "deploy" / f"host-{name}.yaml" for name in ("rbac", "proxy"))


def proxy() -> list[dict[str, Any]]:
    """Return the objects of the manifest; the published address is a Service's, the times are short."""
    text = PROXY.read_text().replace("=tower.example.org", f"=tower.{SPACE}.svc")
    objects = list(yaml.safe_load_all(text.replace("type: LoadBalancer", "type: ClusterIP")))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    times = {"lease-duration": LEASE, "renew-deadline": LEASE / 1.5, "retry-period": LEASE / 6}
    container["args"] += [f"--leader-elect-{name}={seconds:g}s" for name, seconds in times.items()]
    return objects


def processes(pod: str) -> list[int]:
    """Return the process ids of the proxy in a pod."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_of_pod = f"POD_NAME={pod}".encode() in (path / "environ").read_bytes().split(b"\0")
            if is_of_pod and b"tower-proxy" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


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
        self.host.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        self.host.apply(RIGHTS)
        self.host.apply(*proxy())
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
        return self.host.kubectl("exec", "svc/tower", "-n", SPACE, "--", "tower", *arguments)

    def test_replicas(self) -> None:
        """The Service selects the leader; another pod takes over users and agents; an update goes through."""
        leader = self.leader()
        self.assertEqual(len(self.host.endpoints("tower", SPACE)), 1)
        self.tower("cluster", "add", "alpha")
        # the cluster's Service selects the same pod, with the cluster's own port and KubeSphere's
        wait_for("endpoints of mc-alpha", lambda: len(self.host.endpoints("mc-alpha", SPACE)) == 2, every=0.3)
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
        self.killed(served)

    def killed(self, served: Callable[[], bool]) -> None:
        """After SIGKILL of the leader, the other pod serves users and agents when the Lease expires."""
        leader, began = self.leader(), time.monotonic()
        (killed,) = processes(leader)
        os.kill(killed, signal.SIGKILL)
        wait_for("another leader", lambda: self.leader() != leader, every=0.3)
        wait_for("an answer after SIGKILL", served, every=0.3)
        self.assertLess(time.monotonic() - began, LEASE + LEASE / 6 + SLACK)
        self.rolled_out()
