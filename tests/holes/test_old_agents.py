"""Holes 1 to 6, 11 to 14, 20, 23, 24 and 28, with agents of kubesphere-v1 at our proxy."""

from __future__ import annotations

import json
import random

from twisted.logger import LogLevel, capturedLogs, eventAsText

from tests.fakes.certificates import PUBLISHED
from tests.fakes.gateway import get
from tests.holes.case import OldAgentTestCase
from tests.holes.oldkit import MemoryOldAgent
from tests.holes.towerkit import AGENT_TOKEN, GOODBYE, KEEPALIVE, MemoryTower, done, status_of
from tower.errors import StreamRefused
from tower.store.kinds import KINDS
from tower.v1.config import AgentConfig
from tower.v1.warnings import AGENT_PROTOCOL

KEY = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleQ==\n-----END PRIVATE KEY-----\n"


class RightsTests(OldAgentTestCase):
    """Holes 1 to 6."""

    def test_hole_01_an_old_agent_opens_nothing(self) -> None:
        """Hole 1: an old agent's cluster requires a user as every other, and impersonates that user."""
        agent = self.old()
        for fields in ((), (b"Authorization: Bearer garbage",)):
            self.assertEqual(status_of(self.ask_alpha(*fields)), 401)
        for claim in (b"Impersonate-User: root", b"X-Remote-Group: system:masters"):
            self.assertEqual(status_of(self.ask_alpha(self.jane, claim)), 403)
        self.assertEqual(agent.dialed, [])
        self.ask_alpha(self.jane)
        asked = agent.servers[0].taken()
        self.assertIn(b"\r\nImpersonate-User: jane\r\nImpersonate-Group: dev\r\n", asked)
        self.assertEqual(asked.count(b"Authorization: Bearer %b\r\n" % AGENT_TOKEN.encode()), 1)
        self.assertNotIn(self.jane, asked)

    def test_hole_01_no_user_acts_as_the_system(self) -> None:
        """Hole 1: no user acts as a system identity with an old agent's rights."""
        agent = self.old()
        _, secret = done(self.tower.credentials.issue_token("alpha", "system:kube-x", ["system:masters"], 60))
        answer = self.ask_alpha(b"Authorization: Bearer " + secret.encode())
        self.assertEqual(status_of(answer), 403)
        self.assertNotIn(AGENT_TOKEN.encode(), answer)
        self.assertEqual([server.taken() for server in agent.servers], [])

    def test_hole_02_an_api_server_of_the_published_authority(self) -> None:
        """Hole 2: an agent whose API server's CA is published is refused, with the reason."""
        agent = self.old(authority=PUBLISHED.encode())
        self.assertIn("public", agent.refused or "")
        self.assertTrue(agent.gone)

    def test_hole_03_an_old_agent_is_reported(self) -> None:
        """Hole 3: an old agent verifies no proxy, which only its owner can change; log and condition warn."""
        with capturedLogs() as events:
            self.old()
        warnings = [eventAsText(event) for event in events if event["log_level"] is LogLevel.warn]
        self.assertEqual(len(warnings), 1)
        self.assertIn("without verifying this proxy", warnings[0])
        found = self.tower.clusters.require("alpha").condition(AGENT_PROTOCOL)
        assert found is not None
        self.assertEqual((found.status, found.reason), ("False", "KubeSphereV1"))
        self.assertIn("does not verify this proxy's key", found.message)

    def test_hole_03_old_agents_can_be_rejected(self) -> None:
        """Hole 3: with `--require-v2` an old agent is rejected before it sends anything."""
        strict = MemoryTower(store=self.tower.store, require_v2=True)
        self.addCleanup(strict.stop)
        agent = MemoryOldAgent(strict, token=self.token).start()
        self.assertTrue(agent.gone)
        self.assertFalse(agent.registered)
        self.assertEqual(agent.tunnel.bytes_out, 0)

    def test_hole_04_an_old_agent_has_nothing_dialed(self) -> None:
        """Hole 4: the channels that an old agent opens are refused, and no target is named but its two."""
        agent = self.old()
        connected = len(self.tower.machine.tcpClients)
        for kind in (b"kubesphere", b"direct-tcpip", b"session"):
            opening = agent.tunnel.open_channel(kind, b"127.0.0.1:6443")
            self.tower.pump()
            self.failureResultOf(opening, StreamRefused)
        self.assertEqual(len(self.tower.machine.tcpClients), connected)
        (tunnel,) = self.tower.tunnels.live("alpha")
        for target in ("127.0.0.1:22", "db", "169.254.169.254:80"):
            self.failureResultOf(tunnel.open(target), StreamRefused)
        self.assertEqual(agent.dialed, [])

    def test_hole_05_the_end_of_a_right(self) -> None:
        """Hole 5: token revoked, cluster disabled, cluster removed: each ends the tunnel, and its users."""
        (kept,) = self.tower.old_tokens.tokens("alpha")
        for end in (
            lambda: self.tower.old_tokens.revoke("alpha", kept.id),
            lambda: self.tower.clusters.set_enabled("alpha", False),
            lambda: self.tower.clusters.remove("alpha"),
        ):
            agent = self.old()
            user = self.tower.user()
            self.tower.ask(user, get(b"/clusters/alpha/api/v1/pods?watch=1", self.jane))
            agent.servers[0].deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.tower.pump()
            self.assertEqual(status_of(user.taken()), 200)
            end()
            self.tower.pump()
            self.assertEqual(self.tower.tunnels.live("alpha"), [])
            self.assertTrue(agent.gone and agent.servers[0].lost and user.lost)
            self.assertEqual(self.old().refused, "Unauthorized agent")
            if self.tower.clusters.get("alpha") is not None:
                done(self.tower.clusters.set_enabled("alpha", True))
                self.token = done(self.tower.old_tokens.mint("alpha"))

    def test_hole_06_tokens_of_old_agents(self) -> None:
        """Hole 6: their tokens are random, long, kept as digests, and none that is alike opens anything."""
        tokens = set()
        for _ in range(2):
            random.seed(1)
            tokens.add(done(self.tower.old_tokens.mint("alpha")))
        self.assertEqual(len(tokens), 2)
        kept = str([dict(r.value) for k in KINDS for r in self.tower.store.snapshot(k).values()])
        for token in (*tokens, self.token):
            self.assertGreaterEqual(len(token), 43)
            self.assertNotIn(token, kept)
            for almost in (token[:-1], token + "x", token.swapcase(), ""):
                self.assertEqual(self.old(token=almost).refused, "Unauthorized agent")


