"""Tests of `tower.web.access.authorization.mode_filter`."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.requests import FakeChannel, FakeRequest
from tower.kube.status import StatusError
from tower.web.access.audit.request_entry import RequestEntry
from tower.web.access.authentication.identity import ANONYMOUS, Identity, UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import NO_OPINION, Answer, Decision, Ruling
from tower.web.access.authorization.decision_cache import DecisionCache
from tower.web.access.authorization.mode_filter import (
    SELF_REVIEWS,
    ModeAuthorization,
    requested_attributes,
    user_of,
)
from tower.web.outcome import RawStream, Relay

RELAY = Relay("alpha", b"/clusters/alpha")
PODS = "/api/v1/namespaces/a/pods"
ALLOWED = Decision(Ruling.ALLOW)


class Verbs:
    """Allows requests with some verbs, at once or later.

    :ivar waiting: what fires later, if it is a list.
    """

    def __init__(self, *verbs: str) -> None:
        self.verbs = verbs
        self.error = ""
        self.waiting: list[tuple[Deferred[Decision], Decision]] | None = None
        self.asked: list[Attributes] = []

    def authorize(self, attributes: Attributes) -> Answer:
        """Return the decision."""
        self.asked.append(attributes)
        found = ALLOWED if attributes.request.verb in self.verbs else NO_OPINION
        if self.error:
            found = Decision(Ruling.NO_OPINION, error=self.error)
        if self.waiting is None:
            return found
        self.waiting.append((Deferred(), found))
        return self.waiting[-1][0]

    def decide(self) -> None:
        """Make the later decisions."""
        waiting, self.waiting = self.waiting or [], []
        for deferred, found in waiting:
            deferred.callback(found)


class RecordedEntry(RequestEntry):
    """An audit entry."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, str]] = []

    def decided(self, decision: str, reason: str) -> None:
        """Record the call."""
        self.decisions.append((decision, reason))


