"""Resources of all clusters together."""

from __future__ import annotations

from tests.fakes.api import BASE, TABLE, ApiTestCase, decoded
from tower.clusters.agent_rejection import AgentRejected


class AcrossClustersTests(ApiTestCase):
    """Two clusters; one has an agent."""

    def setUp(self) -> None:
        """Let an agent join."""
        super().setUp()
        self.add("alpha")
        self.add("beta")
        token = self.successResultOf(self.tokens.mint("beta"))
        self.successResultOf(self.tokens.enrol("beta", token, "SHA256:abc", b"blob"))

    def test_agents(self) -> None:
        """The list has the agents of all clusters, with a column for the cluster."""
        (item,) = self.get(f"{BASE}/agents")["items"]
        self.assertEqual((item["metadata"]["name"], item["spec"]["cluster"]), ("SHA256:abc", "beta"))
        answer = self.get(f"{BASE}/agents", accept=TABLE)
        self.assertEqual(answer["rows"][0]["cells"][:2], ["SHA256:abc", "beta"])
        self.assertEqual(self.get(f"{BASE}/agents", fieldSelector="spec.cluster=alpha")["items"], [])

    def test_empty(self) -> None:
        """Clusters with agents have no nodes and no host keys."""
        for kind in ("nodes", "hostkeys"):
            self.assertEqual(self.get(f"{BASE}/{kind}")["items"], [])

    def test_refused(self) -> None:
        """Objects are changed below their clusters, and cannot be watched."""
        self.refused(405, "DELETE", f"{BASE}/agents")
        for name, path in (("SHA256:abc", "beta/agents/SHA256:abc"), ("x+y", "CLUSTER/agents/x-y")):
            refusal = self.refused(404, "GET", f"{BASE}/agents/{name}")
            self.assertIn(f"kubectl get --raw '{BASE}/clusters/{path}'", str(refusal))
        self.refused(405, "GET", f"{BASE}/agents", watch="1")

    def test_join_token(self) -> None:
        """A join token names its cluster in the spec."""
        body = {"spec": {"cluster": "beta", "uses": 2}}
        answer = decoded(self.ask("POST", f"{BASE}/jointokens", body))
        self.assertEqual(answer["metadata"]["name"], "beta")
        self.assertTrue(answer["status"]["token"])
        for code, wrong in ((422, {}), (422, {"spec": {"cluster": 1}}), (404, {"spec": {"cluster": "x"}})):
            self.refused(code, "POST", f"{BASE}/jointokens", wrong)
        self.refused(404, "POST", f"{BASE}/jointokens/x", body)
        self.refused(405, "PUT", f"{BASE}/jointokens")
        self.refused(404, "GET", f"{BASE}/jointokens/j-1/x")

    def test_pending_tokens(self) -> None:
        """Tokens and URLs that can still be used are listed without secrets, and deleted."""
        path = f"{BASE}/jointokens"
        made = decoded(self.ask("POST", path, {"spec": {"cluster": "beta", "uses": 2}}))["status"]
        self.clock.advance(1)
        url = decoded(self.ask("POST", path, {"spec": {"cluster": "beta", "manifest": {}}}))["status"]
        listed = self.get(path, fieldSelector="spec.cluster=beta")["items"]
        self.assertEqual([item["status"]["type"] for item in listed], ["token", "url"])
        self.assertEqual([item["status"]["remainingUses"] for item in listed], [2, 1])
        self.assertEqual(self.get(path, fieldSelector="spec.cluster=alpha")["items"], [])
        for secret in (made["token"], url["importURL"].rpartition("/")[2]):
            self.assertNotIn(secret, str(listed))
        rows = self.get(path, accept=TABLE)["rows"]
        self.assertEqual(rows[0]["cells"][1:4], ["beta", "token", 2])
        self.assertIn("left)", rows[0]["cells"][4])
        for item in listed:
            name = item["metadata"]["name"]
            self.assertEqual(self.get(f"{path}/{name}"), item)
            self.stays(f"{path}/{name}")
            self.assertEqual(self.get(f"{path}/{name}"), item)
            self.ask("DELETE", f"{path}/{name}")
            self.refused(404, "GET", f"{path}/{name}")
            self.refused(404, "DELETE", f"{path}/{name}")
        self.assertEqual(self.get(path)["items"], [])
        enrolling = self.tokens.enrol("beta", made["token"], "SHA256:x", b"key")
        self.assertIn("unknown join token", self.failureResultOf(enrolling, AgentRejected).value.reason)
