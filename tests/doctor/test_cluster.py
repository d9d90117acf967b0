"""Tests for `tower.doctor.cluster`."""

from __future__ import annotations

from typing import Any

from tests.doctor.kit import SERVING, DoctorTestCase
from tests.fakes.certificates import NOW
from tower import __version__
from tower.doctor.cluster import examine_cluster
from tower.doctor.findings import Finding
from tower.kube.kubeconfig import KubeAccess, kubeconfig

BASE = "/apis/cluster.kubesphere.io/v1alpha1"
CLUSTER = f"{BASE}/clusters/alpha"
THROUGH = ("GET", "/clusters/alpha/version")


class ClusterTests(DoctorTestCase):
    """One cluster, with one thing broken."""

    def setUp(self) -> None:
        """Answer as a proxy with a connected agent."""
        super().setUp()
        conditions = [
            {"type": kind, "status": "True", "message": "fine"}
            for kind in ("APIServerReachable", "MemberCredential", "ImpersonationAllowed")
        ]
        self.record: dict[str, Any] = {
            "spec": {"enable": True, "connection": {"type": "proxy"}},
            "status": {"conditions": conditions},
        }
        self.tunnel = {"version": __version__}
        self.agents = [{"status": {"tunnels": [self.tunnel]}}]
        issued = kubeconfig(server="https://x", ca_pem=b"", cluster="alpha", user="u", token="once")
        self.network.answers = {
            ("GET", "/version"): (200, {"gitVersion": "v1"}),
            ("GET", CLUSTER): (200, self.record),
            ("GET", f"{CLUSTER}/agents"): (200, {"items": self.agents}),
            ("POST", f"{CLUSTER}/kubeconfigs"): (
                201,
                {"status": {"kubeconfig": issued, "credential": "c-1"}},
            ),
            THROUGH: (200, {"gitVersion": "v1.36.2"}),
            ("DELETE", f"{BASE}/credentials/c-1"): (200, {}),
        }

    def look(self) -> dict[str, Finding]:
        """Return the findings."""
        access = KubeAccess("https://tower.example:8443", SERVING.pem, token="root")
        return self.found(examine_cluster(self.network, access, "alpha", {}, lambda: NOW))

    def test_sound(self) -> None:
        """Nothing is wrong; the request has its own credential, which is revoked."""
        findings = self.look()
        self.assertEqual(self.grades(findings), {"ok"})
        self.assertIn("the API server answered 200, version v1.36.2", findings["request"].line)
        method, path, _, token = self.network.asked[-2]
        self.assertEqual((method, path, token), (*THROUGH, "once"))
        self.assertEqual(self.network.asked[-1][:2], ("DELETE", f"{BASE}/credentials/c-1"))
        (body,) = (body for method, _, body, _ in self.network.asked if method == "POST")
        self.assertEqual((body["spec"]["user"], body["spec"]["ttl"]), ("tower-doctor", "1m"))

    def test_record(self) -> None:
        """A missing and a disabled cluster have their commands."""
        self.record["spec"]["enable"] = False
        self.assertIn("tower cluster enable alpha", self.failed(self.look()))
        self.network.answers["GET", CLUSTER] = (404, {})
        self.assertIn("tower cluster add alpha", self.failed(self.look()))
        self.network.answers["GET", "/version"] = (401, {"message": "expired"})
        self.assertIn("tower admin-kubeconfig", self.failed(self.look()))

    def test_agents(self) -> None:
        """No agent, a disconnected agent and an agent of another version have different findings."""
        self.tunnel["version"] = "0.0.1"
        self.assertIn("version 0.0.1; this is version", self.look()["tunnels"].line)
        self.agents[0]["status"]["tunnels"] = []
        self.assertIn("none of its 1 agents is connected", self.failed(self.look()))
        self.agents.clear()
        cure = "run the line that 'tower join alpha' prints"
        self.assertIn(f"no agent has joined -> {cure}", self.failed(self.look()))

    def test_nodes(self) -> None:
        """A cluster of type ssh has nodes in place of agents."""
        self.record["spec"]["connection"]["type"] = "ssh"
        self.record["status"]["ssh"] = {"usableNodes": 1, "nodes": [{}, {}]}
        self.assertIn("1 of 2 nodes are usable", self.look()["tunnels"].line)
        self.record["status"]["ssh"] = {"nodes": [{}], "lastError": "no key"}
        self.assertIn("none of 1 nodes is usable: no key", self.failed(self.look()))

    def test_conditions(self) -> None:
        """A condition that is False is a failure with its message and cure; a missing one is not."""
        condition = self.record["status"]["conditions"][1]
        condition.update(status="False", message="API server rejects the credential: replace it")
        line = self.failed(self.look())
        self.assertIn("MemberCredential: API server rejects the credential -> replace it", line)
        self.record["status"]["conditions"] = []
        self.assertEqual(self.grades(self.look()), {"ok"})

    def test_request(self) -> None:
        """A request that fails is named, and its credential is revoked."""
        for code, message, cure in (
            (503, "no agent", "tower doctor --agent"),
            (403, "agent cannot impersonate users", "deploy/agent-rbac.yaml"),
            (500, "odd", "check the logs"),
        ):
            self.network.answers[THROUGH] = (code, {"message": message})
            line = self.failed(self.look())
            self.assertIn(f"request: HTTP status {code}: {message} -> ", line)
            self.assertIn(cure, line)
            self.assertIn(("DELETE", f"{BASE}/credentials/c-1"), [each[:2] for each in self.network.asked])
        self.network.answers[THROUGH] = (403, {"message": "tower-doctor cannot get path"})
        self.assertEqual(self.look()["request"].verdict.grade, "ok")

    def test_no_answer(self) -> None:
        """A request without an answer has the likely cause, or the condition that became False meanwhile."""
        self.network.slow.add(THROUGH[1])
        line = self.failed(self.look())
        self.assertIn("request: GET /clusters/alpha/version: no answer within 8 s -> see ", line)
        self.assertIn("tower cluster show alpha", line)
        self.assertIn("does not answer its agent; restart it if it is frozen", line)
        self.assertIn(("DELETE", f"{BASE}/credentials/c-1"), [each[:2] for each in self.network.asked])
        self.network.before = self.fail_later
        self.assertIn("request: API server api is silent -> restart it", self.failed(self.look()))
        self.record["status"]["conditions"][0]["status"] = "True"
        self.network.slow.clear()
        self.network.answers[THROUGH] = (504, {"message": "too late"})
        self.assertIn("request: API server api is silent -> restart it", self.failed(self.look()))

    def fail_later(self, path: str) -> None:
        """Let a condition become False with the request through the tunnel."""
        if path == THROUGH[1]:
            condition = self.record["status"]["conditions"][0]
            condition.update(status="False", message="API server api is silent: restart it")

    def test_silent_proxy(self) -> None:
        """A proxy that does not answer has its own cure."""
        self.network.slow.add("/version")
        self.assertIn("answer: GET /version: no answer within 8 s", self.failed(self.look()))
        self.assertIn("check the proxy's log", self.failed(self.look()))
