"""Tests of `tower.kube.rest.rest_client`: Twisted's client against Twisted's server, in memory."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import Request

from tests.fakes.apiservers import Member
from tower import __version__
from tower.errors import ConfigurationError
from tower.kube.client import PAGE_SIZE, APIError
from tower.kube.head_fields import Upstream
from tower.kube.rest.heartbeat import PERIOD
from tower.kube.rest.host_api import HostAPI, WatchEvent
from tower.kube.rest.rest_client import LONGEST_DELAY, PARALLEL, PROBE_TIMEOUT, RETRIES, RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.watch_body import SILENCE
from tower.kube.rest.well_known import CLUSTERS, SECRETS
from tower.reactor.interfaces import IReactor


class Config:
    """A configuration whose credential the test changes."""

    def __init__(self, member: Member) -> None:
        self.open = member.open
        self.tokens = ["first"]
        self.current = self._upstream()
        self.problem = ""
        self.renewals = 0

    def _upstream(self) -> Upstream:
        credential = b"Authorization: Bearer %b\r\n" % self.tokens[0].encode()
        return Upstream(b"/k8s", b"Host: host:6443\r\n", credential)

    def upstream(self) -> Upstream:
        """Return the current credential."""
        return self.current

    async def prepare(self) -> None:
        """Fail if there is a problem."""
        if self.problem:
            raise ConfigurationError(self.problem)

    async def renew(self, rejected: Upstream) -> bool:
        """Use the next token, if any."""
        self.renewals += 1
        if len(self.tokens) > 1:
            del self.tokens[0]
            self.current = self._upstream()
        return self.current is not rejected


class RestClientCase(SynchronousTestCase):
    """A test case with a client and a server."""

    def setUp(self) -> None:
        """Create them."""
        self.host = Member()
        self.clock = self.host.clock
        self.config = Config(self.host)
        client = RestClient(cast(IReactor, self.clock), cast(RestConfig, self.config), lambda: 0.0)
        self.client = client
        self.api: HostAPI = client
        self.addCleanup(client.close)

    def ask(self, request: Coroutine[Deferred[Any], Any, Any]) -> Deferred[Any]:
        """Begin a request, and let the server answer."""
        result = Deferred.fromCoroutine(request)
        self.host.serve()
        return result

    def done(self, request: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """Return what a request returned."""
        return self.successResultOf(self.ask(request))

    def fails(self, request: Coroutine[Deferred[Any], Any, Any]) -> APIError:
        """Return a request's error."""
        error = self.failureResultOf(self.ask(request), APIError).value
        assert isinstance(error, APIError)
        return error

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.host.serve()

    def answers(self, *answers: Any) -> None:
        """Set the next answers: pairs of status and object, and seconds of Retry-After."""
        left = list(answers)

        def answer(request: Request) -> tuple[int, bytes]:
            code, value, *delay = left.pop(0)
            if delay:
                request.setHeader(b"retry-after", str(delay[0]).encode())
            return code, json.dumps(value).encode()

        self.host.answer = answer

    def sent(self, number: int = -1) -> tuple[str, str, Any]:
        """Return method, path and body of a request."""
        request = self.host.requests[number]
        body = self.host.bodies[number]
        path = request.uri.decode().removeprefix("/k8s")
        return request.method.decode(), path, json.loads(body) if body else None


