"""Tests of the limits that `tower.web.gateway.http_channel` has for unauthenticated connections."""

from __future__ import annotations

from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, Jane, Kit, get, ok
from tower.errors import Forbidden, Unauthorized
from tower.net.connection import ConnectionEnded
from tower.net.pipes import Buffer
from tower.net.tls.connection import CertificateRejected, TLSFailed
from tower.reactor.log_batch import FEW
from tower.web.gateway.gateway import RequestLimits
from tower.web.gateway.http_channel import TURN, HTTPChannel
from tower.web.gateway.memory_loan import ALLOWANCE
from tower.web.gateway.request import Request
from tower.web.gateway.user_session import NOTICE
from tower.web.outcome import Outcome, Response

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
TOKEN = b"Authorization: Bearer good"


def front_door(request: Request) -> Outcome:
    """Answer probes, and requests with the good token, as the filter chain does."""
    if request.target != b"/healthz":
        if request.fields.bearer != b"good":
            raise Unauthorized("no valid credential", "no such token")
        jane: Any = Jane()
        request.identity = jane
        request.channel.authenticated = request.fields.bearer, jane
        request.channel.prove()
    return Response(200, b"ok\n", ())


def probe(*fields: bytes) -> bytes:
    """Return a public request."""
    return get(b"/healthz", *fields)


class KitTestCase(SynchronousTestCase):
    """Tests with a gateway behind `front_door`."""

    def setUp(self) -> None:
        """Make it."""
        self.kit = Kit(front_door)
        self.user = self.kit.user

    def channel(self, user: FakeUser) -> HTTPChannel:
        """Return the receiver of a connection."""
        assert isinstance(user.receiver, HTTPChannel)
        return user.receiver

    def answers(self, user: FakeUser) -> list[int]:
        """Return the status codes that a user got since the last call."""
        return [int(part[:3]) for part in user.taken().split(b"HTTP/1.1 ")[1:]]

    def known(self) -> FakeUser:
        """Return a new authenticated connection."""
        user = self.kit.connect()
        user.deliver(get(b"/", TOKEN))
        self.assertEqual(self.answers(user), [200])
        return user


class TurnTests(KitTestCase):
    """Pipelined requests are served in turns."""

    def test_one_at_a_time(self) -> None:
        """An unauthenticated connection is paused and has one request served per turn."""
        self.user.deliver(probe() * 3)
        self.assertEqual(self.answers(self.user), [200])
        self.assertTrue(self.user.paused)
        self.user.deliver(probe())
        self.channel(self.user).take_turn()
        self.assertEqual(self.answers(self.user), [200])
        self.assertTrue(self.user.paused)
        self.kit.take_turns()
        self.assertEqual(self.answers(self.user), [200, 200])
        self.assertFalse(self.user.paused)

    def test_known(self) -> None:
        """An authenticated connection has some more served per turn."""
        user = self.known()
        user.deliver(get(b"/", TOKEN) * (TURN + 1))
        self.assertEqual(self.answers(user), [200] * TURN)
        self.kit.take_turns()
        self.assertEqual(self.answers(user), [200])

    def test_single(self) -> None:
        """A single request, or one that arrives after its predecessor's answer, does not wait for a turn."""
        for _ in range(3):
            self.user.deliver(probe())
            self.assertEqual(self.answers(self.user), [200])
            self.assertFalse(self.user.paused)
        self.assertEqual(self.kit.clock.getDelayedCalls(), [])

    def test_relayed(self) -> None:
        """Pipelined requests to a cluster are sent one after the other, as the answers arrive."""
        kit = Kit()
        kit.user.deliver(get(b"/clusters/alpha/a") + get(b"/clusters/alpha/b") * 2)
        for number in range(3):
            self.assertEqual(len(kit.requests), number + 1)
            kit.pipe.deliver(ok())
        self.assertEqual(kit.user.taken().count(b"HTTP/1.1 200 OK"), 3)

    def test_dead(self) -> None:
        """No request is served on a closed connection."""
        self.user.deliver(probe() * 3000)
        self.user.lose()
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 1)
        self.assertEqual(self.kit.gateway.connections, 0)
        self.assertEqual(self.kit.gateway.unproven.held, 0)

    def test_dies_meanwhile(self) -> None:
        """No request is served on a connection whose loss is found while answering."""

        def send(data: Buffer) -> bool:
            self.user.lose()
            return True

        self.user.deliver(probe() * 3000)
        self.patch(self.user, "send", send)
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 2)

    def test_does_not_read(self) -> None:
        """No request is served while the user does not read."""
        self.user.deliver(probe() * 5)
        self.user.full = True
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 2)
        self.user.drain()
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 5)

    def test_end_behind(self) -> None:
        """A user who half-closes after pipelined requests gets all answers."""
        self.user.deliver(probe() * 3)
        self.user.end()
        self.kit.take_turns()
        self.assertEqual(self.answers(self.user), [200] * 3)
        self.assertTrue(self.user.closing)

    def test_bodies(self) -> None:
        """Bodies between requests, of known length or chunked, are attributed correctly."""
        kit = Kit(lambda request: request.body().addCallback(lambda body: Response(200, body)))
        chunked = get(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=b"1\r\na\r\n0\r\n\r\n")
        sized = get(b"/", b"Content-Length: 3", method=b"PUT", body=b"abc")
        kit.user.deliver((chunked + b"\r\n" + sized) * 3 + get(b"/"))
        kit.take_turns()
        bodies = [answer.partition(b"\r\n\r\n")[2] for answer in kit.user.taken().split(b"HTTP/1.1 200 OK")]
        self.assertEqual(bodies[1:], [b"a", b"abc"] * 3 + [b""])

    def test_stopping(self) -> None:
        """Requests that wait for their turn at a stop are dropped, after complete answers."""
        self.user.deliver(probe() * 3)
        self.kit.gateway.stop(5.0)
        self.kit.take_turns()
        self.assertEqual(self.answers(self.user), [200])
        self.assertTrue(self.user.closing)


