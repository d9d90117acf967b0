"""Tests of `tower.member.outgoing`."""

from __future__ import annotations

from typing import Any, cast

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tests.fakes.pipes import FakePipe
from tests.fakes.relay import request
from tests.fakes.streams import FakeIncoming, FakeStream
from tower.conch.connection.channel_open import Incoming
from tower.errors import StreamRefused, TunnelLost
from tower.kube.apiserver import APIServer
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy
from tower.member.outgoing import DIAL_LIMIT, Outgoing
from tower.member.policy.owner_gate import OwnerGate
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.member.stream_tally import REFUSALS
from tower.member.targets import Targets
from tower.member.unfinished_heads import UNUSED_LIMIT
from tower.net.budget import Budget
from tower.net.connecting import ConnectFailed
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.log_batch import FEW, PERIOD
from tower.tunnels.targets import Target


@define
class FakeMember:
    """An API server."""

    host: str = "10.0.0.1"
    port: int = 6443
    tls: object = "tls"
    server_name: str = "kubernetes"


API_SERVER = Upstream(b"", b"Host: kubernetes\r\n", b"Authorization: Bearer s3cret\r\n")


class OutgoingTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create an agent with one target, whose dials the test answers."""
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        self.dialed: list[Deferred[Any]] = []
        self.clock = Clock()
        member = FakeMember()
        self.outgoing = Outgoing(
            cast(ISocketReactor, self.clock),
            cast(APIServer, member),
            HeadPolicy(lambda: API_SERVER),
            Targets([Target("db", "10.0.0.5", 5432)]),
            Budget(1 << 20),
            connect=self.connect,
        )
        self.dialing = self.outgoing.for_tunnel()

    def test_unused_streams(self) -> None:
        """The number of streams that wait for a first request is limited, across all tunnels."""
        tunnels = [self.outgoing.for_tunnel() for _ in range(2)]
        waiting = [FakeStream() for _ in range(UNUSED_LIMIT - 1)]
        for stream in waiting:
            self.outgoing.unfinished.opened(stream)
        first = FakeIncoming(b"kubernetes")
        tunnels[0].accept(cast(Incoming, first))
        self.assertEqual(len(self.dialed), 1)
        for tunnel in tunnels:
            refused = FakeIncoming(b"kubernetes")
            tunnel.accept(cast(Incoming, refused))
            assert refused.refusal is not None
            self.assertEqual(refused.refusal[0], "busy")
            self.assertIn("512 streams", refused.refusal[1])
        tunnels[1].accept(cast(Incoming, FakeIncoming(b"db")))
        self.assertEqual(len(self.dialed), 2)
        self.dialed[0].errback(ConnectFailed("refused", "no"))
        tunnels[1].accept(cast(Incoming, FakeIncoming(b"kubernetes")))
        self.assertEqual(len(self.dialed), 3)
        self.outgoing.unfinished.done(waiting[0])
        tunnels[1].accept(cast(Incoming, FakeIncoming(b"kubernetes")))
        self.assertEqual(len(self.dialed), 4)

    def test_rejected_requests(self) -> None:
        """The log has the first rejected requests of a second, and the number and the last of the others."""
        lines = logged_lines(self)
        for number in range(1000):
            incoming = self.want(b"kubernetes")
            self.dialed[-1].callback(FakePipe())
            incoming.channel.deliver(request(b"X-Remote-User: u%d" % number))
            self.assertIn(b"HTTP/1.1 403 ", incoming.channel.taken())
        self.assertEqual(len(lines), FEW)
        self.clock.advance(PERIOD)
        *_, last = lines
        self.assertEqual(len(lines), FEW + 1)
        self.assertTrue(
            last.startswith(
                "992 more requests were rejected with 403 in the last 1 s, the last of them: rejected a "
            ),
            last,
        )

    def connect(self, reactor: Any, host: str, port: int, **options: Any) -> Deferred[Any]:
        """Be `tower.net.connecting.connect`."""
        self.asked.append((host, port, options))
        self.dialed.append(Deferred())
        return self.dialed[-1]

    def want(self, target: bytes, **options: Any) -> FakeIncoming:
        """Let the proxy request a stream."""
        incoming = FakeIncoming(target, **options)
        self.dialing.accept(cast(Incoming, incoming))
        return incoming

    def test_target(self) -> None:
        """A named target is dialed; bytes flow once it has answered, and not before."""
        incoming = self.want(b"db")
        self.assertEqual(self.asked[0][:2], ("10.0.0.5", 5432))
        self.assertNotIn("tls", self.asked[0][2])
        self.assertFalse(incoming.accepted)
        connection = FakePipe()
        self.dialed[0].callback(connection)
        self.assertTrue(incoming.accepted)
        incoming.channel.deliver(b"hello")
        self.assertEqual(connection.taken(), b"hello")
        connection.deliver(b"hi")
        self.assertEqual(incoming.channel.taken(), b"hi")
        self.assertEqual(self.outgoing.tally.dialed, 1)

    def test_owner_policy(self) -> None:
        """With an owner's policy, a target is dialed and kept open only while a rule permits it."""
        gate = OwnerGate("alpha", lambda: 0.0)
        self.outgoing = Outgoing(
            cast(ISocketReactor, self.clock),
            cast(APIServer, FakeMember()),
            HeadPolicy(lambda: API_SERVER),
            Targets([Target("db", "10.0.0.5", 5432)]),
            Budget(1 << 20),
            owner=gate,
            connect=self.connect,
        )
        self.dialing = self.outgoing.for_tunnel()
        refusal = self.want(b"db").refusal
        assert refusal is not None
        self.assertEqual(refusal[0], "not-allowed")
        self.assertIn("forbidden by the owner of cluster alpha", refusal[1])
        self.assertEqual(self.asked, [])
        gate.use(OwnerPolicy((OwnerRule(targets=("db",)), OwnerRule(access="read-only"))))
        incoming, request = self.want(b"db"), self.want(b"kubernetes")
        for dialed in self.dialed:
            dialed.callback(FakePipe())
        head = b"GET /api/v1/pods HTTP/1.1\r\nImpersonate-User: jane\r\nHost: h\r\n\r\n"
        request.channel.deliver(head)
        self.assertEqual(request.channel.taken(), b"")
        request.channel.deliver(head.replace(b"GET", b"DELETE"))
        self.assertIn(b"forbidden by the owner of cluster alpha", request.channel.taken())
        late = self.want(b"db")
        gate.use(OwnerPolicy((OwnerRule(access="read-only"),)))
        self.assertTrue(incoming.channel.aborted)
        with capturedLogs() as logs:
            self.dialed[-1].callback(FakePipe())
        self.assertTrue(late.channel.aborted)
        self.assertEqual(
            [log.get("text") for log in logs], ["no rule of the agent's policy permits streams to db"]
        )

    def test_kubernetes(self) -> None:
        """The API server is dialed with TLS, and requests are checked and get the credential."""
        incoming = self.want(b"kubernetes")
        host, port, options = self.asked[0]
        self.assertEqual((host, port), ("10.0.0.1", 6443))
        self.assertEqual((options["tls"], options["server_hostname"]), ("tls", "kubernetes"))
        connection = FakePipe()
        self.dialed[0].callback(connection)
        incoming.channel.deliver(b"GET /api HTTP/1.1\r\nImpersonate-User: jane\r\nHost: h\r\n\r\n")
        self.assertEqual(
            connection.taken(),
            b"GET /api HTTP/1.1\r\nImpersonate-User: jane\r\nHost: kubernetes\r\n"
            b"Authorization: Bearer s3cret\r\n\r\n",
        )

    def test_kubernetes_is_never_raw(self) -> None:
        """Data that is not a request does not reach the API server."""
        incoming = self.want(b"kubernetes")
        connection = FakePipe()
        self.dialed[0].callback(connection)
        incoming.channel.deliver(b"GET /api HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(connection.taken(), b"")
        self.assertIn(b"403", incoming.channel.taken())

    def test_not_allowed(self) -> None:
        """Targets that the owner did not configure are rejected without being dialed."""
        for target, code in (
            (b"other", "no-such-target"),
            (b"10.0.0.5:5432", "not-allowed"),
            (b"", "not-allowed"),
        ):
            incoming = self.want(target)
            assert incoming.refusal is not None
            self.assertEqual(incoming.refusal[0], code)
        self.assertEqual((self.asked, self.outgoing.tally.refused), ([], 3))

    def test_malformed(self) -> None:
        """Other channel types and broken names are refused."""
        for options in (
            {"kind": b"session"},
            {"kind": b"direct-tcpip"},
            {"data": b""},
            {"data": b"\0\0\0\x09db"},
            {"data": b"\0\0\0\x02db\0"},
            {"data": b"\0\0\0\x02\xff\xfe"},
        ):
            incoming = self.want(b"db", **options)
            assert incoming.refusal is not None
            self.assertEqual(incoming.refusal[0], "not-allowed", options)
        self.assertEqual(self.asked, [])

    def test_unreachable(self) -> None:
        """Why the target was not reached goes to the proxy."""
        for kind in ("refused", "unreachable", "timeout", "name", "tls"):
            incoming = self.want(b"kubernetes")
            self.dialed[-1].errback(ConnectFailed(kind, "10.0.0.1:6443: connection refused"))
            self.assertEqual(incoming.refusal, (kind, "10.0.0.1:6443: connection refused"))

    def test_on_dialed(self) -> None:
        """The result of each connection to the API server is passed on, those of other targets are not."""
        results: list[object] = []
        self.outgoing.on_dialed = results.append
        self.want(b"db")
        self.dialed[-1].errback(ConnectFailed("refused", "no"))
        error = ConnectFailed("timeout", "late")
        for result in (FakePipe(), error, CancelledError()):
            self.want(b"kubernetes")
            if isinstance(result, Exception):
                self.dialed[-1].errback(result)
            else:
                self.dialed[-1].callback(result)
        self.assertEqual(results, [None, error])

    def test_mistake(self) -> None:
        """A mistake of ours is logged, and the proxy is not left waiting."""
        incoming = self.want(b"db")
        self.dialed[0].errback(ZeroDivisionError("oops"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        assert incoming.refusal is not None
        self.assertEqual(incoming.refusal[0], "failed")

    def test_limit(self) -> None:
        """Concurrent dials of one tunnel are limited."""
        for _ in range(DIAL_LIMIT):
            self.assertIsNone(self.want(b"db").refusal)
        refused = self.want(b"db").refusal
        assert refused is not None
        self.assertEqual(refused[0], "busy")
        self.dialed[0].callback(FakePipe())
        self.assertIsNone(self.want(b"db").refusal)
        self.assertEqual(len(self.asked), DIAL_LIMIT + 1)

    def test_tunnel_gone(self) -> None:
        """When the tunnel goes, what is being dialed for it is given up; other tunnels' is not."""
        other = self.outgoing.for_tunnel()
        other.accept(cast(Incoming, FakeIncoming(b"db")))
        incoming = self.want(b"db")
        self.dialing.lost(TunnelLost("x"))
        self.assertTrue(self.dialed[1].called)
        self.assertFalse(self.dialed[0].called)
        self.assertEqual((incoming.refusal, incoming.accepted), (None, False))

    def test_too_late(self) -> None:
        """A connection that is no longer needed is closed."""
        for error in (TunnelLost("gone"), StreamRefused("busy", "too many")):
            incoming = self.want(b"db")
            incoming.error = error
            connection = FakePipe()
            connection.receiver = cast(Any, Silent())
            self.dialed[-1].callback(connection)
            self.assertTrue(connection.aborted)
        self.assertEqual(incoming.refusal, ("busy", "too many"))

    def test_flood(self) -> None:
        """A limited number of rejections is logged; the others are counted and logged later."""
        with capturedLogs() as events:
            for _ in range(2 * int(REFUSALS)):
                self.assertIsNotNone(self.want(b"other").refusal)
        self.assertEqual(len(events), REFUSALS)
        self.clock.advance(1.5)
        with capturedLogs() as events:
            self.want(b"other")
        self.assertEqual([e.get("unlogged") for e in events], [int(REFUSALS), None])
        self.assertEqual(self.outgoing.tally.refused, 2 * REFUSALS + 1)


class Silent:
    """A receiver that does not care."""

    def closed(self, reason: Exception) -> None:
        """Nothing to do."""