class RequestTests(RestClientCase):
    """Methods, paths and bodies."""

    def test_get(self) -> None:
        """A request has the program's version, the credential and the prefix."""
        self.answers((200, {"kind": "Secret"}))
        self.assertEqual(self.done(self.api.get(SECRETS, "a", "ns")), {"kind": "Secret"})
        self.assertEqual(self.sent(), ("GET", "/api/v1/namespaces/ns/secrets/a", None))
        (request,) = self.host.requests
        self.assertEqual(request.getHeader(b"user-agent"), f"tower-proxy/{__version__}".encode())
        self.assertEqual(request.getHeader(b"authorization"), b"Bearer first")

    def test_create(self) -> None:
        """An object gets its type, and its namespace is that of the path."""
        obj = {"metadata": {"name": "a", "namespace": "ns"}}
        self.answers((201, obj), (201, obj))
        self.done(self.api.create(SECRETS, obj))
        path = "/api/v1/namespaces/ns/secrets"
        self.assertEqual(self.sent(), ("POST", path, {"apiVersion": "v1", "kind": "Secret", **obj}))
        self.done(self.api.create(CLUSTERS, {"metadata": {"name": "a"}}, "ignored"))
        self.assertEqual(self.sent()[1], "/apis/cluster.kubesphere.io/v1alpha1/clusters")

    def test_update(self) -> None:
        """An update is a PUT, of the object or its status."""
        obj = {"metadata": {"name": "a"}, "kind": "Cluster"}
        self.answers((200, obj), (409, {"reason": "Conflict", "message": "changed"}))
        self.done(self.api.update(CLUSTERS, obj, subresource="status"))
        path = "/apis/cluster.kubesphere.io/v1alpha1/clusters/a"
        self.assertEqual(self.sent()[:2], ("PUT", f"{path}/status"))
        error = self.fails(self.api.update(CLUSTERS, obj))
        self.assertEqual((error.code, error.reason, error.path), (409, "Conflict", path))

    def test_patch(self) -> None:
        """A patch is a merge patch."""
        self.answers((200, {}))
        self.done(self.api.patch(SECRETS, "a", {"data": {"x": None}}, "ns"))
        self.assertEqual(self.sent(), ("PATCH", "/api/v1/namespaces/ns/secrets/a", {"data": {"x": None}}))
        self.assertEqual(self.host.requests[0].getHeader(b"content-type"), b"application/merge-patch+json")

    def test_delete(self) -> None:
        """A deletion has its preconditions, and is in the background."""
        self.answers((200, {}), (200, {}))
        self.done(self.api.delete(SECRETS, "a", "ns", uid="u", resource_version="7"))
        method, path, body = self.sent()
        self.assertEqual((method, path), ("DELETE", "/api/v1/namespaces/ns/secrets/a"))
        self.assertEqual(body["preconditions"], {"uid": "u", "resourceVersion": "7"})
        self.assertEqual(body["propagationPolicy"], "Background")
        self.done(self.api.delete(SECRETS, "a", "ns"))
        self.assertNotIn("preconditions", self.sent()[2])

    def test_not_an_object(self) -> None:
        """An answer that is not an object is an error."""
        self.answers((200, []))
        self.assertIn("not an object", str(self.fails(self.api.get(SECRETS, "a", "ns"))))

    def test_parallel(self) -> None:
        """Only so many requests are sent at a time."""
        asked = [Deferred.fromCoroutine(self.api.get(SECRETS, "a", "ns")) for _ in range(PARALLEL + 5)]
        self.assertEqual(len(self.host.pipes), PARALLEL)
        self.host.serve()
        for each in asked:
            self.successResultOf(each)

    def test_configuration(self) -> None:
        """An unusable credential is an error without an answer."""
        self.config.problem = "the plugin was not found: install it"
        error = self.fails(self.api.list(SECRETS))
        self.assertEqual((error.code, self.host.requests), (0, []))
        self.assertIn("the plugin was not found: install it", str(error))
        self.assertEqual(error.path, "/api/v1/secrets")


def _item(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}}


class ListTests(RestClientCase):
    """Lists in pages."""

    def test_pages(self) -> None:
        """All pages are read; items get their type; the version is that of the first page."""
        self.answers(
            (200, {"metadata": {"resourceVersion": "5", "continue": "a/b="}, "items": [_item("a")]}),
            (200, {"metadata": {"resourceVersion": "5"}, "items": [_item("b")]}),
        )
        found = self.done(self.api.list(SECRETS, "ns", "a=b,!c", field_selector="metadata.name=a"))
        self.assertEqual(found.resource_version, "5")
        self.assertEqual(
            found.items,
            [{**_item(name), "apiVersion": "v1", "kind": "Secret"} for name in ("a", "b")],
        )
        first, second = (parse_qs(urlsplit(self.sent(number)[1]).query) for number in (0, 1))
        expected = {
            "limit": [str(PAGE_SIZE)],
            "labelSelector": ["a=b,!c"],
            "fieldSelector": ["metadata.name=a"],
        }
        self.assertEqual(first, expected)
        self.assertEqual(second, {**expected, "continue": ["a/b="]})

    def test_expired(self) -> None:
        """A page that expired starts the list again, once."""
        page = (200, {"metadata": {"resourceVersion": "5", "continue": "x"}, "items": [_item("a")]})
        last = (200, {"metadata": {"resourceVersion": "6"}, "items": [_item("b")]})
        gone = (410, {"reason": "Expired", "message": "too old"})
        self.answers(page, gone, last)
        self.assertEqual(self.done(self.api.list(SECRETS)).resource_version, "6")
        self.answers(page, gone, page, gone)
        self.assertEqual(self.fails(self.api.list(SECRETS)).code, 410)

    def test_odd_lists(self) -> None:
        """Something else, and a list without end, are errors."""
        answers: list[Any] = [
            {},
            {"metadata": {}, "items": {"x": 1}},
            {"metadata": [], "items": []},
            {"metadata": {"resourceVersion": "5"}, "items": [1]},
            {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]},
            {"metadata": {}, "items": [_item("a")]},
            {"metadata": {"continue": "x"}, "items": []},
        ]
        for answer in answers:
            self.answers((200, answer))
            self.fails(self.api.list(SECRETS))

    def test_redirection(self) -> None:
        """A redirection is not followed: its target would get the credential."""
        self.answers((302, {"message": "elsewhere"}))
        self.assertEqual(self.fails(self.api.list(SECRETS)).code, 302)
        self.assertEqual(len(self.host.requests), 1)


