"""Tests of what `tower.web.gateway.http_channel` grants to strangers, who have shown no valid credential."""

from __future__ import annotations

from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, Jane, Kit, get, ok
from tower.errors import Forbidden, Unauthorized
from tower.net.pipes import Buffer
from tower.reactor.log_batch import FEW
from tower.web.gateway.http_channel import TURN, HTTPChannel
from tower.web.gateway.memory_loan import ALLOWANCE
from tower.web.gateway.request import Request
from tower.web.gateway.user_session import NOTICE
from tower.web.outcome import Outcome, Response

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
TOKEN = b"Authorization: Bearer good"


def door(request: Request) -> Outcome:
    """Answer probes, and those with the good token; as the chain does."""
    if request.target != b"/healthz":
        if request.fields.bearer != b"good":
            raise Unauthorized("no valid credential", "no such token")
        jane: Any = Jane()
        request.identity = jane
        request.channel.authenticated = request.fields.bearer, jane
        request.channel.prove()
    return Response(200, b"ok\n", ())


def probe(*fields: bytes) -> bytes:
    """Return what anybody may ask."""
    return get(b"/healthz", *fields)


class KitTestCase(SynchronousTestCase):
    """Has a gateway with a `door`."""

    def setUp(self) -> None:
        """Open it."""
        self.kit = Kit(door)
        self.user = self.kit.user

    def channel(self, user: FakeUser) -> HTTPChannel:
        """Return the receiver of a connection."""
        assert isinstance(user.receiver, HTTPChannel)
        return user.receiver

    def answers(self, user: FakeUser) -> list[int]:
        """Return the codes of what a user got since the last call."""
        return [int(part[:3]) for part in user.taken().split(b"HTTP/1.1 ")[1:]]

    def known(self) -> FakeUser:
        """Return a new connection whose user has shown the token."""
        user = self.kit.connect()
        user.deliver(get(b"/", TOKEN))
        self.assertEqual(self.answers(user), [200])
        return user


class TurnTests(KitTestCase):
    """Pipelined requests are served in turns."""

    def test_one_at_a_time(self) -> None:
        """A stranger has one request served; the others wait while he is not read, for a turn each."""
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
        """Whoever is known has some more served in a turn."""
        user = self.known()
        user.deliver(get(b"/", TOKEN) * (TURN + 1))
        self.assertEqual(self.answers(user), [200] * TURN)
        self.kit.take_turns()
        self.assertEqual(self.answers(user), [200])

    def test_single(self) -> None:
        """A single request, or one that comes when its predecessor is answered, waits for no turn."""
        for _ in range(3):
            self.user.deliver(probe())
            self.assertEqual(self.answers(self.user), [200])
            self.assertFalse(self.user.paused)
        self.assertEqual(self.kit.clock.getDelayedCalls(), [])

    def test_relayed(self) -> None:
        """Pipelined requests to a cluster go there one after the other, as the answers come."""
        kit = Kit()
        kit.user.deliver(get(b"/clusters/alpha/a") + get(b"/clusters/alpha/b") * 2)
        for number in range(3):
            self.assertEqual(len(kit.requests), number + 1)
            kit.pipe.deliver(ok())
        self.assertEqual(kit.user.taken().count(b"HTTP/1.1 200 OK"), 3)

    def test_dead(self) -> None:
        """Nothing is served to a connection that has gone."""
        self.user.deliver(probe() * 3000)
        self.user.lose()
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 1)
        self.assertEqual(self.kit.gateway.connections, 0)
        self.assertEqual(self.kit.gateway.unproven.held, 0)

    def test_dies_meanwhile(self) -> None:
        """Nor to one that turns out to be gone when it is answered."""

        def send(data: Buffer) -> bool:
            self.user.lose()
            return True

        self.user.deliver(probe() * 3000)
        self.patch(self.user, "send", send)
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 2)

    def test_does_not_read(self) -> None:
        """Nor to one that takes no more answers, until it does."""
        self.user.deliver(probe() * 5)
        self.user.full = True
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 2)
        self.user.drain()
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 5)

    def test_end_behind(self) -> None:
        """Whoever ends his side behind pipelined requests gets all answers."""
        self.user.deliver(probe() * 3)
        self.user.end()
        self.kit.take_turns()
        self.assertEqual(self.answers(self.user), [200] * 3)
        self.assertTrue(self.user.closing)

    def test_bodies(self) -> None:
        """Bodies in between, of known length or in chunks, are where they belong."""
        kit = Kit(lambda request: request.body().addCallback(lambda body: Response(200, body)))
        chunked = get(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=b"1\r\na\r\n0\r\n\r\n")
        sized = get(b"/", b"Content-Length: 3", method=b"PUT", body=b"abc")
        kit.user.deliver((chunked + b"\r\n" + sized) * 3 + get(b"/"))
        kit.take_turns()
        bodies = [answer.partition(b"\r\n\r\n")[2] for answer in kit.user.taken().split(b"HTTP/1.1 200 OK")]
        self.assertEqual(bodies[1:], [b"a", b"abc"] * 3 + [b""])

    def test_stopping(self) -> None:
        """What waits for its turn when the proxy stops is dropped, behind whole answers."""
        self.user.deliver(probe() * 3)
        self.kit.gateway.stop(5.0)
        self.kit.take_turns()
        self.assertEqual(self.answers(self.user), [200])
        self.assertTrue(self.user.closing)