class PatienceTests(KitTestCase):
    """A client that does not read has 10 s if unauthenticated, else an hour."""

    def test_stalled(self) -> None:
        """The unauthenticated connection is cut, with its pipelined requests."""
        self.user.full = True
        self.user.deliver(probe() * 2)
        self.kit.sweep(10)
        self.assertFalse(self.user.aborted)
        self.kit.sweep(1)
        self.assertTrue(self.user.aborted)

    def test_known(self) -> None:
        """The authenticated connection is kept."""
        user = self.known()
        user.full = True
        user.deliver(get(b"/", TOKEN) * 2)
        self.kit.sweep(3600)
        self.assertFalse(user.aborted)


class MemoryTests(KitTestCase):
    """Unauthenticated connections have their own budget."""

    def setUp(self) -> None:
        """Make a budget of 20,000 B."""
        super().setUp()
        self.kit.gateway.unproven.capacity = 20_000

    def hold(self, size: int) -> FakeUser:
        """Connect without a credential and send *size* B of a head, beyond the allowance."""
        user = self.kit.connect()
        user.deliver(HEAD.ljust(size + ALLOWANCE, b"x"))
        return user

    def test_own(self) -> None:
        """An incomplete head is unauthenticated; the budget of users is not used."""
        user = self.hold(15_000)
        self.assertEqual((self.kit.gateway.unproven.held, self.kit.gateway.budget.lent), (15_000, 0))
        user.lose()
        self.assertEqual(self.kit.gateway.unproven.held, 0)

    def test_little_is_free(self) -> None:
        """Ordinary heads need no budget."""
        users = [self.hold(0) for _ in range(100)]
        self.assertEqual(self.kit.gateway.unproven.held, 0)
        self.assertFalse(any(user.closing for user in users))

    def test_the_newcomer_gets_through(self) -> None:
        """When it is used up, the largest borrower is answered 503 and closed; the new one is served."""
        hostile = [self.hold(6_000) for _ in range(3)]
        self.kit.sweep(1)
        jane = self.hold(3_000)
        self.assertEqual([user.closing for user in hostile], [True, False, False])
        self.assertIn(b"short of memory", hostile[0].taken())
        jane.deliver(b"\r\n" + TOKEN + b"\r\n\r\n")
        self.assertEqual(self.answers(jane), [200])
        self.assertEqual(self.kit.gateway.unproven.held, 12_000)

    def test_pipelined(self) -> None:
        """Pipelined bytes of an unauthenticated connection count too."""
        user = self.kit.connect()
        user.deliver(probe() * 1000)
        self.assertEqual(self.answers(user), [200, 503])
        self.assertTrue(user.closing)
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 1)

    def test_known(self) -> None:
        """An authenticated connection borrows from the budget of users, for its next heads too."""
        user = self.known()
        user.deliver(HEAD.ljust(15_000 + ALLOWANCE, b"x"))
        self.assertEqual((self.kit.gateway.unproven.held, self.kit.gateway.budget.lent), (0, 15_000))
        user.deliver(b"\r\n" + TOKEN + b"\r\n\r\n")
        self.assertEqual(self.answers(user), [200])
        self.assertEqual(self.kit.gateway.budget.lent, 0)

    def test_moves(self) -> None:
        """Bytes that arrived with the authenticating head move from one budget to the other."""
        kit = Kit()
        kit.tunnel.at_once = False
        head = get(b"/clusters/alpha/x", b"Content-Length: 100000", method=b"PUT")
        kit.user.deliver(head[:-4].ljust(9_000, b" "))
        self.assertEqual(kit.gateway.unproven.held, 9_000 - ALLOWANCE)
        kit.user.deliver(b"\r\n\r\n" + b"a" * 10_000)
        self.assertEqual(kit.gateway.unproven.held, 0)
        self.assertEqual(kit.gateway.budget.lent, 10_000 - ALLOWANCE)
        kit.user.lose()
        self.assertEqual(kit.gateway.budget.lent, 0)

    def test_back_again(self) -> None:
        """A wrong credential later makes the connection unauthenticated again."""
        user = self.known()
        user.deliver(get(b"/", b"Authorization: Bearer bad"))
        self.assertEqual(self.answers(user), [401])
        user.deliver(HEAD.ljust(15_000 + ALLOWANCE, b"x"))
        self.assertEqual((self.kit.gateway.unproven.held, self.kit.gateway.budget.lent), (15_000, 0))

    def test_evicted_behind_a_body(self) -> None:
        """Too many bytes after a body are answered 503, whatever the router decided about the body."""
        kit = Kit(lambda request: request.body().addCallback(lambda body: Response(200, body)))
        kit.gateway.unproven.capacity = 20_000
        kit.user.deliver(get(b"/", b"Content-Length: 10", method=b"PUT", body=b"abc"))
        kit.user.deliver(b"d" * 7 + b"x" * 30_000)
        self.assertEqual(self.answers(kit.user), [503])
        self.assertTrue(kit.user.closing)
        self.assertEqual(kit.gateway.unproven.held, 0)

    def test_known_and_no_more(self) -> None:
        """An authenticated connection gives everything back when its next bytes exceed the budget."""
        user = self.known()
        self.kit.gateway.budget.capacity = 10_000
        user.deliver(HEAD.ljust(5_000 + ALLOWANCE, b"x"))
        self.assertEqual(self.kit.gateway.budget.lent, 5_000)
        user.deliver(b"x" * 6_000)
        self.assertEqual(self.answers(user), [503])
        self.assertEqual(self.kit.gateway.budget.lent, 0)


