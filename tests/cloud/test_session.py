"""Tests of `tower.cloud.session`, `tower.cloud.http.exchange` and `tower.cloud.http.answer`."""

from __future__ import annotations

import random
from email.utils import formatdate
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.logger import capturedLogs as captured_logs
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.cloud.asking import as_reactor
from tower import __version__
from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, error_detail, shorten
from tower.cloud.http.exchange import BODY_LIMIT, without_query
from tower.cloud.session import FIRST_WAIT, LONGEST_WAIT, CloudRequest, CloudSession
from tower.errors import ConfigurationError

NOW = 1_700_000_000.0


class Longest(random.Random):
    """Always chooses the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        """Return the end."""
        return b


class Cloud(Resource):
    """Returns the test's responses in order, and records requests.

    :ivar answers: code, fields of the head and body of each; None: no answer ever.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[int, dict[str, str], bytes] | None] = []
        self.asked: list[tuple[str, str, Headers, bytes]] = []
        self.waiting: list[Any] = []

    def say(self, code: int, body: bytes = b"", **fields: str) -> None:
        """Answer the next request so."""
        self.answers.append((code, {k.replace("_", "-"): v for k, v in fields.items()}, body))

    def render(self, request: Any) -> Any:
        """Answer."""
        body = request.content.read()
        self.asked.append((request.method.decode(), request.uri.decode(), request.requestHeaders, body))
        answer = self.answers.pop(0)
        if answer is None:
            self.waiting.append(request)
            return NOT_DONE_YET
        code, fields, content = answer
        request.setResponseCode(code)
        for name, value in fields.items():
            request.setHeader(name, value)
        return content


class SessionCase(SynchronousTestCase):
    """A session with a cloud in memory, on a clock."""

    def setUp(self) -> None:
        """Make both."""
        self.clock = Clock()
        self.cloud = Cloud()
        self.agent = RequestTraversalAgent(self.cloud)
        self.session = self.with_agent(self.agent)
        with captured_logs() as self.logs:
            pass

    def with_agent(self, agent: Any, **options: Any) -> CloudSession:
        """Return a session that asks an agent."""
        options = {"rng": Longest(), "now": lambda: NOW, **options}
        return CloudSession(as_reactor(self.clock), agent=agent, **options)

    def ask(
        self, url: str = "http://cloud.example/v1/things?key=hunter2", **options: Any
    ) -> Deferred[Answer]:
        """Send a request."""
        method = options.pop("method", "GET")
        session = options.pop("session", self.session)
        result: Deferred[Answer] = Deferred.fromCoroutine(session.request(method, url, **options))
        self.agent.flush()
        return result

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.agent.flush()

    def error(self, result: Deferred[Answer], kind: type[Exception] = CloudAnswerError) -> Any:
        """Return what a request failed with."""
        return self.failureResultOf(result, kind).value


