"""Both charts, installed by Helm: pods of proxy and agents are used, replaced, upgraded and removed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.helm import CHARTS, helm, run_helm
from tests.integration.host import LONG, host, missing_rights
from tests.integration.member import kubectls
from tests.integration.programs import run, wait_for
from tower.kube.crds.manifests import crds

PROXY, AGENT, HOSTED = "tower-system", "agent-system", "hosted-system"
LEADER = "tower.kubesphere.io/leader=true"
KEPT = {"configmap/kube-root-ca.crt", "serviceaccount/default"}  # exist in all namespaces


class InstalledChartTests(SynchronousTestCase):
    """One release of each chart in the same cluster.

    :ivar space: the proxy's namespace.
    :ivar pod: the pod in which `tower` runs the command, as the notes of the chart show it.
    """

    timeout = 900  # s; the programs are built once
    if missing_rights():
        skip = missing_rights()

    def setUp(self) -> None:
        """Start the cluster."""
        helm()
        self.host = host()
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.space, self.pod = PROXY, "deploy/tower"
        self.addCleanup(self.host.delete, "namespace", PROXY, HOSTED, AGENT, "--ignore-not-found")

    def helm(self, action: str, release: str, namespace: str, *arguments: str) -> None:
        """Change a release and wait for its pods."""
        words = (action, release, *arguments, f"--namespace={namespace}", "--wait", "--timeout=150s")
        done = run_helm(*words, f"--kubeconfig={self.host.kubeconfig}", home=self.folder)
        if done.returncode:
            events = self.host.kubectl("get", "events", "-n", namespace)
            raise AssertionError(f"helm {words}: {done.stderr.decode()}\n{events}")

    def install(self, chart: str, release: str, namespace: str, values: dict[str, Any]) -> None:
        """Install a chart."""
        path = self.folder / f"{release}.json"
        path.write_text(json.dumps(values))
        self.helm(
            "install", release, namespace, str(CHARTS / chart), "--create-namespace", f"--values={path}"
        )

    def tower(self, *arguments: str) -> str:
        """Run the command ``tower`` in the proxy's pod."""
        return self.host.kubectl("exec", self.pod, "-n", self.space, "--", "tower", *arguments)

    def joined(self) -> dict[str, Any]:
        """Return the values of the agent's chart, from the line that starts an agent."""
        words = shlex.split(self.tower("join", "alpha", "--format", "env"))
        options = dict(pairwise(words))
        (token,) = (word.partition("=")[2] for word in words if word.startswith("TOWER_TOKEN="))
        return {
            "name": options["--name"],
            "proxyServer": options["--proxy-server"],
            "hostKeys": [options["--host-key"]],
            "caHashes": [options["--ca-hash"]],
            "joinToken": {"token": token},
        }

    def listed(self) -> Callable[[], set[str]]:
        """Return a function that returns the names of the agent's pods, as answered through Tower."""
        kubeconfig = self.folder / "jane.kubeconfig"
        kubeconfig.write_text(self.tower("kubeconfig", "alpha", "--user", "jane", "--group", "dev"))
        user = [str(kubectls()[-1]), f"--kubeconfig={self.host.through(kubeconfig)}"]

        def listed() -> set[str]:
            done = run([*user, "get", "pods", "-n", AGENT, "-o", "name"])
            return {name.removeprefix("pod/") for name in done.stdout.decode().split()}

        return listed

    def leader(self) -> str:
        """Return the name of the leader's pod."""

        def labeled() -> str:
            """Return nothing while a new leader has its label and the former one has not lost it."""
            names = [pod["metadata"]["name"] for pod in self.host.objects("pods", self.space, LEADER)]
            return names[0] if len(names) == 1 else ""

        return wait_for("one leader", labeled, every=0.3)

    def pods(self, namespace: str) -> dict[str, bool]:
        """Return the names of a namespace's pods, and whether they are ready."""
        return {
            pod["metadata"]["name"]: any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in pod["status"].get("conditions", ())
            )
            for pod in self.host.objects("pods", namespace)
        }

    def replace(self, namespace: str) -> None:
        """Delete the pods of a namespace; wait until as many others are ready."""
        old = self.pods(namespace)
        self.host.delete("pods", "-n", namespace, *old)

        def replaced() -> bool:
            new = self.pods(namespace)
            return len(new) == len(old) and all(new.values()) and not set(new) & set(old)

        wait_for(f"other pods in {namespace}", replaced, LONG, every=0.3)

    def remaining(self, namespace: str) -> set[str]:
        """Return the objects of a namespace that Kubernetes has not made itself."""
        own = self.host.kubectl("api-resources", "--api-group=tower.kubesphere.io", "-o", "name").split()
        kinds = "all,pvc,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb,leases"
        found = self.host.kubectl("get", ",".join((kinds, *own)), "-n", namespace, "-o", "name")
        return set(found.split()) - KEPT

    def wait_for_remaining(self, namespace: str, names: set[str]) -> None:
        """Wait until a namespace has these objects only: some are removed after the pods."""
        wait_for(f"the rest of {namespace}", lambda: self.remaining(namespace) == names, every=0.3)

    def make_older(self, name: str) -> None:
        """Make a CRD as if of an earlier Tower."""
        earlier = {"metadata": {"annotations": {"tower.kubesphere.io/crd-revision": "0"}}}
        self.host.kubectl("patch", "crd", name, "--type=merge", "-p", json.dumps(earlier))
        removal = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]
        self.host.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps(removal))
        self.assertEqual(self.differing_crds(), {name})

    def differing_crds(self) -> set[str]:
        """Return the names of CRDs whose columns or revision are not those of `deploy/crds`."""

        def facts(crd: dict[str, Any]) -> list[Any]:
            metadata, (version,) = crd["metadata"], crd["spec"]["versions"]
            columns = version.get("additionalPrinterColumns", [])
            revision = metadata["annotations"]["tower.kubesphere.io/crd-revision"]
            return [metadata["name"], revision, [each["name"] for each in columns]]

        installed = [facts(self.host.get("crd", crd["metadata"]["name"])) for crd in crds()]
        return {
            crd["metadata"]["name"]
            for crd, found in zip(crds(), installed, strict=True)
            if facts(crd) != found
        }

    def test_life(self) -> None:
        """Pods become ready, serve users, come back from their volume and Secret, and leave nothing."""
        address = {"publishServiceAddress": f"tower.{PROXY}.svc", "service": {"type": "ClusterIP"}}
        self.install("tower", "tower", PROXY, address)
        self.tower("cluster", "add", "alpha")
        self.install("tower-agent", "agent", AGENT, self.joined())
        listed = self.listed()
        wait_for("answers", lambda: listed() == set(self.pods(AGENT)), every=0.3)
        doctor = ("exec", "deploy/agent-tower-agent", "-n", AGENT, "--", "tower", "doctor", "--agent")
        self.assertIn("is enrolled for cluster alpha", self.host.kubectl(*doctor))
        # another pod of the proxy has the same keys and records; other agents do not need a token
        self.replace(PROXY)
        old, path = self.pods(AGENT), str(CHARTS / "tower-agent")
        self.helm("upgrade", "agent", AGENT, path, "--reuse-values", "--set=joinToken.token=")
        wait_for("the end of the old pods", lambda: not set(self.pods(AGENT)) & set(old), every=0.3)
        wait_for("answers through other pods", lambda: listed() == set(self.pods(AGENT)), every=0.3)
        self.helm("uninstall", "agent", AGENT)
        self.helm("uninstall", "tower", PROXY)
        wait_for("the end of all pods", lambda: not self.pods(AGENT) and not self.pods(PROXY), every=0.3)
        self.wait_for_remaining(AGENT, set())
        self.wait_for_remaining(PROXY, {"persistentvolumeclaim/tower-state"})
        # another release of the same name continues with the volume
        self.install("tower", "tower", PROXY, address)
        self.assertIn("alpha", self.tower("cluster", "list"))

    def test_replicas(self) -> None:
        """With records in the cluster, a standby takes over, and the release is upgraded and removed."""
        self.addCleanup(self.host.delete, "clusters", "--all", "--timeout=60s")
        self.space, self.pod = HOSTED, "svc/tower"
        values = {"store": "kubernetes", "replicas": 2, "service": {"type": "ClusterIP"}}
        self.install("tower", "tower", HOSTED, {"publishServiceAddress": f"tower.{HOSTED}.svc", **values})
        self.tower("cluster", "add", "alpha")
        self.install("tower-agent", "agent", AGENT, self.joined())
        listed, agents = self.listed(), set(self.pods(AGENT))
        wait_for("answers", lambda: listed() == agents, every=0.3)
        leader = self.leader()
        self.host.delete("pod", leader, "-n", HOSTED)
        wait_for("answers through the other pod", lambda: listed() == agents, every=0.3)
        self.assertNotEqual(self.leader(), leader)
        self.make_older("credentials.tower.kubesphere.io")
        old, path = self.pods(HOSTED), str(CHARTS / "tower")
        self.helm("upgrade", "tower", HOSTED, path, "--reuse-values", "--set=log.format=json")
        wait_for("the end of the old pods", lambda: not set(self.pods(HOSTED)) & set(old), every=0.3)
        wait_for("answers through new pods", lambda: listed() == agents, every=0.3)
        self.assertEqual(self.differing_crds(), set())
        left = ("get", "clusterroles,jobs,serviceaccounts", "-n", HOSTED, "-o", "name")
        wait_for("the end of the job", lambda: "crds" not in self.host.kubectl(*left), every=0.3)
        self.tower("cluster", "remove", "alpha")
        self.assertEqual(self.host.refused(f"system:serviceaccount:{HOSTED}:tower"), set())
        self.helm("uninstall", "agent", AGENT)
        self.helm("uninstall", "tower", HOSTED)
        wait_for("the end of all pods", lambda: not self.pods(AGENT) and not self.pods(HOSTED), every=0.3)
        self.wait_for_remaining(AGENT, set())
        records = {name for name in self.remaining(HOSTED) if ".tower.kubesphere.io/" in name}
        self.assertTrue(records)
        self.wait_for_remaining(HOSTED, {"lease.coordination.k8s.io/tower", "secret/tower-state", *records})