class ModeAuthorizationTests(SynchronousTestCase):
    """Requests and connections."""

    def setUp(self) -> None:
        """Create the filter."""
        self.verbs = Verbs("get", "list", "watch")
        self.cache = DecisionCache(self.verbs)
        self.clock: Any = Clock()
        self.rules = ModeAuthorization(self.cache, "ABAC,RBAC", self.clock)

    def request(self, path: str = PODS, method: bytes = b"GET", **more: Any) -> Any:
        """Return a request of jane's."""
        target = RELAY.prefix + path.encode()
        more = {"identity": Identity("jane"), "destination": RELAY, **more}
        return FakeRequest(target=target, method=method, **more)

    def sweep(self) -> None:
        """Check all connections."""
        sweeping = Deferred.fromCoroutine(self.rules.sweep())
        while not sweeping.called:
            self.clock.advance(0)
        self.successResultOf(sweeping)

    def refusal(self, request: Any) -> StatusError:
        """Return the rejection of a request."""
        error = self.assertRaises(StatusError, self.rules, request, "alpha")
        assert isinstance(error, StatusError)
        return error

    def test_own_api(self) -> None:
        """Another filter decides about Tower's own API, except for reviews of the own rights."""
        own = ModeAuthorization(self.cache, "", self.clock)
        channel = FakeChannel()
        path = b"/apis/cluster.kubesphere.io/v1alpha1/clusters"
        watch = FakeRequest(path + b"?watch=1", identity=Identity("jane"), channel=channel)
        self.assertIsNone(own(watch, "alpha"))
        self.assertIsNone(self.rules(watch, ""))
        self.assertEqual(self.verbs.asked, [])
        self.assertIsNone(own(watch, ""))
        self.assertEqual(self.verbs.asked[0].cluster, "")
        for target in SELF_REVIEWS:
            review = FakeRequest(target, b"POST", identity=Identity("jane"))
            self.assertIsNone(own(review, ""))
        error = self.assertRaises(StatusError, own, FakeRequest(path, b"POST", identity=Identity("jane")), "")
        assert isinstance(error, StatusError)
        self.assertIn(
            'clusters.cluster.kubesphere.io is forbidden: User "jane" cannot create resource "clusters" in '
            'API group "cluster.kubesphere.io" at the cluster scope; this is Tower\'s own API',
            error.message,
        )
        self.verbs.verbs = ()
        self.cache.clear()
        self.rules = own
        self.sweep()
        self.assertEqual([code for _, code in channel.ends], [403])

    def test_decisions(self) -> None:
        """Allowed, rejected, failed."""
        self.assertIsNone(self.rules(self.request(), "alpha"))
        error = self.refusal(self.request(method=b"POST"))
        self.assertEqual(error.code, 403)
        self.assertEqual(
            error.message,
            'pods is forbidden: User "jane" cannot create resource "pods" in API group "" in the namespace '
            '"a"; this is a rule of Tower (--authorization-mode ABAC,RBAC), not of cluster alpha: ask an '
            "administrator of Tower",
        )
        self.verbs.error = "no answer"
        self.assertEqual(self.refusal(self.request(f"{PODS}/p")).code, 500)

    def test_audit(self) -> None:
        """The audit entry has the decision and the reason."""
        found = []
        for method, error in ((b"GET", ""), (b"POST", ""), (b"PUT", "no answer")):
            self.verbs.error = error
            request = self.request(method=method, entry=RecordedEntry())
            with contextlib.suppress(StatusError):
                self.rules(request, "alpha")
            found += request.entry.decisions
        self.assertEqual(found, [("allow", ""), ("forbid", ""), ("forbid", "internal error")])

    def test_others(self) -> None:
        """Tower's own API and users without a name need no rule."""
        self.assertIsNone(self.rules(self.request(method=b"POST"), ""))
        self.assertIsNone(self.rules(self.request(method=b"POST", identity=ANONYMOUS), "alpha"))
        self.assertEqual(self.verbs.asked, [])

    def test_later(self) -> None:
        """A decision may need time."""
        self.verbs.waiting = []
        passed, failed = self.rules(self.request(), "alpha"), self.rules(self.request(method=b"PUT"), "alpha")
        assert passed is not None and failed is not None  # noqa: PT018
        self.assertNoResult(passed)
        self.verbs.decide()
        self.successResultOf(passed)
        self.failureResultOf(failed, StatusError)

    def test_commands(self) -> None:
        """Commands and forwarded ports need the right to create them, in any form."""
        for command in ("exec", "attach", "portforward"):
            for method in (b"GET", b"POST"):
                error = self.refusal(self.request(f"{PODS}/p/{command}", method))
                self.assertIn(f'cannot create resource "pods/{command}"', error.message)
        self.verbs.verbs = ("create",)
        self.cache.clear()
        self.assertIn("cannot get", self.refusal(self.request(f"{PODS}/p/exec")).message)
        self.verbs.verbs = ("get", "create")
        self.cache.clear()
        self.assertIsNone(self.rules(self.request(f"{PODS}/p/exec"), "alpha"))
        self.verbs.verbs = ("get",)
        self.cache.clear()
        self.assertIsNone(self.rules(self.request(f"{PODS}/p/log"), "alpha"))
        self.verbs.waiting = []
        later = self.rules(self.request(f"{PODS}/q/exec"), "alpha")
        assert later is not None
        self.verbs.decide()
        self.verbs.decide()
        self.failureResultOf(later, StatusError)

    def test_sweep(self) -> None:
        """Connections end whose last request is no longer allowed, and no others."""
        one, two = self.request(), self.request(f"{PODS}/p")
        self.rules(one, "alpha")
        self.rules(two, "alpha")
        self.sweep()
        self.verbs.verbs = ("list",)
        self.sweep()
        self.assertEqual((one.channel.ends, two.channel.ends), ([], []))
        self.cache.clear()
        self.sweep()
        self.assertEqual((one.channel.ends, [code for _, code in two.channel.ends]), ([], [403]))
        self.cache.clear()
        self.sweep()
        self.assertEqual(len(two.channel.ends), 1)

    def test_sweep_later(self) -> None:
        """A decision that comes after the next request of the connection does not end it."""
        one, two = self.request(), self.request()
        two.channel = one.channel
        self.rules(one, "alpha")
        self.verbs.verbs, self.verbs.waiting = (), []
        self.cache.clear()
        self.sweep()
        self.verbs.verbs, waiting, self.verbs.waiting = ("list",), self.verbs.waiting, None
        self.rules(two, "alpha")
        self.verbs.waiting = waiting
        self.verbs.decide()
        self.assertEqual(one.channel.ends, [])

    def test_ask_again(self) -> None:
        """Watches and commands end that a mode no longer allows; a failure of the mode ends none."""
        self.verbs.verbs = ("get", "list", "watch", "create")
        watch, command = self.request(f"{PODS}?watch=1"), self.request(f"{PODS}/p/exec")
        others = [self.request(f"{PODS}/p{number}") for number in range(150)]
        for each in (watch, command, *others):
            self.rules(each, "alpha")
        self.verbs.verbs, self.verbs.waiting, self.verbs.error = ("watch",), [], "no answer"
        for error, ends in (("no answer", 0), ("", 1)):
            self.verbs.error = error
            self.cache.clear()
            asking = Deferred.fromCoroutine(self.rules.ask_again())
            for _ in range(5):
                self.assertLessEqual(len(self.verbs.waiting), 1)
                self.verbs.decide()
                self.clock.advance(0)
            self.successResultOf(asking)
            self.assertEqual((len(watch.channel.ends), len(command.channel.ends)), (0, ends))
        self.assertEqual([code for _, code in command.channel.ends], [403])
        self.assertEqual([each for each in others if each.channel.ends], [])

    def test_many(self) -> None:
        """Many connections are checked in pieces; one with a later request is left alone."""
        requests = [self.request(f"{PODS}/p{number}") for number in range(250)]
        for request in requests:
            self.rules(request, "alpha")
        self.verbs.verbs = ("list",)
        self.cache.clear()
        sweeping = Deferred.fromCoroutine(self.rules.sweep())
        self.assertNoResult(sweeping)
        last = self.request()
        last.channel = requests[-1].channel
        self.rules(last, "alpha")
        while not sweeping.called:
            self.clock.advance(0)
        self.assertEqual([len(each.channel.ends) for each in requests], [1] * 249 + [0])

    def test_closed(self) -> None:
        """Nothing is held for connections that have closed."""
        self.rules(self.request(), "alpha")
        gc.collect()
        self.assertEqual(len(self.rules._live), 0)

    def test_destinations(self) -> None:
        """Paths are relative to the cluster; other targets have their own."""
        jane = user_of(Identity("jane"))
        for path, destination, verb, expected in (
            ("/version?x", RELAY, "get", "/version"),
            (
                "/targets/web/a%20b",
                Relay("alpha", b"/clusters/alpha/targets/web", "web"),
                "get",
                "/targets/web/a b",
            ),
            ("/targets/db", RawStream("alpha", "db"), "connect", "/targets/db"),
            ("/targets/none", None, "get", "/clusters/alpha/targets/none"),
        ):
            info = requested_attributes(self.request(path, destination=destination), jane, "alpha").request
            self.assertEqual((info.verb, info.path, info.is_resource), (verb, expected, False))
        request = FakeRequest(target=b"/clusters/x/api/v1/pods", destination=Relay("alpha"))
        self.assertFalse(requested_attributes(request, jane, "alpha").request.is_resource)

    def test_users(self) -> None:
        """All users but anonymous ones are authenticated, once."""
        for user, groups, expected in (
            ("jane", ("dev",), ("dev", "system:authenticated")),
            ("jane", ("system:authenticated",), ("system:authenticated",)),
            ("system:anonymous", ("system:unauthenticated",), ("system:unauthenticated",)),
        ):
            self.assertEqual(user_of(Identity(user, groups)), UserInfo(user, expected))
