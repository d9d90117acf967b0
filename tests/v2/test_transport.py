"""Tests of `tower.v2.transport`: authentication, hellos, and the release of the parsing."""

from __future__ import annotations

import json
from functools import partial

from attrs import evolve
from twisted.conch.ssh.common import NS
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY, Gate, Mux, Pair, Wire
from tower import __version__
from tower.conch.connection.global_requests import RequestRefused, Unanswered
from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import Closed, HandshakeTimeout
from tower.errors import PeerError
from tower.kube.member_cures import REPORTED_TEXTS, cure_of
from tower.kube.member_status import API_SERVER, Check, MemberStatus
from tower.v2.hello import ANNOUNCE, AgentHello, Announcement, ProxyHello
from tower.v2.peers import AgentRefused, AuthenticationFailed, HostKeyMismatch
from tower.v2.transport import (
    CHECK_REQUEST,
    REPORTS,
    STATUS_REPORT,
    ClientTransport,
)
from tower.v2.userauth import UserAuthClient

TOKEN = "tower-SECRET"


STATUS = MemberStatus(Check("False", "Timeout", "no answer"), version="v1.36.2")


class AnnouncementTests(SynchronousTestCase):
    """Pins of the proxy, announced in a live tunnel."""

    def setUp(self) -> None:
        """Connect."""
        self.pair = Pair(keepalive=10)
        self.pair.connect()
        self.stored: list[Announcement] = []

    def announce(self, data: bytes) -> Deferred[bytes]:
        """Send an announcement; return the agent's answer."""
        answer = self.pair.server.request(ANNOUNCE, data)
        self.pair.pump()
        return answer

    def test_stored(self) -> None:
        """The agent answers with success once it has stored the announcement."""
        self.pair.client.on_announcement = self.stored.append
        announcement = Announcement((HOST_KEY.fingerprint,), ("sha256:" + "0" * 64,))
        self.successResultOf(self.announce(announcement.encode()))
        self.assertEqual(self.stored, [announcement])

    def test_not_stored(self) -> None:
        """An agent that cannot store it refuses, and keeps the tunnel."""
        self.failureResultOf(self.announce(Announcement().encode()), RequestRefused)
        self.assertEqual(self.pair.lost, {})

    def test_malformed(self) -> None:
        """A malformed announcement ends the connection."""
        self.pair.client.on_announcement = self.stored.append
        self.failureResultOf(self.announce(b'{"hostKeys": 1}'), Unanswered)
        self.assertIn(self.pair.client, self.pair.lost)
        self.assertEqual(self.stored, [])

    def test_from_an_agent(self) -> None:
        """A proxy refuses announcements: agents have nothing to announce."""
        answer = self.pair.client.request(ANNOUNCE, Announcement().encode())
        self.pair.pump()
        self.failureResultOf(answer, RequestRefused)