class RepetitionTests(RestClientCase):
    """Answers after which a request is repeated."""

    def test_unauthorized(self) -> None:
        """After 401 a request is repeated once with a new credential, a write too."""
        self.config.tokens += ["second", "third"]
        denied = (401, {"reason": "Unauthorized", "message": "Unauthorized"})
        self.answers(denied, (201, {"a": 1}))
        self.assertEqual(self.done(self.api.create(SECRETS, {"metadata": {}}, "ns")), {"a": 1})
        tokens = [request.getHeader(b"authorization") for request in self.host.requests]
        self.assertEqual(tokens, [b"Bearer first", b"Bearer second"])
        self.answers(denied, denied)
        self.assertEqual(self.fails(self.api.get(SECRETS, "a", "ns")).code, 401)
        self.assertEqual(len(self.host.requests), 4)

    def test_new_connection(self) -> None:
        """A new credential is used on a new connection: it may be a client certificate."""
        self.config.tokens += ["second"]
        self.done(self.api.get(SECRETS, "a", "ns"))
        self.done(self.api.get(SECRETS, "a", "ns"))
        self.assertEqual(len(self.host.pipes), 1)
        self.successResultOf(Deferred.fromCoroutine(self.config.renew(self.config.current)))
        self.done(self.api.get(SECRETS, "a", "ns"))
        self.assertEqual([pipe.lost for pipe in self.host.pipes], [True, False])

    def test_still_unauthorized(self) -> None:
        """Without a new credential it is not repeated."""
        self.answers((401, {"message": "Unauthorized"}))
        self.assertEqual(self.fails(self.api.get(SECRETS, "a", "ns")).code, 401)
        self.assertEqual((len(self.host.requests), self.config.renewals), (1, 1))

    def test_postponed(self) -> None:
        """After 429 or 503 with Retry-After a request is repeated then, at most so often."""
        self.answers((429, {}, 2), (503, {}, 99999), (200, {"a": 1}))
        asked = self.ask(self.api.get(SECRETS, "a", "ns"))
        self.advance(1.9)
        self.assertEqual(len(self.host.requests), 1)
        self.advance(0.1)
        self.advance(LONGEST_DELAY)
        self.assertEqual(self.successResultOf(asked), {"a": 1})
        self.answers(*[(503, {"message": "busy"}, 1)] * (RETRIES + 1))
        asked = self.ask(self.api.get(SECRETS, "a", "ns"))
        for _ in range(RETRIES):
            self.assertNoResult(asked)
            self.advance(1)
        error = self.failureResultOf(asked, APIError).value
        self.assertEqual((error.code, error.retry_after), (503, 1))

    def test_not_postponed(self) -> None:
        """Without Retry-After, and after other errors, it is not repeated."""
        for answer in ((503, {"message": "down"}), (500, {"message": "x"}, 1), (409, {"message": "x"}, 1)):
            self.answers(answer)
            self.assertEqual(self.fails(self.api.get(SECRETS, "a", "ns")).code, answer[0])

    def test_cancel_the_delay(self) -> None:
        """Canceled while it waits, a request leaves nothing."""
        self.answers((429, {}, 2))
        asked = self.ask(self.api.get(SECRETS, "a", "ns"))
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.client.close()
        self.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class WatchTests(RestClientCase):
    """Watches."""

    def setUp(self) -> None:
        """Answer watches by hand, and everything else at once."""
        super().setUp()
        self.events: list[WatchEvent] = []
        self.opened = 0
        self.is_frozen = False
        self.host.answer = self.answer

    def answer(self, request: Request) -> tuple[int, bytes] | None:
        """Answer."""
        if self.is_frozen:
            return None
        if b"watch=1" in request.uri:
            request.write(b"")
            return None
        return 200, b"{}"

    def open_one(self) -> None:
        """Count."""
        self.opened += 1

    def watch(self, **options: Any) -> Deferred[None]:
        """Begin a watch."""
        return self.ask(
            self.api.watch(SECRETS, "ns", "7", self.events.append, opened=self.open_one, **options)
        )

    def send(self, version: str, number: int = 0) -> None:
        """Send an event."""
        metadata = {"name": "a", "uid": "u", "resourceVersion": version}
        event = {"type": "ADDED", "object": {"metadata": metadata}}
        self.host.requests[number].write(json.dumps(event).encode() + b"\n")
        self.host.serve()

    def test_events(self) -> None:
        """Events come as they are sent, until the server ends the watch; the connection is kept."""
        watching = self.watch(seconds=400, label_selector="a=b", field_selector="metadata.name=x")
        self.assertEqual(self.opened, 1)
        self.assertEqual(
            parse_qs(urlsplit(self.sent()[1]).query),
            {
                "watch": ["1"],
                "allowWatchBookmarks": ["true"],
                "resourceVersion": ["7"],
                "timeoutSeconds": ["400"],
                "labelSelector": ["a=b"],
                "fieldSelector": ["metadata.name=x"],
            },
        )
        self.send("8")
        self.send("9")
        self.assertEqual([event.resource_version for event in self.events], ["8", "9"])
        self.host.requests[0].finish()
        self.host.serve()
        self.successResultOf(watching)
        self.watch()
        self.assertEqual(len(self.host.pipes), 1)

    def test_rejected(self) -> None:
        """A rejected watch raises the Status's error, after a renewal of the credential."""
        self.config.tokens.append("second")
        self.answers((401, {"message": "Unauthorized"}), (410, {"reason": "Expired", "message": "old"}))
        error = self.failureResultOf(self.watch(), APIError).value
        self.assertEqual((error.code, error.reason, self.opened), (410, "Expired", 0))
        self.answers((204, {}))
        self.failureResultOf(self.watch(), APIError)

    def test_error_event(self) -> None:
        """An error event ends the watch and its connection."""
        watching = self.watch()
        self.host.requests[0].write(b'{"type": "ERROR", "object": {"code": 410}}\n')
        self.host.serve()
        self.failureResultOf(watching, APIError)
        self.assertTrue(self.host.pipes[0].lost)

    def test_lost(self) -> None:
        """A lost connection is an error without an answer."""
        watching = self.watch()
        self.host.pipes[0].lose()
        self.assertEqual(self.failureResultOf(watching, APIError).value.code, 0)

    def test_cancel(self) -> None:
        """Canceled before or after the answer, it leaves no connection and no timer."""
        watching = self.watch()
        watching.cancel()
        self.failureResultOf(watching, CancelledError)
        self.is_frozen = True
        watching = self.watch()
        watching.cancel()
        self.failureResultOf(watching, CancelledError)
        self.assertEqual([pipe.lost for pipe in self.host.pipes], [True, True])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent(self) -> None:
        """A watch that is silent for long ends, although the server answers checks."""
        watching = self.watch()
        for _ in range(int(SILENCE / PERIOD)):
            self.advance(PERIOD)
        self.successResultOf(watching)
        self.assertGreater(len(self.host.requests), 5)

    def test_frozen(self) -> None:
        """A server that does not answer the check fails all watches, and they can begin again."""
        watches = [self.watch(), self.watch()]
        self.advance(PERIOD)
        self.assertEqual(self.sent()[:2], ("GET", "/version"))
        self.is_frozen = True
        self.advance(PERIOD)
        self.advance(PROBE_TIMEOUT)
        for watching in watches:
            error = self.failureResultOf(watching, APIError).value
            self.assertEqual((error.code, error.path), (0, "/version"))
        self.is_frozen = False
        watching = self.watch()
        self.advance(PERIOD)
        self.advance(PROBE_TIMEOUT)
        self.assertNoResult(watching)

    def test_other_answers(self) -> None:
        """An answer to any request postpones the check, and an error is an answer."""
        watching = self.watch()
        self.advance(PERIOD - 1)
        self.done(self.api.get(SECRETS, "a", "ns"))
        self.advance(PERIOD - 1)
        self.assertEqual(len(self.host.requests), 2)
        self.host.answer = lambda _: (403, b"{}")
        self.advance(1)
        self.assertEqual(self.sent()[1], "/version")
        self.assertNoResult(watching)

    def test_end_during_the_check(self) -> None:
        """A check ends with the last watch."""
        watching = self.watch()
        self.is_frozen = True
        self.advance(PERIOD)
        watching.cancel()
        self.failureResultOf(watching, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])