class PatienceTests(KitTestCase):
    """A stranger who takes no answers has 10 s, others an hour."""

    def test_stalled(self) -> None:
        """The stranger is cut off, with what he pipelined."""
        self.user.full = True
        self.user.deliver(probe() * 2)
        self.kit.sweep(10)
        self.assertFalse(self.user.aborted)
        self.kit.sweep(1)
        self.assertTrue(self.user.aborted)

    def test_known(self) -> None:
        """Who is known stays."""
        user = self.known()
        user.full = True
        user.deliver(get(b"/", TOKEN) * 2)
        self.kit.sweep(3600)
        self.assertFalse(user.aborted)


class MemoryTests(KitTestCase):
    """What strangers keep comes from a budget of their own."""

    def setUp(self) -> None:
        """Have a budget of 20,000 B."""
        super().setUp()
        self.kit.gateway.unproven.capacity = 20_000

    def hold(self, size: int) -> FakeUser:
        """Have a stranger come who sends so much of a head, beyond what is free."""
        user = self.kit.connect()
        user.deliver(HEAD.ljust(size + ALLOWANCE, b"x"))
        return user

    def test_own(self) -> None:
        """A head that is not complete is a stranger's; the budget of users is left alone."""
        user = self.hold(15_000)
        self.assertEqual((self.kit.gateway.unproven.held, self.kit.gateway.budget.lent), (15_000, 0))
        user.lose()
        self.assertEqual(self.kit.gateway.unproven.held, 0)

    def test_little_is_free(self) -> None:
        """Heads as they usually are need no budget."""
        users = [self.hold(0) for _ in range(100)]
        self.assertEqual(self.kit.gateway.unproven.held, 0)
        self.assertFalse(any(user.closing for user in users))

    def test_the_newcomer_gets_through(self) -> None:
        """When it is used up, who keeps most is answered 503 and closed; the newcomer is served."""
        hostile = [self.hold(6_000) for _ in range(3)]
        self.kit.sweep(1)
        jane = self.hold(3_000)
        self.assertEqual([user.closing for user in hostile], [True, False, False])
        self.assertIn(b"short of memory", hostile[0].taken())
        jane.deliver(b"\r\n" + TOKEN + b"\r\n\r\n")
        self.assertEqual(self.answers(jane), [200])
        self.assertEqual(self.kit.gateway.unproven.held, 12_000)

    def test_pipelined(self) -> None:
        """What a stranger sends ahead counts as well."""
        user = self.kit.connect()
        user.deliver(probe() * 1000)
        self.assertEqual(self.answers(user), [200, 503])
        self.assertTrue(user.closing)
        self.kit.take_turns()
        self.assertEqual(len(self.kit.requests), 1)

    def test_known(self) -> None:
        """Who is known borrows from the budget of users, for his next heads too."""
        user = self.known()
        user.deliver(HEAD.ljust(15_000 + ALLOWANCE, b"x"))
        self.assertEqual((self.kit.gateway.unproven.held, self.kit.gateway.budget.lent), (0, 15_000))
        user.deliver(b"\r\n" + TOKEN + b"\r\n\r\n")
        self.assertEqual(self.answers(user), [200])
        self.assertEqual(self.kit.gateway.budget.lent, 0)

    def test_moves(self) -> None:
        """What came together with the head that proves who it is moves from one budget to the other."""
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
        """Who shows a wrong credential later is a stranger again."""
        user = self.known()
        user.deliver(get(b"/", b"Authorization: Bearer bad"))
        self.assertEqual(self.answers(user), [401])
        user.deliver(HEAD.ljust(15_000 + ALLOWANCE, b"x"))
        self.assertEqual((self.kit.gateway.unproven.held, self.kit.gateway.budget.lent), (15_000, 0))

    def test_evicted_behind_a_body(self) -> None:
        """Who sends too much behind the end of a body is answered 503, whatever was to become of the body."""
        kit = Kit(lambda request: request.body().addCallback(lambda body: Response(200, body)))
        kit.gateway.unproven.capacity = 20_000
        kit.user.deliver(get(b"/", b"Content-Length: 10", method=b"PUT", body=b"abc"))
        kit.user.deliver(b"d" * 7 + b"x" * 30_000)
        self.assertEqual(self.answers(kit.user), [503])
        self.assertTrue(kit.user.closing)
        self.assertEqual(kit.gateway.unproven.held, 0)

    def test_known_and_no_more(self) -> None:
        """Who is known gives all back when what he sends next is more than is left."""
        user = self.known()
        self.kit.gateway.budget.capacity = 10_000
        user.deliver(HEAD.ljust(5_000 + ALLOWANCE, b"x"))
        self.assertEqual(self.kit.gateway.budget.lent, 5_000)
        user.deliver(b"x" * 6_000)
        self.assertEqual(self.answers(user), [503])
        self.assertEqual(self.kit.gateway.budget.lent, 0)