class HandshakeTests(SynchronousTestCase):
    """From the connection to `ready`."""

    def test_both_know_each_other(self) -> None:
        """Each end learns the identity and the hello of the other."""
        pair = Pair(keepalive=10)
        pair.connect()
        agent = self.successResultOf(pair.server.ready)
        self.assertEqual((agent.name, agent.fingerprint), ("alpha", AGENT_KEY.fingerprint))
        self.assertEqual(agent.hello, AgentHello(version="1", name="host", targets=("kubernetes",)))
        proxy = self.successResultOf(pair.client.ready)
        self.assertEqual((proxy.name, proxy.fingerprint), ("alpha", HOST_KEY.fingerprint))
        self.assertEqual(
            proxy.hello,
            ProxyHello(
                version=__version__,
                capabilities=("member-status",),
                host_keys=(HOST_KEY.fingerprint,),
                keepalive=10,
            ),
        )

    def test_enrolment(self) -> None:
        """A new agent with a token is accepted, and the next time without it."""
        gate = Gate()
        gate.tokens[TOKEN] = "alpha"
        first = Pair(gate=gate, token=TOKEN)
        first.connect()
        self.successResultOf(first.client.ready)
        gate.tokens.clear()
        for token in (None, TOKEN):
            again = Pair(gate=gate, token=token)
            again.connect()
            self.successResultOf(again.server.ready)

    def test_refused(self) -> None:
        """A rejected agent gets the cure; the proxy learns the reason, and logs no secret."""
        pair = Pair(gate=Gate(), token=TOKEN)
        pair.server.ready = Deferred()
        with capturedLogs() as events:
            pair.connect()
        self.assertIsInstance(pair.lost[pair.client], AgentRefused)
        self.assertIn("for a join line", str(pair.lost[pair.client]))
        self.assertEqual(str(pair.lost[pair.server]), 'the peer reports: "authentication rejected"')
        refused = self.failureResultOf(pair.server.ready, AuthenticationFailed).value
        assert isinstance(refused, AuthenticationFailed)
        self.assertEqual(refused.cluster, "alpha")
        self.assertIn("the token is unknown", str(refused))
        self.assertIn(AGENT_KEY.fingerprint, str(refused))
        self.assertNotIn("SECRET", str(refused))
        self.assertNotIn("SECRET", repr(events))

    def test_no_news(self) -> None:
        """A connection that comes and goes as it should is not logged."""
        pair = Pair(keepalive=10)
        with capturedLogs() as events:
            pair.connect()
            pair.client.start_rekey()
            pair.pump()
            pair.client.close("done")
            pair.pump()
        self.assertEqual([event for event in events if event["log_level"].name != "debug"], [])

    def test_ready_fails_with_the_reason(self) -> None:
        """`ready` fails with the reason."""
        for pair, error in (
            (Pair(gate=Gate()), AgentRefused),
            (Pair(pinned=(AGENT_KEY.fingerprint,)), HostKeyMismatch),
        ):
            pair.client.ready = Deferred()
            pair.connect()
            self.failureResultOf(pair.client.ready, error)

    def test_keys_that_are_pinned(self) -> None:
        """Any pinned key will do, so a key can be replaced by the next one."""
        coming = KeyPair.generate()
        pins = (HOST_KEY.fingerprint, coming.fingerprint)
        now = Pair(pinned=pins, host_keys=(HOST_KEY, coming))
        now.connect()
        proxy = self.successResultOf(now.client.ready)
        self.assertEqual(proxy.hello.host_keys, pins)
        later = Pair(pinned=pins, host_keys=(coming,))
        later.connect()
        self.assertEqual(self.successResultOf(later.client.ready).fingerprint, coming.fingerprint)

    def test_another_host_key(self) -> None:
        """A proxy with another key gets nothing: it does not even learn the cluster's name."""
        impostor = KeyPair.generate()
        gate = Gate()
        gate.tokens[TOKEN] = "alpha"
        pair = Pair(gate=gate, token=TOKEN, host_keys=(impostor,))
        pair.connect()
        error = pair.lost[pair.client]
        assert isinstance(error, HostKeyMismatch)
        self.assertEqual(error.fingerprint, impostor.fingerprint)
        self.assertIn("--host-key", str(error))
        self.assertEqual(gate.asked, [])
        self.assertEqual(str(pair.lost[pair.server]), 'the peer reports: "host key not accepted"')
        said = b"".join(data for end, data in pair.carried if end is pair.client)
        for secret in (b"alpha", TOKEN.encode(), AGENT_KEY.blob):
            self.assertNotIn(secret, said)

    def test_the_pinned_key_must_sign(self) -> None:
        """A proxy that shows the pinned public key without holding the private one is refused."""
        impostor = KeyPair.generate()
        pair = Pair(host_keys=(impostor,))
        impostor.conch_key.blob = lambda: HOST_KEY.blob  # type: ignore[method-assign]
        pair.connect()
        self.assertIn("did not sign", str(pair.lost[pair.client]))
        self.assertEqual(pair.gate.asked, [])

    def test_the_host_key_stays(self) -> None:
        """A change of keys with another host key, even a pinned one, fails."""
        other = KeyPair.generate()
        pair = Pair(pinned=(HOST_KEY.fingerprint, other.fingerprint))
        pair.connect()
        pair.server._host_key = other
        pair.server.start_rekey()
        pair.pump()
        self.assertIn("has changed since", str(pair.lost[pair.client]))

    def test_a_pin_is_mandatory(self) -> None:
        """There is no agent without a pinned key."""
        with self.assertRaises(ValueError):
            ClientTransport(Clock(), AGENT_KEY, "alpha", (), AgentHello())

    def test_slow_verdict(self) -> None:
        """A verdict that takes time is waited for, up to the deadline."""
        gate = Gate()
        gate.pending = []
        pair = Pair(gate=gate)
        pair.connect()
        pair.clock.advance(9)
        gate.pending[0].callback(True)
        pair.pump()
        self.successResultOf(pair.server.ready)
        gate.pending = []
        pair = Pair(gate=gate)
        pair.connect()
        pair.clock.advance(10)
        pair.pump()
        self.assertIsInstance(pair.lost[pair.server], HandshakeTimeout)
        gate.pending[0].callback(True)