class RequestTests(SessionCase):
    """One request."""

    def test_answer(self) -> None:
        """An answer has code, head and body."""
        self.cloud.say(200, b'{"a": [1]}', X_Thing="v")
        answer = self.successResultOf(self.ask())
        self.assertEqual((answer.code, answer.header("x-thing"), answer.json()), (200, "v", {"a": [1]}))
        self.assertIsNone(answer.header("x-other"))
        self.assertEqual(answer.text(), '{"a": [1]}')

    def test_sent(self) -> None:
        """Method, URL, head and body are sent unchanged, with the client's name."""
        self.cloud.say(201)
        url = "http://cloud.example/a%2Fb/?x=a%20b%2Bc&y=~"
        self.successResultOf(
            self.ask(url, method="POST", headers={"X-One": "1"}, body=b"abc", expect=(200, 201))
        )
        ((method, uri, headers, body),) = self.cloud.asked
        self.assertEqual((method, uri, body), ("POST", "/a%2Fb/?x=a%20b%2Bc&y=~", b"abc"))
        self.assertEqual(headers.getRawHeaders("x-one"), ["1"])
        self.assertEqual(headers.getRawHeaders("user-agent"), [f"kubesphere-tower/{__version__}"])
        self.assertEqual(headers.getRawHeaders("content-length"), ["3"])
        self.assertIsNone(headers.getRawHeaders("accept-encoding"))
        self.assertIsNone(headers.getRawHeaders("cookie"))

    def test_redirect(self) -> None:
        """A redirect is not followed: it is an unexpected response."""
        self.cloud.say(302, Location="http://169.254.169.254/latest/")
        self.assertEqual(self.error(self.ask()).code, 302)
        self.assertEqual(len(self.cloud.asked), 1)

    def test_bad_request(self) -> None:
        """A permanent error is raised at once, with the cloud's message and without the query."""
        self.cloud.say(403, b'{"error": {"code": 403, "message": "Not allowed", "errors": []}}')
        error = self.error(self.ask())
        self.assertEqual(str(error), "GET http://cloud.example/v1/things answered 403: Not allowed")
        self.assertEqual((error.code, error.detail), (403, "Not allowed"))
        self.assertIn(b"errors", error.body)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_json(self) -> None:
        """An invalid JSON body is an error without the body."""
        self.cloud.say(200, b"<html>hunter2")
        error = self.assertRaises(CloudError, self.successResultOf(self.ask()).json)
        self.assertEqual(
            str(error), "http://cloud.example/v1/things answered 200 with something that is not JSON"
        )
        deep = Answer(200, Headers(), b"[" * 100_000)
        self.assertRaises(CloudError, deep.json)

    def test_date(self) -> None:
        """The cloud's time is available."""
        self.cloud.say(200, Date=formatdate(NOW, usegmt=True))
        self.assertEqual(self.successResultOf(self.ask()).date, NOW)
        self.assertIsNone(Answer(200, Headers(), b"").date)

    def test_large(self) -> None:
        """A body over the limit is refused, one at the limit is not."""
        self.cloud.say(200, b"x" * BODY_LIMIT)
        self.assertEqual(len(self.successResultOf(self.ask()).body), BODY_LIMIT)
        self.cloud.say(200, b"x" * (BODY_LIMIT + 1))
        self.assertIn("the response has more than", str(self.error(self.ask(), CloudError)))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_not_a_url(self) -> None:
        """An invalid URL is not requested, and not shown whole."""
        for url in ("ftp://h/", "http://h/a b", "http://h/é", "", "http://u:hunter2@[h"):
            self.assertNotIn("hunter2", str(self.error(self.ask(url), CloudError)))
        self.assertEqual(self.cloud.asked, [])
        self.assertEqual(without_query("https://u:hunter2@h:1/p?q#f"), "https://h:1/p")

    def test_ipv6(self) -> None:
        """A URL may have an IPv6 address."""
        self.cloud.say(200)
        self.successResultOf(self.ask("http://[fd00:ec2::254]/latest/"))
        self.assertEqual(self.cloud.asked[0][2].getRawHeaders("host"), ["[fd00:ec2::254]"])


