"""Tests of the proxy's end of an old agent's connection."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.v1_pairs import GOOD, TOKEN, TOKEN_ID, OldPair
from tower.conch.connection.global_requests import RequestRefused
from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.limits import HandshakeTimeout, TransportLimits
from tower.v1.config import SERVER_VERSION, AgentConfig
from tower.v1.server import V1Agent
from tower.v2.peers import AuthenticationFailed


class RegistrationTests(SynchronousTestCase):
    """Accepts and rejects configs."""

    def setUp(self) -> None:
        """Connect an old agent; it is authenticated and has sent nothing else."""
        self.pair = OldPair()
        self.pair.connect()

    def refused(self, data: bytes, name: bytes = b"config") -> str:
        """Return the text that the agent gets; behind it the connection is closed."""
        error = self.failureResultOf(self.pair.send(data, name), RequestRefused).value
        assert isinstance(error, RequestRefused)
        self.assertIn(self.pair.client, self.pair.lost)
        self.assertIn(self.pair.server, self.pair.lost)
        return error.reply.decode()

    def test_good(self) -> None:
        """A good config is answered with an empty success, and the agent is known."""
        self.assertEqual(self.successResultOf(self.pair.send(GOOD.encode())), b"")
        agent = self.successResultOf(self.pair.server.ready)
        assert isinstance(agent, V1Agent)
        self.assertEqual((agent.name, agent.fingerprint, agent.config), ("alpha", TOKEN_ID, GOOD))
        self.assertEqual(self.pair.client.otherVersionString, SERVER_VERSION)
        self.assertEqual(self.pair.server.otherVersionString, b"SSH-kubesphere-v1-client")

    def test_cut_anywhere(self) -> None:
        """Bytes may come one by one."""
        pair = OldPair()
        pair.cut = 1
        pair.connect()
        self.assertEqual(self.successResultOf(pair.send(GOOD.encode())), b"")

    def test_not_a_word_of_the_reason(self) -> None:
        """Unknown cluster and wrong token look alike to the agent; the log knows which it was."""
        carried = []
        for config, reason in (
            (AgentConfig(name="beta", token=TOKEN), "unknown cluster"),
            (AgentConfig(name="alpha", token="another-token"), "wrong token"),
        ):
            self.setUp()
            self.assertEqual(self.refused(config.encode()), "Unauthorized agent")
            assert isinstance(self.pair.refused, AuthenticationFailed)
            self.assertIn(reason, str(self.pair.refused))
            carried.append(str(self.pair.lost[self.pair.client]))
        self.assertEqual(*carried)
        self.assertNotIn("token", carried[0])

    def test_another_request_first(self) -> None:
        """An agent that begins with another request gets a refusal and is closed."""
        for name in (b"ping", b"keepalive@openssh.com", b"drain@tower.kubesphere.io"):
            self.setUp()
            self.assertEqual(self.refused(b"", name), "expecting config request")
            self.assertEqual(self.pair.gate.asked, [])

    def test_garbage(self) -> None:
        """An invalid config is refused with a text that names the error and quotes nothing."""
        for data, text in (
            (b"", "not JSON"),
            (b"\0\xff", "not JSON"),
            (b"[" * 100_000, "not JSON"),
            (b'["secret"]', "not a JSON object"),
            (json.dumps({"Name": "alpha", "Token": 7}).encode(), "Token"),
            (json.dumps({"Name": "alpha", "Token": TOKEN, "CertData": "secret!"}).encode(), "CertData"),
            (b" " * (255 * 1024) + b"{}", "limit"),
        ):
            self.setUp()
            said = self.refused(data)
            self.assertIn(text, said)
            self.assertNotIn("secret", said + str(self.pair.refused))

    def test_useless_credential(self) -> None:
        """An agent with an unusable credential gets the reason instead of a useless tunnel."""
        config = json.loads(GOOD.encode())
        for change in (
            {"BearerToken": "c2VjcmV0IHNlY3JldA=="},
            {"CertData": "c2VjcmV0"},
            {"CAData": "c2VjcmV0"},
            {"KubernetesSvcHost": "secret/443"},
        ):
            self.setUp()
            said = self.refused(json.dumps({**config, **change}).encode())
            self.assertTrue(said)
            self.assertNotIn("secret secret", said + str(self.pair.refused))
            self.assertNotEqual(said, "Unauthorized agent")

    def test_second_config(self) -> None:
        """A second config gets an answer, which old proxies never gave, and ends the connection."""
        self.pair.send(GOOD.encode())
        self.assertEqual(self.refused(GOOD.encode()), "this agent is registered already")

    def test_later_requests(self) -> None:
        """Pings are answered, and what is unknown is refused in one empty answer."""
        self.pair.send(GOOD.encode())
        self.assertEqual(self.successResultOf(self.pair.send(b"", b"ping")), b"")
        error = self.failureResultOf(self.pair.send(b"", b"tcpip-forward"), RequestRefused).value
        assert isinstance(error, RequestRefused)
        self.assertEqual(error.reply, b"")
        self.assertEqual(self.pair.lost, {})

    def test_flood_of_requests(self) -> None:
        """An agent that asks without end is dropped, and nothing of it is kept."""
        self.pair.send(GOOD.encode())
        for _ in range(300):
            self.pair.client.request(b"flood", want_reply=False).addErrback(lambda _: None)
        self.pair.pump()
        self.assertIn("too many", str(self.pair.lost[self.pair.server]))

    def test_nothing_unasked(self) -> None:
        """A request without want-reply is not answered: a reply would stop a Go program's connection."""
        self.pair.send(GOOD.encode())
        for name in (b"ping", b"config", b"unknown"):
            self.setUp()
            self.pair.send(GOOD.encode())
            self.pair.client.request(name, want_reply=False)
            self.pair.pump()
            reason = str(self.pair.lost.get(self.pair.client, ""))
            self.assertNotIn("a reply without a request", reason)