class OrderTests(SynchronousTestCase):
    """Messages at the wrong time."""

    def secured(self) -> Pair:
        """Return a pair whose client has keys and sends only the test's messages."""
        pair = Pair()
        pair.client.secured = lambda: None  # type: ignore[method-assign]
        pair.connect()
        self.assertTrue(pair.client.isEncrypted("both"))
        return pair

    def say(self, pair: Pair, *payloads: bytes) -> str:
        """Let the client send it; return why the server closed, or an empty text."""
        for payload in payloads:
            pair.wire(pair.client).write(pair.client.sealer.seal(payload))
        pair.pump()
        return str(pair.lost.get(pair.server, ""))

    def test_other_services(self) -> None:
        """There is one service to request, once."""
        self.assertIn("no such service", self.say(self.secured(), b"\5" + NS(b"ssh-connection")))
        twice = b"\5" + NS(b"ssh-userauth")
        pair = self.secured()
        self.assertEqual(self.say(pair, twice), "")
        self.assertIn("no such service", self.say(pair, twice))

    def test_requests_before_authentication(self) -> None:
        """Global requests and channels before authentication end the connection."""
        service = b"\5" + NS(b"ssh-userauth")
        for payload in (b"\x50" + NS(b"hello@tower.kubesphere.io") + b"\1{}", b"\x5a" + NS(b"session")):
            self.assertIn("before authentication", self.say(self.secured(), service, payload))

    def test_service_without_request(self) -> None:
        """A second SERVICE_ACCEPT makes no sense to a client."""
        pair = Pair()
        pair.connect()
        pair.wire(pair.server).write(pair.server.sealer.seal(b"\6" + NS(b"ssh-userauth")))
        pair.pump()
        self.assertIn("not requested", str(pair.lost[pair.client]))

    def test_channel_before_the_hello(self) -> None:
        """A channel before there is anything to take it ends the connection."""
        pair = Pair()
        pair.connect()
        self.assertIn("before the hello", self.say(pair, b"\x5a" + NS(b"x")))

    def test_malformed_hello(self) -> None:
        """An invalid hello ends the connection, on either side."""
        pair = Pair()
        pair.client._hello = AgentHello(version="\n")
        pair.connect()
        self.assertIn("version is not printable text", str(pair.lost[pair.server]))
        pair = Pair()
        pair.server._answer = ProxyHello(keepalive=-1).encode()
        pair.connect()
        self.assertIn("keepalive", str(pair.lost[pair.client]))

    def test_second_hello(self) -> None:
        """A second hello is refused and changes nothing."""
        pair = Pair()
        pair.connect()
        again = pair.client.request(b"hello@tower.kubesphere.io", json.dumps({"name": "other"}).encode())
        pair.pump()
        self.failureResultOf(again, RequestRefused)
        self.assertEqual(self.successResultOf(pair.server.ready).hello.name, "host")

    def test_no_hello(self) -> None:
        """An agent that never sends a hello is disconnected at the deadline."""
        pair = Pair()
        pair.client._accepted = lambda: None  # type: ignore[method-assign]
        auth = pair.client.auth
        assert isinstance(auth, UserAuthClient)
        auth._succeeded = lambda: None
        pair.connect()
        self.assertNoResult(pair.server.ready)
        pair.clock.advance(10)
        pair.pump()
        self.assertIsInstance(pair.lost[pair.server], HandshakeTimeout)

    def test_unanswered_hello(self) -> None:
        """A proxy that refuses the hello is not a Tower proxy."""
        pair = Pair()
        pair.server.connection.answers = {}
        pair.connect()
        self.assertIn("does not answer the hello", str(pair.lost[pair.client]))


