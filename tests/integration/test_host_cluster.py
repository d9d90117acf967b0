"""A proxy with its records in a host cluster, real programs: clusters that users apply there with kubectl."""

from __future__ import annotations

import base64
import json
import ssl
import time
from socket import socket
from typing import Any

import yaml
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

from tests.integration.harness import Tower, TowerTestCase
from tests.integration.kubernetes_tower import CRDS, NAMESPACE, KubernetesTower
from tests.integration.kubesphere import ask_member
from tests.integration.member import Running, kubectls
from tests.integration.old_peers import OldAgent
from tests.integration.own_time import OwnTime
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, run, script, wait_for
from tests.integration.relay import Relay
from tower.controller.objects.host_cluster import BALANCER_ANNOTATION

NOTICED = 2.0  # s from the agent's connection
SLACK = 60.0  # s for a loaded machine
GRACE = 8.0  # s from the loss of an agent; a cluster is unavailable after 10 s
ATTEMPTS = 5  # on a machine that is too busy to connect an agent in that time


class HostClusterTests(TowerTestCase):
    """One API server is the host and the member alpha."""

    def new_tower(self) -> Tower:
        """Start the API server; return the proxy."""
        folder = self.folder / "host"
        folder.mkdir()
        running = Running(folder, "--bare")
        self.addCleanup(running.halt)
        running.start()
        self.member = running.member
        self.member.kubectl("apply", "-f", str(CRDS))
        self.member.kubectl("create", "namespace", NAMESPACE)
        tower = KubernetesTower(self.folder, self.member.admin)
        self.relay = Relay(tower.secure_port)
        self.addCleanup(self.relay.close)
        return tower

    def apply(
        self, name: str = "alpha", *, is_joined: bool = True, is_exported: bool = False, **connection: Any
    ) -> None:
        """Apply a cluster, as KubeSphere's users do."""
        cluster = {
            "apiVersion": "cluster.kubesphere.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {
                "name": name,
                "annotations": {BALANCER_ANNOTATION: '{"cloud.example/kind":"nlb"}'} if is_exported else {},
            },
            "spec": {
                "joinFederation": is_joined,
                "externalKubeAPIEnabled": is_exported,
                "connection": {"type": "proxy", **connection},
            },
        }
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(cluster).encode())

    def get(self, kind: str, name: str) -> Any:
        """Return an object of the host; None without one."""
        found = self.member.kubectl("-n", NAMESPACE, "get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(found) if found else None

    def status(self, kind: str, name: str = "alpha") -> str:
        """Return the status of a condition; empty without one."""
        conditions = self.get("cluster", name).get("status", {}).get("conditions", ())
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def wait_for_status(self, kind: str, status: str, name: str = "alpha") -> None:
        """Wait until a condition has a status."""
        wait_for(f"{kind} {status}", lambda: self.status(kind, name) == status, SLACK)

    def through_service(self, *arguments: str, name: str = "alpha") -> tuple[int, str]:
        """Run kubectl with the kubeconfig in the Secret; return its exit code and its output.

        The Service's address does not work on this machine: the test dials its target port, and verifies the
        address in the certificate.  `test_proxy_pods` dials the address.
        """
        service, secret = self.get("service", f"mc-{name}"), self.get("secret", f"mc-{name}")
        config = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
        cluster = config["clusters"][0]["cluster"]
        self.assertEqual(cluster["server"], f"https://{service['spec']['clusterIP']}:6443")
        port = service["spec"]["ports"][0]["targetPort"]
        cluster |= {"server": f"https://{LOOPBACK}:{port}", "tls-server-name": service["spec"]["clusterIP"]}
        path = self.folder / "service.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        done = run([str(kubectls()[-1]), f"--kubeconfig={path}", *arguments])
        return done.returncode, (done.stdout + done.stderr).decode()

    def as_dev(self, name: str = "alpha") -> bool:
        """Return whether a user that KubeSphere authenticated gets an answer."""
        user = ("--as=jane", "--as-group=dev")
        answer = self.through_service("get", "namespace", "demo", "-o", "name", *user, name=name)
        return "namespace/demo" in answer[1]

    def test_applied_with_kubectl(self) -> None:
        """Clusters that are applied work through their Services; each later change acts on live tunnels."""
        self.wrong_kubeconfig()
        self.switched_and_deleted()
        self.with_another_token()
        self.reconnected()
        self.after_a_crash()
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def wrong_kubeconfig(self) -> None:
        """The command rejects the host's API server, and writes nothing there."""
        done = run([script("tower"), f"--kubeconfig={self.member.admin}", "cluster", "add", "beta"])
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"is a cluster's API server, not a Tower proxy", done.stderr)
        self.assertIsNone(self.get("cluster", "beta"))

    def switched_and_deleted(self) -> None:
        """Connect an agent, switch the cluster off and on, and delete it."""
        for name in ("alpha", "beta", "gamma"):
            self.assertLess(self.connected(name), NOTICED, name)
        self.changed_while_connected()
        code, text = self.through_service("get", "namespaces")
        self.assertIn("Forbidden", text)  # the caller itself has no rights in the member
        self.assertNotEqual(code, 0)

        port = self.get("service", "mc-alpha")["spec"]["ports"][0]["targetPort"]
        path = self.folder / "service.kubeconfig"
        self.apply(is_joined=False)
        self.wait_for_status("Initialized", "False")
        self.wait_for_status("AgentAvailable", "False")
        self.assertIsNone(self.get("service", "mc-alpha"))
        wait_for("the end of its port", lambda: not self.is_open(port), SLACK)
        refused = run([str(kubectls()[-1]), f"--kubeconfig={path}", "get", "namespaces"])
        self.assertIn(b"refused", refused.stderr)
        self.apply()
        self.wait_for_status("Initialized", "True")
        self.assertEqual(self.get("service", "mc-alpha")["spec"]["ports"][0]["targetPort"], port)
        self.wait_for_status("AgentAvailable", "True")
        wait_for("an answer through the new Service", self.as_dev, SLACK)

        self.member.kubectl("delete", "cluster", "alpha", f"--timeout={SLACK:g}s")
        self.assertIsNone(self.get("service", "mc-alpha"))
        self.assertIsNone(self.get("secret", "mc-alpha"))
        wait_for("the end of its tunnel", lambda: not self.tower.agents[0].ready(), SLACK)
        wait_for("the end of its port", lambda: not self.is_open(port), SLACK)
        refused = run([str(kubectls()[-1]), f"--kubeconfig={path}", "get", "namespaces"])
        self.assertIn(b"refused", refused.stderr)

    def connected(self, name: str) -> float:
        """Apply a cluster and connect its agent; return the time until it is available and answers, s."""
        self.apply(name)
        self.wait_for_status("Initialized", "True", name)
        admin, joined = Person(self.member.admin), self.get("cluster", name)
        joined["spec"]["connection"]["kubeconfig"] = self.get("secret", f"mc-{name}")["data"]["kubeconfig"]
        via = self.relay.port if name == "beta" else None
        agent = self.tower.agent(name, self.member.agent, via=via)
        agent.program.start()
        line = f"agent of {name} connected"
        wait_for(line, lambda: line in self.tower.proxy.log.read_text(), every=0.01)
        own = OwnTime(self.tower.proxy, agent.program, servers=self.member.info["pids"].values())

        def is_available() -> bool:
            found = json.loads(admin.get(f"/apis/cluster.kubesphere.io/v1alpha1/clusters/{name}").body)
            states = {each["type"]: each["status"] for each in found["status"]["conditions"]}
            return states.get("AgentAvailable") == states.get("Available") == "True"

        def is_answered() -> bool:
            user = {"Impersonate_User": "jane", "Impersonate_Group": "dev"}
            return ask_member(joined, "/api/v1/namespaces/demo", **user).status == 200

        passed = own.until(f"{name}'s status and answer", lambda: is_answered() and is_available())
        status = self.get("cluster", name)["status"]
        self.assertRegex(status["kubernetesVersion"], r"^v1\.")
        self.assertTrue(status["agentVersion"])
        return passed

    def reconnected(self) -> None:
        """Cut the connection of beta's agent, which connects again: nothing is written."""
        port = self.get("service", "mc-beta")["spec"]["ports"][0]["targetPort"]
        agent = self.tower.agents[1]
        for _ in range(ATTEMPTS):
            self.wait_for_status("Available", "True", "beta")
            size, accepted, cut = self.member.audit_size(), self.relay.accepted, time.monotonic()
            self.relay.cut()
            self.assertTrue(self.is_open(port))
            wait_for("the agent", lambda: self.relay.accepted > accepted and agent.ready())  # noqa: B023
            if (passed := time.monotonic() - cut) < GRACE:
                break
        self.assertLess(passed, GRACE)
        wait_for("an answer", lambda: self.as_dev("beta"), SLACK)
        paths = ("/clusters/beta", "/services/mc-beta", "/secrets/mc-beta")
        for event in self.member.audit(size):
            is_write = event["verb"] not in ("get", "list", "watch")
            self.assertFalse(is_write and any(path in event["requestURI"] for path in paths), event)

    def after_a_crash(self) -> None:
        """Kill the proxy and an agent: the next proxy knows gamma's version and the actual state."""
        agent = self.tower.agents[2]
        self.assertIn("gamma", agent.name)
        self.tower.proxy.kill()
        agent.program.kill()
        self.tower.start()
        self.wait_for_status("AgentAvailable", "False", "gamma")
        self.assertRegex(self.get("cluster", "gamma")["status"]["kubernetesVersion"], r"^v1\.")
        (shown,) = [line for line in self.tower.tower("cluster", "list").splitlines() if "gamma" in line]
        self.assertRegex(shown, r"AgentDisconnected .* v1\..* ago ")
        self.wait_for_status("Available", "True", "beta")

    def changed_while_connected(self) -> None:
        """Change alpha's port, and export it; its agent stays connected."""
        old = self.get("service", "mc-alpha")["spec"]["ports"][0]["targetPort"]
        new = self.tower.cluster_ports[-1]
        self.apply(kubernetesAPIServerPort=new)
        wait_for("the new port", lambda: self.is_open(new) and not self.is_open(old), SLACK)
        wait_for("an answer through the new port", self.as_dev, SLACK)
        self.assertEqual(self.get("service", "mc-alpha")["spec"]["ports"][0]["targetPort"], new)
        self.apply(kubernetesAPIServerPort=new, is_exported=True)
        self.wait_for_status("ExternalAccessReady", "False")
        annotations = self.get("service", "mc-alpha")["metadata"]["annotations"]
        self.assertEqual(annotations["cloud.example/kind"], "nlb")
        status = {"status": {"loadBalancer": {"ingress": [{"hostname": "a.elb.example"}]}}}
        patch = ("patch", "service", "mc-alpha", "--subresource=status", "-p", json.dumps(status))
        self.member.kubectl("-n", NAMESPACE, *patch)
        self.wait_for_status("ExternalAccessReady", "True")
        self.assertIn("a.elb.example", self.names_at(new))
        self.apply(kubernetesAPIServerPort=new)
        self.wait_for_status("ExternalAccessReady", "")
        self.assertNotIn("a.elb.example", self.names_at(new))
        self.assertTrue(self.as_dev())
        self.assertEqual(self.tower.proxy.output().count("agent of alpha connected"), 1)

    def is_open(self, port: int) -> bool:
        """Return whether a port accepts connections."""
        with socket() as connection:
            return connection.connect_ex((LOOPBACK, port)) == 0

    def names_at(self, port: int) -> list[str]:
        """Return the DNS names in the certificate of a port."""
        pem = ssl.get_server_certificate((LOOPBACK, port))
        names = load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(
            SubjectAlternativeName
        )
        return names.value.get_values_for_type(DNSName)

    def with_another_token(self) -> None:
        """Connect an agent of KubeSphere Tower with the token in the object, then change it."""
        token, other = "0123456789abcdef" * 4, "fedcba9876543210" * 4
        foreign = base64.b64encode(b"kind: Config").decode()
        self.apply(token=token, kubeconfig=foreign)
        self.wait_for_status("Initialized", "True")
        shown = json.dumps(self.get("cluster", "alpha"))
        self.assertNotIn(token, shown)
        self.assertNotIn(foreign, shown)
        self.assertEqual(self.get("secret", "mc-alpha")["data"]["other-kubeconfig-1"], foreign)
        agent = OldAgent(
            self.folder,
            f"http://{LOOPBACK}:{self.tower.port}",
            "alpha",
            token,
            self.member.service,
            ca=self.member.ca,
            bearer=self.member.least.token_file,
        )
        self.addCleanup(agent.program.stop)
        agent.program.start()
        self.wait_for_status("AgentAvailable", "True")
        wait_for("an answer through the Service", self.as_dev, SLACK)
        self.apply(token=other)
        self.wait_for_status("AgentAvailable", "False")
        self.assertFalse(self.as_dev())