class AgeTests(KitTestCase):
    """A stranger's connection lives for 2 minutes."""

    def serve(self, user: FakeUser, seconds: int, request: bytes) -> list[bytes]:
        """Ask once a second; return the answers until there are no more."""
        answers = []
        for _ in range(seconds):
            self.kit.sweep(1)
            if user.closing:
                break
            user.deliver(request)
            answers.append(user.taken())
        return answers

    def test_probes(self) -> None:
        """Who asks for the health page again and again is told in time that he has to come again."""
        answers = self.serve(self.user, 1000, probe())
        self.assertEqual(len(answers), 120 - NOTICE + 1)
        self.assertTrue(self.user.closing)
        self.assertNotIn(b"Connection: close", b"".join(answers[:-1]))
        self.assertIn(b"\r\nConnection: close\r\n", answers[-1])
        self.assertTrue(answers[-1].endswith(b"ok\n"))

    def test_rejected(self) -> None:
        """So is who is answered 401."""
        answers = self.serve(self.user, 1000, get(b"/"))
        self.assertEqual(len(answers), 120 - NOTICE + 1)
        self.assertIn(b"\r\nConnection: close\r\n", answers[-1])

    def test_silent(self) -> None:
        """Who says nothing in the last seconds is closed at the end of his time."""
        self.serve(self.user, 100, probe())
        self.kit.sweep(20)
        self.assertFalse(self.user.closing)
        self.kit.sweep(1)
        self.assertTrue(self.user.closing)

    def test_under_way(self) -> None:
        """A head that has begun is answered, not cut."""
        self.serve(self.user, 110 - 1, probe())
        self.kit.sweep(11)
        self.user.deliver(probe()[:10])
        self.kit.sweep(5)
        self.assertFalse(self.user.closing)
        self.user.deliver(probe()[10:])
        self.assertIn(b"\r\nConnection: close\r\n", self.user.taken())

    def test_known(self) -> None:
        """Who has shown a valid credential stays, whatever he asks for then."""
        user = self.known()
        self.assertEqual(len(self.serve(user, 500, probe())), 500)
        self.assertEqual(len(self.serve(user, 500, get(b"/", TOKEN))), 500)

    def test_known_at_last(self) -> None:
        """Whoever shows one at the last moment does too."""
        self.serve(self.user, 100, probe())
        self.kit.sweep(15)
        self.user.deliver(get(b"/", TOKEN))
        self.assertNotIn(b"Connection: close", self.user.taken())
        self.assertEqual(len(self.serve(self.user, 200, get(b"/", TOKEN))), 200)

    def test_wrong_later(self) -> None:
        """Who is rejected after having been known for long is told to come again at once."""
        user = self.known()
        self.serve(user, 500, get(b"/", TOKEN))
        user.deliver(get(b"/"))
        self.assertIn(b"\r\nConnection: close\r\n", user.taken())
        self.assertTrue(user.closing)

    def test_open_ports(self) -> None:
        """Where nobody is asked who he is, whoever is let in is no stranger."""
        kit = Kit()
        kit.user.deliver(get())
        kit.sweep(119)
        kit.pipe.deliver(ok())
        self.assertNotIn(b"Connection: close", kit.user.taken())
        kit.sweep(100)
        self.assertFalse(kit.user.closing)


class LogTests(KitTestCase):
    """What strangers cause to be logged is summed up."""

    def log(self, user: FakeUser, request: bytes, times: int) -> list[str]:
        """Return the lines that requests cause within a second."""
        with capturedLogs() as events:
            for _ in range(times):
                user.deliver(request)
            self.kit.clock.advance(1.0)
        return [str(formatEvent(event)) for event in events]

    def test_strangers(self) -> None:
        """A thousand requests that get 401 in a second are a few lines: the first, and how many more."""
        lines = self.log(self.user, get(b"/"), 1000)
        self.assertEqual(len(lines), FEW + 1, lines[:20])
        self.assertRegex(lines[0], r"^request [0-9a-f]{12} from 192\.0\.2\.7: 401 no such token$")
        last = self.kit.requests[-1].request_id
        self.assertEqual(
            lines[-1],
            f"{1000 - FEW} more requests were rejected with 401 in the last 1 s, the last of them: "
            f"request {last} from 192.0.2.7: 401 no such token",
        )
        self.assertEqual(len(self.log(self.user, get(b"/"), 1000)), FEW + 1)

    def test_known(self) -> None:
        """What is refused to somebody known has a line of its own."""

        def refuse(request: Request) -> Outcome:
            request.channel.prove()
            raise Forbidden("no")

        self.kit = Kit(refuse)
        self.assertEqual(len(self.log(self.kit.user, get(b"/"), 50)), 50)