class LiveTests(SynchronousTestCase):
    """After `ready`."""

    def test_keepalives(self) -> None:
        """Both ends probe at once and have a round trip; both give a dead peer up."""
        pair = Pair(keepalive=10)
        pair.connect()
        self.assertEqual((pair.server.round_trip, pair.client.round_trip), (0.0, 0.0))
        for _ in range(5):
            pair.clock.advance(10)
            pair.pump()
        self.assertEqual(pair.lost, {})
        pair.clock.pump([10] * 3)
        pair.lose()
        for end in pair.ends:
            self.assertIsInstance(pair.lost[end], PeerDead)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_no_life_by_rekeying(self) -> None:
        """Our own change of keys is not a sign of the peer's life."""
        pair = Pair(keepalive=10)
        pair.connect()
        for _ in range(3):
            pair.server.start_rekey()
            pair.clock.advance(10)
        self.assertTrue(pair.wire(pair.server).disconnecting)

    def test_drain(self) -> None:
        """Either side can announce that it will close."""
        for index in (0, 1):
            pair = Pair()
            pair.connect()
            both = (pair.server, pair.client)
            told: Deferred[None] = Deferred()
            both[1 - index].on_drain = partial(told.callback, None)
            both[index].drain()
            pair.pump()
            self.successResultOf(told)
            self.assertEqual(pair.lost, {})
            pair.lose()
            both[index].drain()

    def test_mux(self) -> None:
        """Channel messages go to the mux, both ways."""
        pair = Pair()
        pair.connect()
        pair.server.connection.mux = proxy = Mux()
        pair.client.connection.mux = agent = Mux()
        pair.server.sendPacket(94, b"down")
        pair.client.sendPacket(94, b"up")
        pair.pump()
        self.assertEqual(agent.got, [(94, b"\x5edown")])
        self.assertEqual(proxy.got, [(94, b"\x5eup")])

    def test_taking_over(self) -> None:
        """After a release in `ready` the caller gets the unparsed bytes, exactly."""
        for cut in (1, 7, 100_000):
            pair = Pair()
            for end in pair.ends:
                end.makeConnection(Wire())
            released: list[bytes] = []

            def take_over(_: object, pair: Pair = pair, released: list[bytes] = released) -> None:
                released.append(pair.server.release())

            pair.server.ready.addCallback(take_over)
            while not released:
                data = pair.wire(pair.client).value()
                pair.wire(pair.client).clear()
                if pair.client.service is pair.client.connection:  # data holds the hello
                    data += pair.client.sealer.seal(b"\x50" + NS(b"x") + b"\0")
                    data += pair.client.sealer.seal(b"\x5echannel data")[:-3]
                for start in range(0, len(data), cut):
                    if released:
                        released.append(data[start : start + cut])
                    else:
                        pair.server.dataReceived(data[start : start + cut])
                pair.client.dataReceived(pair.wire(pair.server).value())
                pair.wire(pair.server).clear()
            opener, rest = pair.server.opener, bytearray().join(released)
            length = opener.wire_length(rest, 0)
            payload = opener.open(rest[:length])
            del rest[:length]
            self.assertEqual(payload, b"\x50" + NS(b"x") + b"\0")
            pair.server.dispatch(memoryview(payload))
            self.assertEqual(opener.wire_length(rest, 0), len(rest) + 3)
            self.assertFalse(pair.wire(pair.server).disconnecting)

    def test_rekey_through_dispatch(self) -> None:
        """After a release the caller drives changes of keys with `dispatch`, and reads the new opener."""
        pair = Pair()
        pair.connect()
        self.assertEqual(pair.server.release(), b"")
        before = pair.server.opener
        pair.client.start_rekey()
        for _ in range(3):
            data = bytearray(pair.wire(pair.client).value())
            pair.wire(pair.client).clear()
            while data:
                length = pair.server.opener.wire_length(data, 0)
                payload = pair.server.opener.open(data[:length])
                del data[:length]
                pair.server.dispatch(memoryview(payload))
            reply = pair.wire(pair.server).value()
            pair.wire(pair.server).clear()
            if reply:
                pair.client.dataReceived(reply)
        self.assertIsNot(pair.server.opener, before)
        self.assertFalse(pair.server.in_key_exchange)
        self.assertEqual(pair.lost, {})

    def test_a_mux_that_finds_a_mistake(self) -> None:
        """A PeerError of the mux ends the connection with its text."""

        class Strict(Mux):
            def message(self, kind: int, payload: memoryview) -> None:
                raise PeerError("no such channel")

        pair = Pair()
        pair.connect()
        pair.server.connection.mux = Strict()
        pair.client.sendPacket(94, b"x")
        pair.pump()
        self.assertEqual(str(pair.lost[pair.server]), "no such channel")

    def test_close(self) -> None:
        """A closed end reports that it was closed."""
        pair = Pair()
        pair.connect()
        pair.client.loseConnection()
        pair.pump()
        self.assertIsInstance(pair.lost[pair.client], Closed)


