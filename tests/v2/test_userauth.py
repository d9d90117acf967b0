"""Tests of tower.v2.userauth."""

from __future__ import annotations

from typing import Any

from twisted.conch.ssh.common import NS
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.enrol import enrol_request
from tests.fakes.ssh_pairs import AGENT_KEY, Gate
from tower.clusters.agent_rejection import DISABLED, REVOKED, UNKNOWN_CLUSTER, AgentRejected
from tower.conch.transport.keys import KeyPair
from tower.errors import PeerError, Unauthorized
from tower.v2.enrol import Claim, publickey_request
from tower.v2.peers import NOTICES
from tower.v2.userauth import REQUESTS, UserAuthClient, UserAuthServer

SESSION = b"s" * 32
FAILED = (51, NS(b"publickey,enrol@tower.kubesphere.io") + b"\0")
DONE = (52, b"")


class Sent:
    """The part of a transport that the services use."""

    sessionID = SESSION

    def __init__(self) -> None:
        self.packets: list[tuple[int, bytes]] = []
        self.disconnects: list[tuple[int, bytes]] = []

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        """Record it."""
        self.packets.append((messageType, payload))

    def send_secret(self, kind: int, payload: bytearray) -> None:
        """Record it."""
        self.packets.append((kind, bytes(payload)))

    def sendDisconnect(self, reason: int, desc: bytes) -> None:
        """Record it."""
        self.disconnects.append((reason, desc))


def question(key: KeyPair = AGENT_KEY, algorithm: bytes = b"ssh-ed25519") -> bytes:
    """Return a publickey request without a signature."""
    head = NS(b"alpha") + NS(b"ssh-connection") + NS(b"publickey") + b"\0"
    return head + NS(algorithm) + NS(key.blob)


