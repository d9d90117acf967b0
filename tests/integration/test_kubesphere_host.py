"""A proxy in the host cluster of KubeSphere, whose webhook dials the member at each update of its object."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import time
from pathlib import Path
from ssl import SSLError
from typing import Any

import yaml

from tests.integration.adopted_cluster import HOST_HEADINGS, AdoptedCluster
from tests.integration.guide import Guide, path_with
from tests.integration.harness import KEEPALIVE, Tower, TowerTestCase
from tests.integration.kubernetes_tower import CRDS, NAMESPACE, KubernetesTower
from tests.integration.kubesphere import (
    ClusterWebhook,
    KubeSphereController,
    ask_member,
    caller_of,
    is_accepted,
    is_reached,
)
from tests.integration.member import Running, kubectls
from tests.integration.old_installation import old_objects
from tests.integration.ports import PARTNER
from tests.integration.programs import LOOPBACK, Program, wait_for
from tower.clusters.host.host_object import KUBESPHERE_FINALIZER

PAGE = "migrating-from-kubesphere-tower.md"
PREPARE, REPLACE, CONSOLE, BACK = HOST_HEADINGS
LIFETIME = "45s"  # of kubeconfigs
QUIET = 2.0  # s
SLACK = 90.0  # s for a loaded machine


class KubeSphereHostTests(TowerTestCase):
    """One API server is the host, with KubeSphere's CRD and webhook, and all members."""

    timeout = 800  # s; it waits for grace periods and renewals

    def new_tower(self) -> Tower:
        """Start the API server and the webhook; return the proxy."""
        folder = self.folder / "host"
        folder.mkdir()
        running = Running(folder, "--bare")
        self.addCleanup(running.halt)
        running.start()
        self.member = running.member
        crd, namespace, *_ = old_objects({})
        own = [path for path in sorted(CRDS.iterdir()) if path.name.startswith("tower.")]
        self.member.kubectl("apply", *(f"--filename={path}" for path in own))
        self.apply(crd, namespace)
        self.member.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self.allow_kubesphere()
        self.webhook = ClusterWebhook(self.folder, self.member)
        self.addCleanup(self.webhook.stop)
        self.webhook.register()
        self.kubesphere = KubeSphereController(self.member, "gamma")
        options = ("--kubesphere-compat", f"--max-credential-ttl={LIFETIME}")
        self.hosted = KubernetesTower(self.folder, self.member.admin, *options)
        return self.hosted

    def allow_kubesphere(self) -> None:
        """Grant KubeSphere's own rights in the member."""
        words = ("create", "clusterrolebinding", "kubesphere", "--clusterrole=cluster-admin")
        self.member.kubectl(*words, "--user=kubesphere")

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(listed).encode())

    def exists(self, kind: str) -> bool:
        """Return whether the Service or the Secret of gamma exists."""
        return bool(self.member.kubectl("-n", NAMESPACE, "get", kind, "mc-gamma", "--ignore-not-found"))

    def condition(self, kind: str) -> str:
        """Return the status of a condition of alpha; empty without one."""
        conditions = self.kubesphere.get().get("status", {}).get("conditions", ())
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def wait_for_condition(self, kind: str, status: str = "True") -> None:
        """Wait until a condition has a status."""
        wait_for(f"{kind} {status}", lambda: self.condition(kind) == status, SLACK, 0.5)

    def test_console(self) -> None:
        """Clusters of KubeSphere's console and of KubeSphere Tower are created, adopted, and given back."""
        self.created()
        self.steady()
        self.away_and_back()
        self.deleted()
        self.old = AdoptedCluster(self.folder, self.hosted, self.member)
        self.addCleanup(self.old.stop)
        self.kubesphere = KubeSphereController(self.member, "alpha")
        self.guide = self.prepared_guide()
        self.adopted()
        self.given_back()
        self.adopted_again()
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def created(self) -> None:
        """Apply it and connect its agent; KubeSphere learns from the member."""
        spec = {"joinFederation": True, "provider": "", "connection": {"type": "proxy"}}
        metadata = {"name": "gamma", "annotations": {"kubesphere.io/creator": "admin"}}
        self.apply(
            {
                "apiVersion": "cluster.kubesphere.io/v1alpha1",
                "kind": "Cluster",
                "metadata": metadata,
                "spec": spec,
            }
        )
        self.wait_for_condition("Initialized")
        self.agent = self.tower.agent("gamma", self.member.agent)
        self.agent.program.start()
        self.agent.wait_until_ready()
        self.wait_for_condition("AgentAvailable")
        self.first = self.kubesphere.get()
        self.kubesphere.join()
        self.assertEqual(self.kubesphere.get()["metadata"]["finalizers"], [KUBESPHERE_FINALIZER])
        asked = ask_member(self.kubesphere.get(), "/api/v1/namespaces/demo", Impersonate_User="jane")
        self.assertEqual(asked.status, 403)

    def steady(self) -> None:
        """Nothing is written while nothing happens; changes of a user and their results are admitted."""
        self.wait_for_condition("Available")
        self.assertTrue(any(self.is_calm() for _ in range(3)))  # a renewal may be due
        patch = json.dumps({"spec": {"externalKubeAPIEnabled": True}})
        self.member.kubectl("patch", "cluster", "gamma", "--type=merge", "-p", patch)
        self.wait_for_condition("ExternalAccessReady", "False")
        self.named()
        self.assertEqual(self.webhook.denied, 0)

    def is_calm(self) -> bool:
        """Return whether no program writes the object for a while."""
        count = len(self.webhook.denials)
        time.sleep(QUIET)
        return len(self.webhook.denials) == count

    def named(self) -> None:
        """The port has the names that kubeconfigs of KubeSphere Tower use, and those of a load balancer."""
        cluster = self.kubesphere.get()
        address = caller_of(cluster).host
        for name in (address, "kubernetes", "kubernetes.default", "kubernetes.default.svc"):
            self.assertTrue(is_accepted(cluster, name), name)
        self.assertFalse(is_accepted(cluster, "a.elb.example"))
        status = {"status": {"loadBalancer": {"ingress": [{"hostname": "a.elb.example"}]}}}
        words = ("-n", NAMESPACE, "patch", "service", "mc-gamma", "--subresource=status", "-p")
        self.member.kubectl(*words, json.dumps(status))
        self.wait_for_condition("ExternalAccessReady")
        self.assertTrue(is_accepted(cluster, "a.elb.example"))

    def away_and_back(self) -> None:
        """Without an agent, the webhook denies; Tower does not insist, and is up to date once one is back."""
        self.agent.program.stop()
        wait_for("a denial", lambda: self.webhook.denied, SLACK)
        wait_for("its log line", lambda: "KubeSphere's webhook allows" in self.tower.proxy.output(), SLACK)
        time.sleep(QUIET)
        self.assertLess(self.webhook.denied, 15)  # also of a renewal, which is due
        self.assertNotIn("rbac host", self.tower.proxy.output())
        self.agent.forget_token()
        self.agent.program.start()
        self.agent.wait_until_ready()
        patch = json.dumps({"spec": {"externalKubeAPIEnabled": False}})
        wait_for("a change", lambda: self.patched(patch), SLACK, 0.5)
        self.wait_for_condition("ExternalAccessReady", "")
        self.wait_for_condition("AgentAvailable")
        renewed = self.renewed(self.first)  # in two thirds of its lifetime
        self.assertEqual(ask_member(renewed, "/api/v1/namespaces/demo").status, 200)

    def patched(self, patch: str, name: str = "gamma") -> bool:
        """Return whether a user's change is admitted."""
        try:
            self.member.kubectl("patch", "cluster", name, "--type=merge", "-p", patch)
        except AssertionError:
            return False
        return True

    def deleted(self) -> None:
        """Delete it: KubeSphere cleans up through Tower, then nothing is left."""
        self.member.kubectl("delete", "cluster", "gamma", "--wait=false")
        time.sleep(1.0)
        self.kubesphere.clean_up()
        wait_for("the end of the object", lambda: not self.kubesphere.get(), SLACK, 0.5)
        wait_for("the end of its Service", lambda: not self.exists("service"), SLACK, 0.5)
        wait_for("the end of the tunnel", lambda: not self.agent.ready(), SLACK)

    def adopted(self) -> None:
        """Start the proxy for objects of KubeSphere Tower, in place of the old proxy, at its address."""
        self.tower.proxy.stop()
        self.old.start()
        before = self.kubesphere.get()
        self.assertEqual(ask_member(before, "/version").status, 200)
        self.member.kubectl("delete", "clusterrolebinding", "kubesphere")
        self.guide.run(PREPARE)
        self.assertIn(self.old.token, (self.folder / "clusters.yaml").read_text())
        self.guide.run(PREPARE, 1)
        self.guide.run(REPLACE)
        self.assertEqual(self.old.replicas(), "0")
        self.old.proxy.program.stop()
        denied = self.webhook.denied
        self.start(self.guide.program("new-proxy", REPLACE, 1))
        after = self.renewed(before)
        self.assertLess(self.webhook.denied - denied, 10)
        self.check_adopted(before, after)
        for cluster in (before, after):
            self.assertEqual(ask_member(cluster, "/api/v1/namespaces/demo").status, 200)

    def prepared_guide(self) -> Guide:
        """Return the page about migration, with the files that its commands expect."""
        for name in ("host", "alpha"):
            shutil.copy(self.member.admin, self.folder / f"{name}.kubeconfig")
        shutil.copy(self.old.authority, self.folder / "ca.crt")
        shutil.copy(self.old.authority_key, self.folder / "ca.key")
        installed = Path(sys.executable).parent
        ports = self.hosted.cluster_ports
        environment = {
            "PATH": path_with(
                self.folder / "bin", kubectls()[-1], installed / "tower", installed / "tower-proxy"
            ),
            "TOWER_HOST": LOOPBACK,
            "TOWER_PORT": str(self.hosted.port),
            "TOWER_SECURE_PORT": str(self.hosted.secure_port),
            "TOWER_CLUSTER_PORTS": f"{ports[0]}-{ports[-1]}",
            "TOWER_KEEPALIVE": f"{KEEPALIVE:g}s",
            "TOWER_LEADER_ELECT": "false",
        }
        names = {
            "/var/lib/tower": str(self.hosted.state),
            "10.0.0.7": LOOPBACK,
            "16000-17000": f"{ports[0] + PARTNER}-{ports[-1] + PARTNER}",
        }
        return Guide(PAGE, self.folder, environment, names)

    def start(self, proxy: Program) -> None:
        """Start a proxy, and wait for the agent: its condition may be that of the former proxy."""
        self.tower.proxy = proxy
        self.addCleanup(proxy.stop)
        self.tower.start()
        cluster = self.kubesphere.get()
        wait_for("the agent", lambda: is_reached(cluster), SLACK, 0.5)

    def renewed(self, before: dict[str, Any]) -> dict[str, Any]:
        """Return the object once it has another kubeconfig."""
        known = before["spec"]["connection"]["kubeconfig"]
        wait_for(
            "the new kubeconfig",
            lambda: self.kubesphere.get()["spec"]["connection"]["kubeconfig"] != known,
            SLACK,
            0.5,
        )
        self.wait_for_condition("Initialized")
        self.wait_for_condition("AgentAvailable")
        return self.kubesphere.get()

    def check_adopted(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Compare the object with that of the old proxy; the Service has the same address and ports."""
        kept = ("token", "kubernetesAPIServerPort", "kubesphereAPIServerPort", "kubernetesAPIEndpoint")
        for key in (*kept, "kubesphereAPIEndpoint", "type"):
            self.assertEqual(after["spec"]["connection"][key], before["spec"]["connection"][key], key)
        for key in ("joinFederation", "enable", "provider"):
            self.assertEqual(after["spec"][key], before["spec"][key], key)
        for key in ("uid", "labels", "finalizers"):
            self.assertEqual(after["metadata"][key], before["metadata"][key], key)
        notes = after["metadata"]["annotations"]
        self.assertEqual({**notes, **before["metadata"]["annotations"]}, notes)
        for key in ("uid", "nodeCount", "kubeSphereVersion"):
            self.assertEqual(after["status"][key], before["status"][key], key)
        ready = [each for each in before["status"]["conditions"] if each["type"] == "Ready"]
        self.assertEqual([each for each in after["status"]["conditions"] if each["type"] == "Ready"], ready)
        service = self.old.service()
        self.assertEqual(service["metadata"]["uid"], self.old.created["metadata"]["uid"])
        self.assertEqual(service["spec"]["clusterIP"], self.old.created["spec"]["clusterIP"])
        self.assertEqual(service["spec"]["ports"], self.old.created["spec"]["ports"])

    def given_back(self) -> None:
        """Stop the proxy, and start the old one: KubeSphere works with the object as it is now."""
        self.tower.proxy.stop()
        self.guide.run(BACK)
        self.assertEqual(self.old.replicas(), "1")
        self.old.proxy.start()
        self.old.proxy.wait_for_agents()
        cluster = self.kubesphere.get()
        for each in (cluster, self.old.cluster):
            self.assertEqual(ask_member(each, "/api/v1/namespaces/demo").status, 200)
        self.assertEqual(cluster["metadata"]["finalizers"], [KUBESPHERE_FINALIZER])
        patch = json.dumps({"metadata": {"annotations": {"kubesphere.io/description": "old"}}})
        self.assertTrue(self.patched(patch, "alpha"))

    def adopted_again(self) -> None:
        """Replace the old proxy again, now with authentication: KubeSphere authenticates as itself."""
        self.old.proxy.program.stop()
        authority = (f"--ca-cert={self.old.authority}", f"--ca-key={self.old.authority_key}")
        self.start(self.hosted.hosted_program("--kubesphere-compat", *authority))
        cluster = self.kubesphere.get()
        self.assertEqual(ask_member(cluster, "/api/v1/namespaces/demo").status, 200)
        jane = ask_member(cluster, "/api/v1/namespaces/demo", Impersonate_User="jane")
        self.assertEqual(jane.status, 403)
        with self.assertRaises(SSLError):  # a client certificate of the old proxy
            ask_member(self.old.cluster, "/api/v1/namespaces/demo")
        denied = self.webhook.denied
        patch = json.dumps({"metadata": {"annotations": {"kubesphere.io/description": "new"}}})
        self.assertTrue(self.patched(patch, "alpha"))
        self.assertEqual(self.webhook.denied, denied)
        self.guide.run(CONSOLE)
        wait_for("KubeFed", lambda: self.as_kubefed(cluster) == 200, SLACK, 0.5)
        self.assertNotIn(self.old.token, self.tower.proxy.output())

    def as_kubefed(self, cluster: dict[str, Any]) -> int:
        """Return the status of a request with a token of the member alone; 0: no connection."""
        connection = cluster["spec"]["connection"]
        config = yaml.safe_load(base64.b64decode(connection["kubeconfig"]))
        config["users"][0]["user"] = {}
        kubeconfig = base64.b64encode(yaml.safe_dump(config).encode()).decode()
        alone = {"spec": {"connection": {**connection, "kubeconfig": kubeconfig}}}
        token = f"Bearer {self.member.cluster_admin.token}"
        try:
            return ask_member(alone, "/api/v1/namespaces", Authorization=token).status
        except OSError:  # the port is opened again
            return 0