class RetryTests(SessionCase):
    """More than one attempt."""

    def test_again(self) -> None:
        """429 and most of 5xx are asked again, with waits that double, up to a longest one."""
        for code in (429, 500, 503, 504, 502):
            self.cloud.say(code)
        self.cloud.say(200, b"fine")
        result = self.ask(attempts=6)
        for n in range(5):
            self.assertEqual(len(self.cloud.asked), n + 1)
            self.wait(FIRST_WAIT * 2**n - 0.01)
            self.assertEqual(len(self.cloud.asked), n + 1)
            self.wait(0.01)
        self.assertEqual(self.successResultOf(result).body, b"fine")

    def test_longest_wait(self) -> None:
        """No wait is longer than the longest, but for one that the cloud wants."""
        session = self.with_agent(self.agent, attempts=12, deadline=10_000.0)
        for _ in range(12):
            self.cloud.say(500)
        result = self.ask(session=session)
        for _ in range(11):
            self.assertNoResult(result)
            self.wait(LONGEST_WAIT)
        self.assertEqual(self.error(result).code, 500)

    def test_jitter(self) -> None:
        """A delay is random, up to its limit."""
        waits = []

        class Chance(Longest):
            def uniform(self, a: float, b: float) -> float:
                waits.append((a, b))
                return 0.0

        self.cloud.say(500)
        self.cloud.say(200)
        result = self.ask(session=self.with_agent(self.agent, rng=Chance()))
        self.wait(0)
        self.successResultOf(result)
        self.assertEqual(waits, [(0.0, FIRST_WAIT)])

    def test_attempts(self) -> None:
        """After the last attempt its error is the answer."""
        for _ in range(5):
            self.cloud.say(503, b"busy")
        result = self.ask()
        self.wait(0)
        for _ in range(4):
            self.wait(LONGEST_WAIT)
        self.assertEqual(str(self.error(result)), "GET http://cloud.example/v1/things answered 503: busy")
        self.assertEqual(len(self.cloud.asked), 5)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_not_again(self) -> None:
        """Neither 4xx nor 501, nor anything that must not happen twice, is asked again."""
        for code in (400, 401, 403, 404, 409, 412, 501, 505):
            self.cloud.say(code)
            self.assertEqual(self.error(self.ask()).code, code)
        self.cloud.say(503)
        self.assertEqual(self.error(self.ask(retry=False)).code, 503)

    def test_more_reasons(self) -> None:
        """The caller can name more responses that are retried."""
        self.cloud.say(400, b"Throttling")
        self.cloud.say(400, b"Wrong")
        result = self.ask(again=lambda answer: b"Throttling" in answer.body)
        self.wait(FIRST_WAIT)
        self.assertEqual(self.error(result).detail, "Wrong")

    def test_retry_after(self) -> None:
        """The cloud may want a longer wait, in seconds."""
        self.cloud.say(429, Retry_After="7")
        self.cloud.say(200)
        result = self.ask()
        self.wait(6.9)
        self.assertNoResult(result)
        self.wait(0.1)
        self.successResultOf(result)

    def test_retry_after_date(self) -> None:
        """A date is relative to the cloud's clock, or to this machine's if the response has no date."""
        elsewhen = NOW - 86400
        self.cloud.say(
            503, Retry_After=formatdate(elsewhen + 9, usegmt=True), Date=formatdate(elsewhen, usegmt=True)
        )
        self.cloud.say(200)
        result = self.ask()
        self.wait(8.9)
        self.assertNoResult(result)
        self.wait(0.1)
        self.successResultOf(result)

        headers = Headers({"retry-after": [formatdate(NOW + 9, usegmt=True)]})
        agent = Scripted(Response(503, headers), Response(200))
        result = self.ask(session=self.with_agent(agent))
        self.wait(8.9)
        self.assertNoResult(result)
        self.wait(0.1)
        self.successResultOf(result)

    def test_retry_after_nonsense(self) -> None:
        """An invalid value is ignored."""
        for text in ("-5", "soon", "9" * 20, formatdate(0, usegmt=True)):
            self.cloud.say(503, Retry_After=text)
            self.cloud.say(200)
            result = self.ask()
            self.wait(FIRST_WAIT)
            self.successResultOf(result)

    def test_too_long(self) -> None:
        """When the wait would outlast the request, the error comes at once."""
        self.cloud.say(429, Retry_After="3600")
        self.assertEqual(self.error(self.ask()).code, 429)

    def test_signed_again(self) -> None:
        """Each attempt is signed separately, starting from the unsigned request."""
        seen = []

        def sign(request: CloudRequest) -> None:
            seen.append(dict(request.headers))
            request.headers["x-signature"] = str(len(seen))
            request.url += f"&n={len(seen)}"

        self.cloud.say(500)
        self.cloud.say(200)
        result = self.ask(headers=[("X-One", "1")], sign=sign)
        self.wait(FIRST_WAIT)
        self.successResultOf(result)
        self.assertEqual(seen, [{"x-one": "1"}, {"x-one": "1"}])
        signatures = [headers.getRawHeaders("x-signature") for _, _, headers, _ in self.cloud.asked]
        self.assertEqual(signatures, [["1"], ["2"]])
        self.assertEqual(self.cloud.asked[1][1], "/v1/things?key=hunter2&n=2")

    def test_signed_later(self) -> None:
        """Signing may take its time, and fail."""
        gate: Deferred[None] = Deferred()

        async def sign(request: CloudRequest) -> None:
            await gate
            request.headers["authorization"] = "Bearer x"

        self.cloud.say(200)
        result = self.ask(sign=sign)
        self.assertEqual(self.cloud.asked, [])
        gate.callback(None)
        self.agent.flush()
        self.successResultOf(result)

        async def fails(request: CloudRequest) -> None:
            raise CloudError("no credential")

        self.assertEqual(str(self.error(self.ask(sign=fails), CloudError)), "no credential")


class Response:
    """An answer without a server.

    :ivar lost: whether its reader closed the connection.
    """

    def __init__(self, code: int, headers: Headers | None = None, length: Any = UNKNOWN_LENGTH) -> None:
        self.code = code
        self.headers = headers or Headers()
        self.length = length
        self.protocol: Any = None
        self.lost = False

    def deliverBody(self, protocol: Any) -> None:
        """Begin the body; without a length it goes on until `end`."""
        self.protocol = protocol
        protocol.makeConnection(self)
        if self.length is UNKNOWN_LENGTH:
            self.end()

    def end(self, reason: type[Exception] = ResponseDone) -> None:
        """End the body."""
        self.protocol.connectionLost(Failure(reason()))

    def loseConnection(self) -> None:
        """See ITransport."""
        self.lost = True