class AgeTests(KitTestCase):
    """An unauthenticated connection has a lifetime of 2 minutes."""

    def serve(self, user: FakeUser, seconds: int, request: bytes) -> list[bytes]:
        """Send a request each second; return the answers until there are no more."""
        answers = []
        for _ in range(seconds):
            self.kit.sweep(1)
            if user.closing:
                break
            user.deliver(request)
            answers.append(user.taken())
        return answers

    def test_probes(self) -> None:
        """Repeated health checks end with `Connection: close` in time."""
        answers = self.serve(self.user, 1000, probe())
        self.assertEqual(len(answers), 120 - NOTICE + 1)
        self.assertTrue(self.user.closing)
        self.assertNotIn(b"Connection: close", b"".join(answers[:-1]))
        self.assertIn(b"\r\nConnection: close\r\n", answers[-1])
        self.assertTrue(answers[-1].endswith(b"ok\n"))

    def test_rejected(self) -> None:
        """So do repeated 401s."""
        answers = self.serve(self.user, 1000, get(b"/"))
        self.assertEqual(len(answers), 120 - NOTICE + 1)
        self.assertIn(b"\r\nConnection: close\r\n", answers[-1])

    def test_silent(self) -> None:
        """A connection without a request in the last seconds closes at the end of its lifetime."""
        self.serve(self.user, 100, probe())
        self.kit.sweep(20)
        self.assertFalse(self.user.closing)
        self.kit.sweep(1)
        self.assertTrue(self.user.closing)

    def test_under_way(self) -> None:
        """A request whose head has begun is answered, not cut."""
        self.serve(self.user, 110 - 1, probe())
        self.kit.sweep(11)
        self.user.deliver(probe()[:10])
        self.kit.sweep(5)
        self.assertFalse(self.user.closing)
        self.user.deliver(probe()[10:])
        self.assertIn(b"\r\nConnection: close\r\n", self.user.taken())

    def test_known(self) -> None:
        """A connection with a valid credential is kept, for any further requests."""
        user = self.known()
        self.assertEqual(len(self.serve(user, 500, probe())), 500)
        self.assertEqual(len(self.serve(user, 500, get(b"/", TOKEN))), 500)

    def test_known_at_last(self) -> None:
        """So is one that authenticates at the last moment."""
        self.serve(self.user, 100, probe())
        self.kit.sweep(15)
        self.user.deliver(get(b"/", TOKEN))
        self.assertNotIn(b"Connection: close", self.user.taken())
        self.assertEqual(len(self.serve(self.user, 200, get(b"/", TOKEN))), 200)

    def test_wrong_later(self) -> None:
        """A connection that fails authentication after a long authenticated time closes at once."""
        user = self.known()
        self.serve(user, 500, get(b"/", TOKEN))
        user.deliver(get(b"/"))
        self.assertIn(b"\r\nConnection: close\r\n", user.taken())
        self.assertTrue(user.closing)

    def test_open_ports(self) -> None:
        """On a port without authentication, every connection counts as authenticated."""
        kit = Kit(limits=RequestLimits(answer=120))
        kit.user.deliver(get())
        kit.sweep(119)
        kit.pipe.deliver(ok())
        self.assertNotIn(b"Connection: close", kit.user.taken())
        kit.sweep(100)
        self.assertFalse(kit.user.closing)