class UserAuthServerTests(SynchronousTestCase):
    """UserAuthServer."""

    def setUp(self) -> None:
        """Start a service that accepts one key and one token."""
        self.gate = Gate()
        self.gate.enrolled.add(("alpha", AGENT_KEY.fingerprint))
        self.gate.tokens["tower-good"] = "alpha"
        self.accepted: list[Claim] = []
        self.service = UserAuthServer(self.gate, 3, self.accepted.append)
        self.sent = Sent()
        transport: Any = self.sent
        self.service.transport = transport
        self.service.serviceStarted()

    def ask(self, *bodies: bytes) -> None:
        """Send authentication requests."""
        for body in bodies:
            self.service.packetReceived(50, body)

    def test_enrolled_key(self) -> None:
        """A signature of an enrolled key is enough."""
        self.ask(publickey_request(SESSION, "alpha", AGENT_KEY))
        self.assertEqual(self.sent.packets, [DONE])
        self.assertEqual(
            [(c.cluster, c.fingerprint) for c in self.accepted], [("alpha", AGENT_KEY.fingerprint)]
        )

    def test_token(self) -> None:
        """A token lets a new key in and the gate learns its blob."""
        key = KeyPair.generate()
        self.ask(enrol_request(SESSION, "alpha", key, "tower-good"))
        self.assertEqual(self.sent.packets, [DONE])
        self.assertEqual(self.gate.asked, [("token", "alpha", "tower-good", key.fingerprint)])

    def test_failures_look_alike(self) -> None:
        """All failures have the same answer, to the byte."""
        stranger = KeyPair.generate()
        forged = publickey_request(SESSION, "alpha", stranger).replace(stranger.blob, AGENT_KEY.blob)
        for body in (
            publickey_request(SESSION, "alpha", stranger),
            publickey_request(SESSION, "nowhere", AGENT_KEY),
            publickey_request(b"t" * 32, "alpha", AGENT_KEY),
            forged,
            enrol_request(SESSION, "alpha", stranger, "tower-bad"),
            enrol_request(SESSION, "nowhere", stranger, "tower-good"),
            NS(b"alpha") + NS(b"ssh-connection") + NS(b"password") + b"\0" + NS(b"secret"),
            question(algorithm=b"ssh-rsa"),
        ):
            self.setUp()
            self.ask(body)
            self.assertEqual((self.sent.packets, self.sent.disconnects), ([FAILED], []))
            self.assertEqual(len(self.service.refusals), 1)
            self.assertEqual(self.accepted, [])

    def test_the_log_knows(self) -> None:
        """The reason is kept for the log, and holds no token."""
        self.ask(enrol_request(SESSION, "alpha", AGENT_KEY, "tower-bad"))
        self.assertEqual([each.reason for each in self.service.refusals], ["the token is unknown"])

    def test_notices(self) -> None:
        """The owner of a key that is or was enrolled gets the reason, before a failure like any other."""
        proven = publickey_request(SESSION, "alpha", AGENT_KEY)
        unproven = publickey_request(b"t" * 32, "alpha", AGENT_KEY)
        for kind, text in ((DISABLED, b"disabled: "), (REVOKED, b"revoked: ")):
            self.setUp()
            self.gate.rejection = AgentRejected(kind, "for the log")
            self.ask(unproven, question(), enrol_request(SESSION, "alpha", AGENT_KEY, "tower-bad"))
            self.assertNotIn(53, [number for number, _ in self.sent.packets])
            self.service.refusals.clear()
            self.ask(proven)
            (number, banner), answer = self.sent.packets[-2:]
            self.assertEqual((number, answer), (53, FAILED))
            self.assertEqual(banner[4 : 4 + len(text)], text)
            self.assertEqual([each.kind for each in self.service.refusals], [kind])
        self.setUp()
        self.gate.rejection = AgentRejected(UNKNOWN_CLUSTER, "unknown cluster")
        self.ask(proven)
        self.assertEqual(self.sent.packets, [FAILED])

    def test_a_question_tells_nothing(self) -> None:
        """Asked whether a key would do, the answer is yes for any key."""
        stranger = KeyPair.generate()
        self.ask(question(), question(stranger))
        self.assertEqual([kind for kind, _ in self.sent.packets], [60, 60])
        self.assertEqual(self.sent.packets[1][1], NS(b"ssh-ed25519") + NS(stranger.blob))
        self.assertEqual(self.gate.asked, [])

    def test_tries(self) -> None:
        """The third failure ends the connection; a request with method none does not count."""
        bad = publickey_request(SESSION, "alpha", KeyPair.generate())
        none = NS(b"alpha") + NS(b"ssh-connection") + NS(b"none")
        self.ask(none, bad, none, bad)
        self.assertEqual(self.sent.packets, [FAILED] * 4)
        self.ask(bad)
        self.assertEqual(self.sent.disconnects, [(14, b"not authorized")])

    def test_endless_questions(self) -> None:
        """Unsigned requests are not failures, but limited."""
        self.ask(*[question()] * REQUESTS)
        with self.assertRaises(PeerError):
            self.ask(question())

    def test_verdicts_keep_order(self) -> None:
        """A request waits for the verdict about the one before it."""
        self.gate.pending = []
        good = publickey_request(SESSION, "alpha", AGENT_KEY)
        self.ask(publickey_request(SESSION, "alpha", KeyPair.generate()), good)
        self.assertEqual((self.sent.packets, len(self.gate.pending)), ([], 1))
        self.gate.pending[0].callback(False)
        self.assertEqual((self.sent.packets, len(self.gate.pending)), ([FAILED], 2))
        self.gate.pending[1].callback(True)
        self.assertEqual(self.sent.packets, [FAILED, DONE])
        self.assertEqual(len(self.accepted), 1)

    def test_only_one_success(self) -> None:
        """Requests that wait behind a success are not answered."""
        self.gate.pending = []
        good = publickey_request(SESSION, "alpha", AGENT_KEY)
        self.ask(good, good)
        self.gate.pending[0].callback(True)
        self.assertEqual((self.sent.packets, len(self.gate.pending)), ([DONE], 1))

    def test_too_many_at_once(self) -> None:
        """Requests that wait for a verdict are limited."""
        self.gate.pending = []
        self.ask(*[publickey_request(SESSION, "alpha", AGENT_KEY)] * 5)
        with self.assertRaises(PeerError):
            self.ask(publickey_request(SESSION, "alpha", AGENT_KEY))

    def test_verdict_after_the_end(self) -> None:
        """A verdict, good, bad or broken, that comes after the connection's end changes nothing."""
        for end in (True, False, RuntimeError("the store failed")):
            self.setUp()
            self.gate.pending = []
            self.ask(publickey_request(SESSION, "alpha", AGENT_KEY))
            self.service.serviceStopped()
            if isinstance(end, Exception):
                self.gate.pending[0].errback(end)
                self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
            else:
                self.gate.pending[0].callback(end)
            self.assertEqual((self.sent.packets, self.accepted), ([], []))

    def test_gate_breaks(self) -> None:
        """A gatekeeper that fails rejects all agents, is logged, and reveals no detail."""
        self.gate.pending = []
        self.ask(publickey_request(SESSION, "alpha", AGENT_KEY))
        self.gate.pending[0].errback(RuntimeError("disk full at /secret/path"))
        self.assertEqual(self.sent.disconnects, [(11, b"try again later")])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_malformed(self) -> None:
        """A request that is cut ends the connection."""
        self.ask(publickey_request(SESSION, "alpha", AGENT_KEY)[:-1])
        self.assertEqual([code for code, _ in self.sent.disconnects], [2])
        self.assertEqual(self.sent.packets, [])

    def test_other_messages(self) -> None:
        """Only authentication requests are allowed before authentication."""
        for kind in (51, 52, 80, 90, 94):
            with self.assertRaises(PeerError):
                self.service.packetReceived(kind, b"")


