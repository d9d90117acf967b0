"""Two replicas of the proxy in pods of their host cluster, from the manifests in ``deploy``, and agents."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.host import ROOT, host, missing_rights
from tests.integration.member import kubectls
from tests.integration.own_time import OwnTime
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
        self.addCleanup(self.host.delete, "namespace", SPACE, AGENTS, "--ignore-not-found")
        self.addCleanup(self.host.delete, "clusters", "--all", "--timeout=60s")
        self.host.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        self.host.apply(RIGHTS)
        self.host.apply(*proxy())
        self.rolled_out()

    def rolled_out(self) -> None:
        """Wait until all replicas are ready."""
        self.host.roll_out("deployment/tower", SPACE)

    def leader(self) -> str:
        """Return the name of the leader's pod: a new leader has its label before the former one loses it."""
        return wait_for("one leader", self.labeled, every=0.3)

    def labeled(self) -> str:
        """Return the name of the only pod with the leader's label; empty: there is not one."""
        names = [pod["metadata"]["name"] for pod in self.host.objects("pods", SPACE, LEADER)]
        return names[0] if len(names) == 1 else ""

    def holder(self) -> str:
        """Return the identity of the leader, which is another one for each start of a program."""
        return str(self.host.get("lease", "tower", SPACE)["spec"].get("holderIdentity", ""))

    def tower(self, *arguments: str) -> str:
        """Run the command ``tower`` in the leader's pod."""
        return self.host.kubectl("exec", "svc/tower", "-n", SPACE, "--", "tower", *arguments)

    def test_replicas(self) -> None:
        """Services lead to the leader; another pod takes over users and agents; an update goes through."""
        leader = self.leader()
        wait_for("the endpoint of tower", lambda: len(self.host.endpoints("tower", SPACE)) == 1, every=0.3)
        self.tower("cluster", "add", "alpha")
        # the cluster's Service selects the same pod, with the cluster's own port and KubeSphere's
        wait_for("endpoints of mc-alpha", lambda: len(self.host.endpoints("mc-alpha", SPACE)) == 2, every=0.3)
        manifest = self.tower("join", "alpha", "--format", "manifest")
        self.host.apply(*(item for item in yaml.safe_load_all(manifest) if item is not None))
        self.host.roll_out("deployment/tower-agent", AGENTS)
        kubeconfig = self.folder / "jane.kubeconfig"
        kubeconfig.write_text(self.tower("kubeconfig", "alpha", "--user", "jane", "--group", "dev"))
        user = [f"--kubeconfig={self.host.through(kubeconfig)}"]
        program = [f"--kubeconfig={self.of_service('alpha')}", "--as=jane", "--as-group=dev"]

        def served() -> bool:
            argv = [str(kubectls()[-1]), "get", "namespaces"]
            return all(run([*argv, *options]).returncode == 0 for options in (user, program))

        wait_for("an answer through Tower", served, every=0.3)
        self.host.delete("pod", leader, "-n", SPACE)
        wait_for("an answer through another pod", served, every=0.3)
        self.assertNotEqual(self.leader(), leader)
        self.rolled_out()
        old = self.leader()
        self.host.kubectl("rollout", "restart", "deployment/tower", "-n", SPACE)
        self.rolled_out()
        wait_for(
            "an answer after the update", lambda: self.labeled() not in ("", old) and served(), every=0.3
        )
        self.assertIn("alpha", self.host.kubectl("get", "clusters", "-o", "name"))
        self.killed(served)
        self.outside(served)

    def of_service(self, cluster: str) -> Path:
        """Return the kubeconfig of a cluster's Secret, which leads to the ClusterIP of its Service."""
        name = f"mc-{cluster}"
        service = self.host.get("service", name, SPACE)
        config = base64.b64decode(self.host.get("secret", name, SPACE)["data"]["kubeconfig"])
        (target,) = yaml.safe_load(config)["clusters"]
        self.assertEqual(target["cluster"]["server"], f"https://{service['spec']['clusterIP']}:6443")
        path = self.folder / f"{name}.kubeconfig"
        path.write_bytes(config)
        return self.host.through(path)

    def killed(self, served: Callable[[], bool]) -> None:
        """After SIGKILL of the leader, another program serves users and agents when the Lease expires.

        It is that of the other pod or, on a loaded machine, a new one of the same pod.
        """
        holder, (killed,) = self.holder(), processes(self.leader())
        pods = self.host.objects("pods", SPACE)
        own = OwnTime(servers=[pid for pod in pods for pid in processes(pod["metadata"]["name"])])
        os.kill(killed, signal.SIGKILL)
        own.until("another leader", lambda: self.holder() not in ("", holder), every=0.3)
        passed = own.until("an answer after SIGKILL", served, every=0.3)
        self.assertLess(passed, LEASE + LEASE / 6 + SLACK)
        self.rolled_out()

    def outside(self, served: Callable[[], bool]) -> None:
        """A proxy that is not in a pod of its namespace is reached through its own EndpointSlices."""
        self.assertIn("selector", self.host.get("service", "mc-alpha", SPACE)["spec"])
        # without its name, the pod seems to be elsewhere; it has an address, but no leader's label
        selector = {"spec": {"selector": {"tower.kubesphere.io/leader": None}}}
        self.host.kubectl("patch", "service", "tower", "-n", SPACE, "-p", json.dumps(selector))
        self.host.kubectl("scale", "deployment/tower", "-n", SPACE, "--replicas=1")
        self.host.kubectl("set", "env", "deployment/tower", "-n", SPACE, "POD_NAME-")
        self.rolled_out()
        self.host.wait("service", "mc-alpha", lambda found: "selector" not in found["spec"], SPACE)
        (pod,) = wait_for("one pod", self.single, every=0.3)
        made = self.host.wait("endpointslice", "mc-alpha-ipv4", bool, SPACE)
        self.assertEqual(made["endpoints"][0]["addresses"], [pod["status"]["podIP"]])
        wait_for("an answer through the EndpointSlice", served, every=0.3)
        own = {pod["status"]["podIP"]}
        wait_for("no other endpoint", lambda: self.addresses("mc-alpha") == own, every=0.3)

    def addresses(self, service: str) -> set[str]:
        """Return the addresses of a Service's endpoints."""
        return {address for address, _ in self.host.endpoints(service, SPACE)}

    def single(self) -> list[dict[str, Any]]:
        """Return the pod of the proxy; nothing while there are several."""
        pods = self.host.objects("pods", SPACE, "app.kubernetes.io/name=tower")
        return pods if len(pods) == 1 else []
