"""Tests for `tower.web.agentapi`."""

from __future__ import annotations

from typing import Any

from tests.trust import NOW
from tests.web.apikit import BASE, TABLE, ApiTestCase, FakeTunnel
from tower.cluster import timestamp

AGENTS = f"{BASE}/clusters/alpha/agents"
FINGERPRINT = "SHA256:a/b+c"


class AgentTests(ApiTestCase):
    """Agents."""

    def setUp(self) -> None:
        """Enrol one agent."""
        super().setUp()
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, FINGERPRINT, b"blob"))

    def test_list(self) -> None:
        """Enrolled keys with their live tunnels."""
        for number in range(2):
            tunnel: Any = FakeTunnel("alpha", FINGERPRINT, peer=f"192.0.2.{number}:1")
            self.tunnels.add(tunnel)
        (agent,) = self.get(AGENTS)["items"]
        self.assertEqual(agent["metadata"]["name"], FINGERPRINT)
        self.assertEqual(
            [tunnel["address"] for tunnel in agent["status"]["tunnels"]], ["192.0.2.0:1", "192.0.2.1:1"]
        )
        rows = self.get(AGENTS, accept=TABLE)["rows"]
        self.assertEqual(rows[1]["cells"][0], FINGERPRINT)
        self.assertEqual(rows[1]["cells"][2:], ["192.0.2.1:1", timestamp(NOW), "1.2.3", "4.2ms"])

    def test_without_tunnel(self) -> None:
        """A key without a tunnel has a row too."""
        (row,) = self.get(AGENTS, accept=TABLE)["rows"]
        self.assertEqual(row["cells"], [FINGERPRINT, timestamp(NOW), "", "", "", ""])

    def test_one(self) -> None:
        """One agent, its fingerprint written for a path."""
        agent = self.get(f"{AGENTS}/SHA256:a_b-c")
        self.assertEqual((agent["kind"], agent["metadata"]["name"]), ("Agent", FINGERPRINT))

    def test_revoke(self) -> None:
        """A revoked key is gone; revoking it again says so."""
        self.ask("DELETE", f"{AGENTS}/SHA256:a_b-c")
        self.assertEqual(self.get(AGENTS)["items"], [])
        self.assertFalse(self.tokens.is_enrolled("alpha", FINGERPRINT))
        refusal = self.refused(404, "DELETE", f"{AGENTS}/SHA256:a_b-c")
        self.assertEqual(refusal.details["kind"], "agents")

    def test_other_methods(self) -> None:
        """Agents are not made here."""
        self.refused(405, "POST", AGENTS, {})
        self.refused(404, "GET", f"{AGENTS}/a/b")
