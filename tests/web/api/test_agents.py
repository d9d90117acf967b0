"""Tests for `tower.web.api.agents`."""

from __future__ import annotations

from typing import Any

from tests.fakes.api import BASE, TABLE, ApiTestCase
from tests.fakes.certificates import NOW
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.agent_keys import NEVER_CAME, LastAgent
from tower.clusters.v1_tokens import id_of_token
from tower.kube.timestamps import timestamp

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
        self.assertEqual(
            rows[1]["cells"][3:], ["192.0.2.1:1", "now", timestamp(NOW), "1.2.3", "4.2ms", "tower-v2"]
        )

    def test_without_tunnel(self) -> None:
        """A key without a tunnel has a row too, with the time of its removal if it was never used."""
        (row,) = self.get(AGENTS, accept=TABLE)["rows"]
        never = f"never; the key is removed at {timestamp(NOW + NEVER_CAME)}"
        self.assertEqual(
            row["cells"], [FINGERPRINT, "", timestamp(NOW), "", "never", never, "", "", "tower-v2"]
        )

    def test_lost(self) -> None:
        """A key whose agent was lost shows the host, address and version, and when it was last seen."""
        self.agent_keys.connected("alpha", FINGERPRINT)
        self.agent_keys.saw("alpha", FINGERPRINT, LastAgent("edge-1", "192.0.2.1:1", "1.2.3", NOW))
        self.clock.advance(60)
        (agent,) = self.get(AGENTS)["items"]
        last = {"host": "edge-1", "address": "192.0.2.1:1", "version": "1.2.3", "lastSeen": timestamp(NOW)}
        self.assertEqual(agent["status"], {"tunnels": [], **last})
        (row,) = self.get(AGENTS, accept=TABLE)["rows"]
        enrolled = timestamp(NOW)
        self.assertEqual(
            row["cells"],
            [FINGERPRINT, "edge-1", enrolled, "192.0.2.1:1", "60s ago", "", "1.2.3", "", "tower-v2"],
        )

    def test_frozen(self) -> None:
        """A live tunnel that does not answer shows the time of its last byte."""
        tunnel = FakeTunnel("alpha", FINGERPRINT)
        self.tunnels.add(tunnel)
        self.tunnels.note_silence(tunnel, 20.0)
        (row,) = self.get(AGENTS, accept=TABLE)["rows"]
        self.assertEqual(row["cells"][4], "20s ago")

    def test_one(self) -> None:
        """One agent, its fingerprint written for a path."""
        agent = self.get(f"{AGENTS}/SHA256:a_b-c")
        self.assertEqual((agent["kind"], agent["metadata"]["name"]), ("Agent", FINGERPRINT))

    def test_revoke(self) -> None:
        """A revoked key is not listed any more; revoking it again is NotFound; a dry run revokes none."""
        self.stays(f"{AGENTS}/SHA256:a_b-c")
        self.assertTrue(self.tokens.is_enrolled("alpha", FINGERPRINT))
        self.ask("DELETE", f"{AGENTS}/SHA256:a_b-c")
        self.assertEqual(self.get(AGENTS)["items"], [])
        self.assertFalse(self.tokens.is_enrolled("alpha", FINGERPRINT))
        refusal = self.refused(404, "DELETE", f"{AGENTS}/SHA256:a_b-c")
        self.assertEqual(refusal.details["kind"], "agents")

    def test_other_methods(self) -> None:
        """Agents cannot be created."""
        self.refused(405, "POST", AGENTS, {})
        self.refused(404, "GET", f"{AGENTS}/a/b")


class OldAgentTests(ApiTestCase):
    """Agents of kubesphere-v1, which are identified by their token."""

    def setUp(self) -> None:
        """Create two tokens, and two live tunnels with the first."""
        super().setUp()
        self.add("alpha")
        self.old, self.other = (
            id_of_token(self.successResultOf(self.v1_tokens.mint("alpha"))) for _ in range(2)
        )
        for number in range(2):
            peer = f"192.0.2.{number}:1"
            self.tunnels.add(FakeTunnel("alpha", self.old, peer=peer, protocol="kubesphere-v1"))

    def test_list(self) -> None:
        """A token is listed with the tunnels of all agents that sent it."""
        agents = {agent["metadata"]["name"]: agent for agent in self.get(AGENTS)["items"]}
        self.assertEqual(set(agents), {self.old, self.other})
        self.assertEqual(agents[self.old]["spec"], {"cluster": "alpha", "protocol": "kubesphere-v1"})
        self.assertEqual(
            [(tunnel["address"], tunnel["protocol"]) for tunnel in agents[self.old]["status"]["tunnels"]],
            [("192.0.2.0:1", "kubesphere-v1"), ("192.0.2.1:1", "kubesphere-v1")],
        )
        self.assertEqual(agents[self.other]["status"]["tunnels"], [])

    def test_table(self) -> None:
        """The table has a row for each tunnel, and one for a token without any, and names the protocol."""
        rows = [row["cells"] for row in self.get(AGENTS, accept=TABLE)["rows"]]
        self.assertEqual(sorted(row[0] for row in rows), sorted([self.old, self.old, self.other]))
        self.assertEqual({row[-1] for row in rows}, {"kubesphere-v1"})

    def test_beside_keys(self) -> None:
        """Keys and tokens of one cluster are in one list."""
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, FINGERPRINT, b"blob"))
        protocols = {
            agent["metadata"]["name"]: agent["spec"]["protocol"] for agent in self.get(AGENTS)["items"]
        }
        self.assertEqual(
            protocols,
            {FINGERPRINT: "tower-v2", self.old: "kubesphere-v1", self.other: "kubesphere-v1"},
        )

    def test_revoke(self) -> None:
        """A revoked token is rejected; the other one is accepted."""
        self.ask("DELETE", f"{AGENTS}/{self.old}")
        self.assertEqual([agent["metadata"]["name"] for agent in self.get(AGENTS)["items"]], [self.other])
        self.assertIsNotNone(self.v1_tokens.refusal("alpha", self.old))
        self.assertIsNone(self.v1_tokens.refusal("alpha", self.other))
        self.refused(404, "DELETE", f"{AGENTS}/{self.old}")

    def test_no_token_is_shown(self) -> None:
        """The list does not contain the secrets."""
        token = self.successResultOf(self.v1_tokens.mint("alpha"))
        self.assertNotIn(token, str(self.get(AGENTS)))