class LogTests(KitTestCase):
    """Log lines of unauthenticated requests are summarized."""

    def log(self, user: FakeUser, request: bytes, times: int) -> list[str]:
        """Return the lines that requests cause within a second."""
        with capturedLogs() as events:
            for _ in range(times):
                user.deliver(request)
            self.kit.clock.advance(1.0)
        return [str(formatEvent(event)) for event in events]

    def test_summary(self) -> None:
        """A thousand requests with 401 in a second are a few lines: the first ones, and a count."""
        lines = self.log(self.user, get(b"/"), 1000)
        self.assertEqual(len(lines), FEW + 1, lines[:20])
        self.assertRegex(lines[0], r"^request [-0-9a-f]{36} from 192\.0\.2\.7: 401 no such token$")
        last = self.kit.requests[-1].request_id
        self.assertEqual(
            lines[-1],
            f"{1000 - FEW} more requests were rejected with 401 in the last 1 s, the last of them: "
            f"request {last} from 192.0.2.7: 401 no such token",
        )
        self.assertEqual(len(self.log(self.user, get(b"/"), 1000)), FEW + 1)

    def test_certificates(self) -> None:
        """A thousand client certificates that TLS rejects are a few lines; other failures are not logged."""
        reason = "certificate verify failed: self-signed certificate"
        with capturedLogs() as events:
            for error in (
                TLSFailed("http request"),
                ConnectionEnded(),
                *[CertificateRejected(reason)] * 1000,
            ):
                self.kit.connect().lose(error)
            self.kit.clock.advance(1.0)
        lines = [str(formatEvent(event)) for event in events]
        self.assertEqual(len(lines), FEW + 1, lines[:20])
        self.assertEqual(
            lines[0],
            f"client certificate from 192.0.2.7 rejected in the TLS handshake: {reason}: use a certificate "
            "for client authentication that Tower or a CA of --client-ca-file has issued",
        )
        self.assertIn(f"{1000 - FEW} more client certificates were rejected in the TLS handshake", lines[-1])
        self.assertEqual(self.kit.gateway.connections, 1)

    def test_known(self) -> None:
        """A rejection of an authenticated user has its own line."""

        def refuse(request: Request) -> Outcome:
            request.channel.prove()
            raise Forbidden("no")

        self.kit = Kit(refuse)
        self.assertEqual(len(self.log(self.kit.user, get(b"/"), 50)), 50)
