"""Tests of connections whose users another program authenticates, and of anonymous ones, with real parts."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.requests import FakeChannel, FakeRequest, fields_with
from tests.fakes.token_reviews import USER, Reviewer
from tower.errors import Unauthorized
from tower.store import MemoryStore
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.anonymous import AnonymousAuthenticator
from tower.web.access.authentication.token_reviewer import Reviewing, TokenReviewer
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.authentication_filter import Authentication
from tower.web.access.filters import FilterChain, authentication_chain
from tower.web.access.sessions import Sessions
from tower.web.outcome import Relay
from tower.web.ports.router import FrontDoor

API = b"/clusters/alpha/api"
VERSION = b"/clusters/alpha/version"
TTL = 60.0


class LeaseTests(SynchronousTestCase):
    """One connection to the front door."""

    def setUp(self) -> None:
        """Begin with a user of the program, and anonymous ones for one path."""
        self.clock, self.hook = Clock(), Reviewer()
        clock: Any = self.clock
        reviewing = Reviewing("webhook", "the webhook", ttl=TTL)
        method = TokenReviewer(self.hook, reviewing, clock, clock.seconds)
        anonymous = AnonymousAuthenticator({VERSION})
        self.methods = AuthenticatorUnion(method, anonymous=anonymous)
        self.passed = 0
        chain = FilterChain(Authentication(self.methods), self.count)
        self.generation = AdmissionGeneration(MemoryStore(), clock.seconds)
        self.door = FrontDoor(
            chain, authentication_chain(self.methods), self.unexpected, lambda *_: None, self.generation
        )
        self.channel: Any = FakeChannel()

    def count(self, _request: Any, _cluster: str) -> None:
        """Count the requests that no admission covers."""
        self.passed += 1

    def unexpected(self, _request: Any, _path: bytes) -> Any:
        """Fail: no request is to Tower itself."""
        self.fail()

    def ask(self, target: bytes = API, bearer: bytes | None = b"t") -> str:
        """Route a request of the connection; return its user."""
        request: Any = FakeRequest(target, fields=fields_with(bearer), channel=self.channel)
        outcome = self.door(request)
        if isinstance(outcome, Deferred):
            outcome = self.successResultOf(outcome)
        self.assertIsInstance(outcome, Relay)
        return str(request.identity.user)

    def test_admission(self) -> None:
        """Requests cost nothing while the answer counts; then one of them waits for the next answer."""
        for seconds, asked, passed in ((0, 1, 1), (0, 1, 2), (0, 1, 2), (59, 1, 2), (1, 2, 3), (0, 2, 3)):
            self.clock.advance(seconds)
            self.assertEqual(self.ask(), "jane")
            self.assertEqual((len(self.hook.asked), self.passed), (asked, passed))
        self.clock.advance(TTL)
        self.hook.status = {"authenticated": False}
        request = FakeRequest(API, fields=fields_with(b"t"), channel=self.channel)
        self.assertRaises(Unauthorized, self.door, request)

    def test_clock_set_back(self) -> None:
        """Equal requests do not use an answer from the future: its time would be longer."""
        for asked in (1, 1, 1):
            self.ask()
            self.assertEqual(len(self.hook.asked), asked)
        self.clock.rightNow -= 30
        self.hook.status = {"authenticated": False}
        request = FakeRequest(API, fields=fields_with(b"t"), channel=self.channel)
        self.assertRaises(Unauthorized, self.door, request)

    def test_changed(self) -> None:
        """A change that a live connection's review finds ends the admission at once."""
        for _ in range(3):
            self.ask()
        sessions = Sessions(self.methods)
        ended: list[str] = []
        identity = self.channel.authenticated[1]
        sessions.enter(identity, "alpha", ended.append)
        self.hook.status = {"authenticated": True, "user": {**USER, "username": "joe"}}
        self.clock.advance(TTL)
        sessions.sweep()
        self.assertEqual(ended, [])
        sessions.sweep()
        self.assertIn("the user of the token has changed from jane", ended[0])
        request = FakeRequest(API, fields=fields_with(b"t"), channel=self.channel)
        self.assertRaises(Unauthorized, self.door, request)

    def test_failing(self) -> None:
        """While the program fails, sessions go on, and requests are rejected."""
        for _ in range(3):
            self.ask()
        sessions = Sessions(self.methods)
        sessions.enter(self.channel.authenticated[1], "alpha", self.fail)
        self.hook.status = None
        self.clock.advance(TTL)
        for _ in range(3):
            sessions.sweep()
        request = FakeRequest(API, fields=fields_with(b"t"), channel=self.channel)
        found = self.door(request)
        assert isinstance(found, Deferred)
        self.failureResultOf(found, Unauthorized)
        self.hook.status = {"authenticated": True, "user": USER}
        self.assertEqual(self.ask(), "jane")
        sessions.sweep()
        self.assertEqual(len(sessions), 1)

    def test_anonymous(self) -> None:
        """An anonymous request does not open another path, and changes nothing for the connection's user."""
        for _ in range(2):
            self.assertEqual(self.ask(VERSION, None), "system:anonymous")
            self.assertRaises(Unauthorized, self.ask, API, None)
        self.assertIsNone(self.channel.admission)
        self.assertIsNone(self.channel.authenticated)
        self.assertFalse(self.channel.proven)
        for _ in range(3):
            self.assertEqual(self.ask(), "jane")
            self.assertEqual(self.ask(VERSION, None), "system:anonymous")
        self.assertEqual(len(self.hook.asked), 1)