class TunnelTests(OldAgentTestCase):
    """Holes 11 to 16, 20, 23, 24 and 28: tunnels."""

    def test_hole_11_a_refusal_is_a_sign_of_life(self) -> None:
        """Hole 11: old agents refuse the proxy's probes, which shows that they live; a silent one is out."""
        self.old()
        self.tower.sweep(int(10 * KEEPALIVE))
        self.assertEqual(len(self.tower.tunnels.live("alpha")), 1)
        for line in self.tower.lines:
            line.frozen = True
        self.tower.sweep(int(3 * KEEPALIVE) + GOODBYE)
        self.assertEqual(self.tower.tunnels.live("alpha"), [])

    def test_hole_12_a_refused_agent_is_closed(self) -> None:
        """Hole 12: a refusal has a text, as an empty one is a yes to old agents, and then closes."""
        before = self.timers()
        for number in range(100):
            agent = self.old(token=f"wrong-{number}")
            self.assertEqual((agent.refused, agent.registered), ("Unauthorized agent", False))
            self.assertTrue(agent.gone)
        self.assert_nothing_left(before)

    def test_hole_12_and_23_an_invalid_config(self) -> None:
        """Holes 12 and 23: an invalid config is answered, closed, and logged without its content."""
        before = self.timers()
        good = AgentConfig(name="alpha", token=self.token, bearer=b"bearer-word", key=KEY).encode()
        with capturedLogs() as events:
            for config in (
                good[:-1],
                good.replace(b'"KeyData":"', b'"KeyData":"!'),
                good.replace(b'"Name":"alpha"', b'"Name":["alpha"]'),
                b"[" + good + b"]",
                good + b" " * 300_000,
            ):
                agent = MemoryOldAgent(self.tower, config).start()
                self.assertTrue(agent.gone)
                self.assertFalse(agent.registered)
                for secret in (self.token, "bearer-word", "c2VjcmV0LWtleQ", "c2VjcmV0"):
                    self.assertNotIn(secret, agent.refused or "")
            self.assert_nothing_left(before)
        text = "\n".join(map(eventAsText, events)) + repr(events)
        self.assertEqual(text.count("was rejected"), 2 * 5)  # as text and in the representation
        for secret in (self.token, "bearer-word", "YmVhcmVyLXdvcmQ", "c2VjcmV0LWtleQ", "BEGIN PRIVATE"):
            self.assertNotIn(secret, text)

    def test_hole_12_a_silent_agent(self) -> None:
        """Hole 12: an old agent that authenticates by SSH and never sends a config is closed after 10 s."""
        before = self.timers()
        agent = MemoryOldAgent(self.tower)
        self.patch(agent.ssh, "request", lambda *_: agent.ssh.answer)
        agent.start()
        self.assertFalse(agent.gone)
        self.tower.sweep(11)
        self.assertTrue(agent.gone)
        self.assert_nothing_left(before)

    def test_hole_13_an_end_at_any_point(self) -> None:
        """Hole 13: an old agent that goes anywhere before its config is answered breaks nothing."""
        before = self.timers()
        pump, self.tower.pump = self.tower.pump, lambda: None  # type: ignore[method-assign]
        limit, whole = 0, False
        while not whole:
            limit += 97
            agent = self.old()
            whole = self.tower.carry(limit)
            agent.line.lose()
            pump()
            self.tower.lines.clear()
        self.assertTrue(agent.registered)
        self.assertGreater(limit, 2000)
        self.tower.pump = pump  # type: ignore[method-assign]
        self.assert_nothing_left(before)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_hole_14_two_hundred_agents_of_one_cluster(self) -> None:
        """Hole 14: 200 old agents of one cluster at once are all registered, and nothing is mixed up."""
        before = self.tower.clusters.require("alpha")
        pump, self.tower.pump = self.tower.pump, lambda: None  # type: ignore[method-assign]
        agents = [self.old(bearer=b"word-%d" % number) for number in range(200)]
        pump()
        self.tower.pump = pump  # type: ignore[method-assign]
        self.assertTrue(all(agent.registered for agent in agents))
        self.assertEqual(len(self.tower.tunnels.live("alpha")), 200)
        self.assertEqual(self.tower.clusters.require("alpha").uid, before.uid)
        for _ in range(200):
            self.ask_alpha(self.jane)
        words = [agent.servers[0].taken().count(b"Bearer word-%d\r\n" % n) for n, agent in enumerate(agents)]
        self.assertEqual(words, [1] * 200)

    def test_hole_20_no_write_for_a_reconnect(self) -> None:
        """Hole 20: old agents that come and go make no key, no certificate and no record."""
        self.old()
        version = self.tower.store.version
        for _ in range(5):
            self.tower.lines[0].lose()
            self.tower.sweep(2)
            self.assertTrue(self.old().registered)
        self.assertEqual(self.tower.store.version, version)

    def test_hole_24_what_an_old_agent_sent_is_kept_nowhere(self) -> None:
        """Hole 24: neither records nor what is shown of a tunnel hold an old agent's token or credentials."""
        self.old()
        (tunnel,) = self.tower.tunnels.live("alpha")
        shown = repr(tunnel) + repr(vars(tunnel))
        for kind in KINDS:
            for record in self.tower.store.snapshot(kind).values():
                shown += record.name + json.dumps(dict(record.value))
        for secret in (self.token, AGENT_TOKEN):
            self.assertNotIn(secret, shown)

    def test_hole_28_a_restarted_proxy_knows_its_agents(self) -> None:
        """Hole 28: a restarted proxy accepts its old agents at once."""
        again = MemoryTower(store=self.tower.store)
        self.addCleanup(again.stop)
        self.assertTrue(MemoryOldAgent(again, token=self.token).start().registered)