class DeadlineTests(SynchronousTestCase):
    """Every silence has an end."""

    def test_no_config(self) -> None:
        """An agent that never sends a config is dropped at the deadline."""
        pair = OldPair()
        pair.connect()
        pair.clock.advance(9.9)
        pair.pump()
        self.assertEqual(pair.lost, {})
        pair.clock.advance(0.2)
        pair.pump()
        self.assertIsInstance(pair.refused, HandshakeTimeout)

    def test_stopped_agent(self) -> None:
        """An agent that answers no probe is given up within three keepalives; a refusal is an answer."""
        pair = OldPair(keepalive=10.0)
        pair.connect()
        pair.send(GOOD.encode())
        for _ in range(20):
            pair.clock.advance(5)
            pair.pump()
        self.assertEqual(pair.lost, {})
        for _ in range(7):
            pair.clock.advance(5)
        pair.pump()
        self.assertIsInstance(pair.lost[pair.server], PeerDead)

    def test_lost_before_config(self) -> None:
        """A connection that ends before the config is not logged as our failure."""
        pair = OldPair()
        pair.connect()
        pair.lose()
        self.assertIsNotNone(pair.refused)


class AuthenticationTests(SynchronousTestCase):
    """Authentication without credentials."""

    def test_a_password(self) -> None:
        """Only an empty name and password is accepted, and the number of tries is limited."""
        pair = OldPair(limits=TransportLimits(tries=3))
        pair.client.asks.passwords = [b"one", b"two", b"three", b""]
        pair.connect()
        self.assertIn(pair.server, pair.lost)
        self.assertEqual(pair.gate.asked, [])

    def test_a_name(self) -> None:
        """An agent with a user name is rejected."""
        pair = OldPair()
        pair.client.asks.user = b"root"
        pair.connect()
        self.assertFalse(pair.server.connection.transport)