class CheckRequestTests(SynchronousTestCase):
    """Requests for a check of the agent's API server."""

    def test_request(self) -> None:
        """The agent gets at most one a second, and none after the end."""
        pair = Pair()
        checks: list[float] = []
        pair.connect()
        pair.client.on_check_request = lambda: checks.append(pair.clock.seconds())
        for _ in range(40):
            pair.server.request_check()
            pair.pump()
            pair.clock.advance(0.1)
        self.assertEqual(len(checks), 4)
        self.assertEqual(pair.lost, {})
        pair.client.close("done")
        pair.pump()
        pair.clock.advance(2)
        pair.server.request_check()
        self.assertEqual(len(checks), 4)

    def test_old_agent(self) -> None:
        """An agent that does not know the request ignores it."""
        pair = Pair()
        pair.connect()
        answers = dict(pair.client.connection.answers)
        del answers[CHECK_REQUEST]
        pair.client.connection.answers = answers
        pair.server.request_check()
        pair.pump()
        self.assertEqual(pair.lost, {})


class MemberStatusTests(SynchronousTestCase):
    """Reports about the agent's API server."""

    def setUp(self) -> None:
        """Connect a pair, and record the reports."""
        self.pair = Pair()
        self.reports: list[MemberStatus] = []
        self.pair.connect()
        self.pair.server.on_member_status = self.reports.append

    def test_report(self) -> None:
        """The proxy gets the agent's reports; there is no answer."""
        self.pair.client.report(STATUS)
        self.pair.client.report(MemberStatus())
        self.pair.carried.clear()
        self.pair.pump()
        check = Check(
            "False",
            "Timeout",
            'the agent of alpha reports: "no answer"',
            cure_of(API_SERVER, "Timeout", REPORTED_TEXTS),
        )
        self.assertEqual(self.reports, [evolve(STATUS, api_server=check), MemberStatus()])
        self.assertEqual([end for end, _ in self.pair.carried], [self.pair.client])

    def test_limit(self) -> None:
        """An agent that reports too often is disconnected."""
        for _ in range(int(REPORTS)):
            self.pair.client.report(STATUS)
        self.pair.pump()
        self.assertEqual(len(self.reports), REPORTS)
        self.pair.clock.advance(2)
        self.pair.client.report(STATUS)
        self.pair.pump()
        self.assertEqual(self.pair.lost, {})
        self.pair.client.report(STATUS)
        self.pair.pump()
        self.assertIsInstance(self.pair.lost[self.pair.server], PeerError)
        self.assertIn("too many member statuses", str(self.pair.lost[self.pair.server]))

    def test_invalid(self) -> None:
        """An invalid report ends the connection."""
        for data in (
            b"",
            b"[]",
            b"{",
            b'{"apiServer":1}',
            b'{"version":"\\u001b"}',
            b"[" * 9000,
            b" " * 20_000,
        ):
            self.setUp()
            self.pair.client.request(STATUS_REPORT, data, want_reply=False)
            self.pair.pump()
            self.assertIsInstance(self.pair.lost[self.pair.server], PeerError)
            self.assertIn("member status", str(self.pair.lost[self.pair.server]))
            self.assertEqual(self.reports, [])

    def test_before_the_hello(self) -> None:
        """A report before the hello ends the connection."""
        pair = Pair()

        def early() -> None:
            pair.client.start_connection()
            pair.client.report(STATUS)

        pair.client.auth._succeeded = early  # type: ignore[union-attr]
        pair.connect()
        self.assertIn("before the hello", str(pair.lost[pair.server]))

    def test_after_the_end(self) -> None:
        """A report after the end of the connection is dropped."""
        self.pair.client.close("done")
        self.pair.pump()
        self.pair.client.report(STATUS)
        self.assertEqual(self.reports, [])

    def test_old_proxy(self) -> None:
        """A proxy without the capability refuses the request and keeps the connection."""
        answers = dict(self.pair.server.connection.answers)
        del answers[STATUS_REPORT]
        self.pair.server.connection.answers = answers
        self.pair.client.report(STATUS)
        self.pair.pump()
        self.assertEqual((self.pair.lost, self.reports), ({}, []))