class UserAuthClientTests(SynchronousTestCase):
    """UserAuthClient."""

    def start(self, token: str | None) -> UserAuthClient:
        """Start a service; `events` records how it went."""
        self.events: list[str] = []
        service = UserAuthClient(
            "alpha",
            AGENT_KEY,
            token,
            lambda: self.events.append("in"),
            lambda notice: self.events.append(f"out {notice}".strip()),
        )
        self.sent = Sent()
        transport: Any = self.sent
        service.transport = transport
        service.serviceStarted()
        return service

    def test_key_first(self) -> None:
        """The key is tried first, with a token as well: the token may be spent long since."""
        service = self.start("tower-good")
        self.assertEqual(self.sent.packets, [(50, publickey_request(SESSION, "alpha", AGENT_KEY))])
        service.packetReceived(52, b"")
        self.assertEqual(self.events, ["in"])

    def test_token_next(self) -> None:
        """When the key is not enrolled the token is spent, once."""
        service = self.start("tower-good")
        service.packetReceived(*FAILED)
        self.assertEqual(
            self.sent.packets[1:], [(50, enrol_request(SESSION, "alpha", AGENT_KEY, "tower-good"))]
        )
        service.packetReceived(*FAILED)
        self.assertEqual((len(self.sent.packets), self.events), (2, ["out"]))

    def test_no_token(self) -> None:
        """Without a token a refused key is the end."""
        service = self.start(None)
        service.packetReceived(*FAILED)
        self.assertEqual(self.events, ["out"])

    def test_notice(self) -> None:
        """The token is not sent for a disabled cluster; the owner of a revoked key may have a new one."""
        service = self.start("tower-good")
        service.packetReceived(53, NS(NOTICES[DISABLED]) + NS(b""))
        service.packetReceived(*FAILED)
        self.assertEqual((len(self.sent.packets), self.events), (1, ["out disabled"]))
        service = self.start("tower-good")
        service.packetReceived(53, NS(NOTICES[REVOKED]) + NS(b""))
        service.packetReceived(53, NS(b"\xff: other") + NS(b""))
        service.packetReceived(*FAILED)
        service.packetReceived(*FAILED)
        self.assertEqual((len(self.sent.packets), self.events), (2, ["out revoked"]))

    def test_proxy_without_enrolment(self) -> None:
        """The token is not sent to a proxy that does not offer enrolment."""
        service = self.start("tower-good")
        service.packetReceived(51, NS(b"publickey,password") + b"\0")
        self.assertEqual((len(self.sent.packets), self.events), (1, ["out"]))

    def test_other_messages(self) -> None:
        """A banner is ignored; any other message is rejected."""
        service = self.start(None)
        service.packetReceived(53, NS(b"welcome") + NS(b""))
        for kind in (60, 80, 90):
            with self.assertRaises(PeerError):
                service.packetReceived(kind, b"")


class AwaitableGateTests(SynchronousTestCase):
    """Gates that fail through their Deferred."""

    def test_unauthorized_later(self) -> None:
        """A refusal through a Deferred is a refusal like any other."""

        class Later(Gate):
            def is_enrolled(self, cluster: str, fingerprint: str) -> bool | Deferred[bool]:
                return fail(Unauthorized(reason="not now"))

        service = UserAuthServer(Later(), 3, lambda _: None)
        sent = Sent()
        transport: Any = sent
        service.transport = transport
        service.packetReceived(50, publickey_request(SESSION, "alpha", AGENT_KEY))
        self.assertEqual((sent.packets, service.refusals[0].reason), ([FAILED], "not now"))