@implementer(IAgent)
class Scripted:
    """Returns its results in order.

    :ivar cancelled: how many requests were given up.
    """

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.cancelled = 0

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        """Answer."""
        result = self.results.pop(0)
        if isinstance(result, Exception):
            return fail(result)
        return result if isinstance(result, Deferred) else succeed(result)

    def never(self) -> Deferred[Any]:
        """Return a response that never arrives; cancelled, it fails with another error, as Agent's do."""

        def cancel(answer: Deferred[Any]) -> None:
            self.cancelled += 1
            answer.errback(Refused("the connection was cut"))

        return Deferred(cancel)


class FailureTests(SessionCase):
    """No answer."""

    def test_refused(self) -> None:
        """A failed connection is retried, and the last error has its cause."""
        agent = Scripted(*(Refused("really") for _ in range(3)))
        result = self.ask(session=self.with_agent(agent), attempts=3)
        self.wait(FIRST_WAIT)
        self.wait(2 * FIRST_WAIT)
        self.assertEqual(
            str(self.error(result, CloudUnreachable)),
            "GET http://cloud.example/v1/things: Connection was refused by other side: really.",
        )

    def test_wrapped(self) -> None:
        """The cause is found within what agents wrap it in."""
        from twisted.web.client import ResponseNeverReceived

        inner = ResponseNeverReceived([Failure(Refused("deep"))])
        agent = Scripted(ResponseNeverReceived([Failure(inner)]))
        result = self.ask(session=self.with_agent(agent), retry=False)
        self.assertIn("refused by other side: deep", str(self.error(result, CloudUnreachable)))

    def test_silent(self) -> None:
        """An attempt has a timeout, and is retried."""
        agent = Scripted()
        agent.results += [agent.never(), Response(200)]
        result = self.ask(session=self.with_agent(agent))
        self.wait(29.9)
        self.assertEqual(agent.cancelled, 0)
        self.wait(0.1)
        self.assertEqual(agent.cancelled, 1)
        self.wait(FIRST_WAIT)
        self.assertEqual(self.successResultOf(result).code, 200)

    def test_silent_body(self) -> None:
        """The time of an attempt includes the body, and then its connection is closed."""
        response = Response(200, length=5)
        result = self.ask(session=self.with_agent(Scripted(response)), retry=False)
        response.protocol.dataReceived(b"1234")
        self.wait(30)
        self.assertEqual(
            str(self.error(result, CloudUnreachable)),
            "GET http://cloud.example/v1/things: no answer within 30 s",
        )
        self.assertTrue(response.lost)
        response.protocol.dataReceived(b"5")
        response.end()

    def test_broken_body(self) -> None:
        """An incomplete body is an error; one that ends with the connection is complete."""
        response = Response(200, length=5)
        result = self.ask(session=self.with_agent(Scripted(response)), retry=False)
        response.end(Refused)
        self.error(result, CloudUnreachable)
        response = Response(200, length=5)
        result = self.ask(session=self.with_agent(Scripted(response)), retry=False)
        response.protocol.dataReceived(b"12345")
        response.end(PotentialDataLoss)
        self.assertEqual(self.successResultOf(result).body, b"12345")

    def test_announced_length(self) -> None:
        """A body that is announced as too long is not read at all."""
        response = Response(200, length=BODY_LIMIT + 1)
        result = self.ask(session=self.with_agent(Scripted(response)))
        self.error(result, CloudError)
        self.assertTrue(response.lost)

    def test_deadline(self) -> None:
        """All attempts and waits together have a limit too."""
        agent = Scripted()
        agent.results += [agent.never() for _ in range(20)]
        session = self.with_agent(agent, attempts=20, deadline=100.0)
        result = self.ask(session=session)
        for _ in range(99):
            self.wait(1)
        self.assertNoResult(result)
        self.wait(1)
        error = self.error(result, CloudUnreachable)
        self.assertEqual(str(error), "GET http://cloud.example/v1/things: no answer within 100 s")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """A cancellation cancels the request, without retries."""
        agent = Scripted()
        agent.results += [agent.never()]
        result = self.ask(session=self.with_agent(agent))
        result.cancel()
        self.failureResultOf(result, CancelledError)
        self.assertEqual((agent.cancelled, self.clock.getDelayedCalls()), (1, []))

    def test_cancelled_while_waiting(self) -> None:
        """The wait for another attempt ends with the request."""
        self.cloud.say(503)
        result = self.ask()
        result.cancel()
        self.failureResultOf(result, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """Stopping gives up all requests, and may come again."""
        agent = Scripted()
        agent.results += [agent.never(), agent.never()]
        session = self.with_agent(agent)
        results = [self.ask(session=session), self.ask(session=session)]
        session.stop()
        session.stop()
        for result in results:
            self.failureResultOf(result, CancelledError)
        self.assertEqual((agent.cancelled, self.clock.getDelayedCalls()), (2, []))

    def test_nothing_kept(self) -> None:
        """Ended requests are not kept."""
        self.cloud.say(200)
        self.cloud.say(404)
        self.successResultOf(self.ask())
        self.error(self.ask())
        self.assertEqual(self.session.tasks.running, set())


class SecrecyTests(SessionCase):
    """Secrets."""

    def test_log(self) -> None:
        """Another attempt is logged with its reason, without head, query and body."""
        self.cloud.say(503, b"busy")
        self.cloud.say(200, b"hunter3")
        with captured_logs() as logs:
            result = self.ask(
                "http://user:hunter1@cloud.example/v1?key=hunter2",
                method="POST",
                headers={"Authorization": "Bearer hunter4"},
                body=b"hunter5",
            )
            self.wait(FIRST_WAIT)
        self.successResultOf(result)
        (event,) = logs
        self.assertEqual(
            event["log_format"].format(**event),
            "POST http://cloud.example/v1 answered 503: busy; attempt 2 of 5 follows in 0.5 s",
        )
        self.assertNotIn("hunter", repr(event))

    def test_repeated_by_the_cloud(self) -> None:
        """A credential that the cloud repeats in its error does not get into ours."""
        secret = "FwoGZXIvYXdzEBYaDKxyz"
        body = (
            "<Error><Code>SignatureDoesNotMatch</Code><Message>The Canonical String should have been\n"
            f"x-amz-security-token:{secret}\nauthorization:{secret}2</Message></Error>"
        )
        self.cloud.say(403, body.encode())
        headers = {"X-Amz-Security-Token": secret, "Authorization": f"AWS4 Credential=a, Signature={secret}2"}
        error = self.error(self.ask(headers=headers))
        self.assertIn("SignatureDoesNotMatch: The Canonical String should have been", str(error))
        self.assertNotIn(secret, str(error))

    def test_repr(self) -> None:
        """Neither a request nor an answer shows itself."""
        request = CloudRequest("GET", "http://h?hunter2", {"authorization": "hunter2"}, b"hunter2")
        self.assertNotIn("hunter2", repr(request))
        self.assertNotIn("hunter2", repr(Answer(200, Headers({"a": ["hunter2"]}), b"hunter2")))
        self.assertNotIn("hunter2", repr(CloudAnswerError(400, "x", body=b"hunter2")))


class SayingTests(SynchronousTestCase):
    """Errors of clouds."""

    def test_forms(self) -> None:
        """The forms of Google, Azure, OpenStack, Amazon and OAuth are known; anything else is text."""
        for body, said in {
            b'{"error": {"code": 404, "message": "no project"}}': "no project",
            b'{"error": {"code": "AuthFailed", "message": "no role"}}': "AuthFailed: no role",
            b'{"badRequest": {"code": 400, "message": "bad name"}}': "bad name",
            b'{"error": "invalid_client", "error_description": "expired"}': "invalid_client: expired",
            b'{"__type": "ThrottlingException", "message": "slow"}': "ThrottlingException: slow",
            b"<R><Errors><Error><Code>C</Code><Message>m</Message></Error></Errors></R>": "C: m",
            b"<html><h1>Bad\ngateway</h1> x</html>": "Bad gateway x",
            b"\xff\x00 odd \x1b[31m": "\ufffd odd [31m",
            b"[1, 2]": "[1, 2]",
            b'{"error": null}': '{"error": null}',
            b"": "",
        }.items():
            self.assertEqual(error_detail(body), said)

    def test_short(self) -> None:
        """No more than 300 characters on one line are shown."""
        self.assertEqual(len(error_detail(b"x" * 10_000)), 300)
        self.assertEqual(shorten("a\r\nb\tc\u2028d"), "a b c d")
        self.assertEqual(shorten("y" * 300), "y" * 300)


class AuthoritiesTests(SynchronousTestCase):
    """CAs."""

    def test_no_authorities(self) -> None:
        """A missing CA file, or one without certificates, is an error that names it."""
        missing = self.assertRaises(ConfigurationError, CloudSession, Clock(), ca_file="/nowhere/ca.pem")
        self.assertEqual(
            str(missing), "the CA file /nowhere/ca.pem cannot be read: No such file or directory"
        )
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("no certificate")
        empty = self.assertRaises(ConfigurationError, CloudSession, Clock(), ca_file=path)
        self.assertIn("has no PEM certificates", str(empty))

    def test_helpers(self) -> None:
        """The fakes of agents and clocks implement their interfaces."""
        verifyObject(IAgent, Scripted())
        verifyObject(IReactorTime, Clock())
