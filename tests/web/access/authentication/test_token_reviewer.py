"""Tests of `tower.web.access.authentication.token_reviewer`; `tests.integration` has a real webhook."""

from __future__ import annotations

import hashlib
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.token_reviews import USER, Reviewer
from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.web.access.authentication import token_reviewer
from tower.web.access.authentication.identity import FOREIGN_TOKEN_LIMIT, Identity
from tower.web.access.authentication.presented import Presented, Stale
from tower.web.access.authentication.token_reviewer import AGAIN, Reviewing, TokenReviewer


class TokenReviewerTests(SynchronousTestCase):
    """Users, the time for which they are kept, and the end of live connections."""

    def setUp(self) -> None:
        """Create the method."""
        self.clock, self.hook = Clock(), Reviewer()
        self.clock.advance(1_700_000_000)
        self.method = self.new()

    def new(self, **settings: Any) -> TokenReviewer:
        """Return the method with other settings."""
        reviewing = Reviewing("webhook", "the webhook", **{"ttl": 60.0, **settings})
        return TokenReviewer(self.hook, reviewing, self.clock, self.clock.seconds)

    def ask(self, token: bytes = b"t") -> Identity | None:
        """Return the user of a token."""
        found = self.method.authenticate(Presented(None, token))
        return self.successResultOf(found) if isinstance(found, Deferred) else found

    def user(self, token: bytes = b"t") -> Identity:
        """Return the user, who is known."""
        found = self.ask(token)
        assert found is not None
        return found

    def refused(self, token: bytes = b"t") -> Unauthorized:
        """Return the rejection of a token."""
        found = self.method.authenticate(Presented(None, token))
        assert isinstance(found, Deferred)
        error = self.failureResultOf(found, Unauthorized).value
        assert isinstance(error, Unauthorized)
        return error

    def test_user(self) -> None:
        """All facts about the user are taken over; the token is in no text."""
        found = self.user(b"secret")
        self.assertEqual(
            (found.user, found.uid, found.groups, found.extra, found.method),
            ("jane", "7", ("dev",), (("k", ("v",)),), "webhook"),
        )
        self.assertEqual(self.hook.asked[0]["spec"], {"token": "secret"})
        self.assertEqual(self.hook.asked[0]["apiVersion"], "authentication.k8s.io/v1beta1")
        self.assertNotIn("secret", f"{found!r} {found.lease!r} {found.key}")
        self.assertNotIn(hashlib.sha256(b"secret").hexdigest(), found.key)

    def test_times(self) -> None:
        """Users and rejections are kept for their time; errors are not."""
        rejected = {"authenticated": False}
        for token, status, user in ((b"a", self.hook.status, "jane"), (b"b", rejected, None)):
            self.hook.status = status
            for seconds, asked in ((0, 1), (59.9, 1), (0.1, 2), (59.9, 2)):
                self.clock.advance(seconds)
                found = self.ask(token)
                self.assertEqual(None if found is None else found.user, user)
                self.assertEqual(len(self.hook.asked), asked)
            self.hook.asked.clear()
        for self.hook.status in (None, {"authenticated": False, "error": "no"}):
            self.refused(b"c")
            self.refused(b"c")
        self.assertEqual((len(self.hook.asked), len(self.method)), (4, 2))
        self.assertEqual((self.method.hits, self.method.misses), (4, 8))

    def test_nothing_kept(self) -> None:
        """With a time of 0, each request is a review."""
        self.method = self.new(ttl=0.0)
        found = self.user()
        self.assertRaises(Stale, self.method.check, found)
        self.assertIs(self.user(), found)
        self.hook.status = {}
        self.assertIsNone(self.ask())
        self.assertIsNone(self.ask())
        self.assertEqual(len(self.hook.asked), 4)

    def test_not_asked(self) -> None:
        """Tokens of Tower, long ones and missing ones never reach the program."""
        for token in (None, PREFIX.encode() + b"x", b"x" * (FOREIGN_TOKEN_LIMIT + 1)):
            self.assertIsNone(self.method.authenticate(Presented(None, token)))
        self.assertEqual(self.hook.asked, [])

    def test_audiences(self) -> None:
        """The token is for one of the audiences; a program that names none does not check them."""
        self.method = self.new(audiences=("a", "b"))
        for number, (audiences, known) in enumerate((([], True), (["x", "b"], True), (["x"], False))):
            self.hook.status = {"authenticated": True, "user": USER, "audiences": audiences}
            self.assertEqual(self.ask(b"%d" % number) is not None, known)
        self.assertEqual(self.hook.asked[0]["spec"]["audiences"], ["a", "b"])
        self.hook.status = {"authenticated": False, "error": "no", "audiences": ["x"]}
        self.assertIsNone(self.ask(b"error"))

    def test_names(self) -> None:
        """Reserved and malformed names are rejected; service accounts have theirs."""
        for user in (
            {"username": ""},
            {"username": "system:admin"},
            {"username": "tower:x"},
            {"username": "jane", "groups": ["tower:admins"]},
            {"username": "jane", "groups": ["system:masters"]},
            {"username": "jane", "groups": ["system:serviceaccounts"]},
            {"username": "jane", "groups": [f"g{i}" for i in range(300)]},
            {"username": "jane\n"},
            {"username": "jane", "uid": "\x00"},
            {"username": "jane", "extra": {"k": ["v"] * 65}},
            {"username": "jane", "extra": {"": ["v"]}},
            {"username": "jane", "extra": {"k": ["v" * 9000, "w" * 9000]}},
            {"username": "jane", "uid": "7" * 17_000},
            {"username": "system:serviceaccount:a:b", "groups": ["system:serviceaccounts:c"]},
            {"username": "system:serviceaccount:a:b", "groups": ["system:masters"]},
        ):
            self.hook.status = {"authenticated": True, "user": user}
            self.assertIn("the webhook gives", self.refused().reason, user)
        groups = ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated", "dev"]
        user = {"username": "system:serviceaccount:a:b", "groups": groups}
        self.hook.status = {"authenticated": True, "user": user}
        self.assertEqual(self.user().groups, (*groups[:2], "dev"))

    def test_texts(self) -> None:
        """The log has the reason; the client does not get what the program reports."""
        self.hook.status = {"authenticated": False, "error": "ldap://10.0.0.7 is down"}
        error = self.refused()
        self.assertEqual(error.reason, "ldap://10.0.0.7 is down")
        self.assertNotIn("ldap", str(error))
        with capturedLogs() as events:
            for self.hook.status in (None, None, {"authenticated": False}, None):
                found = self.method.authenticate(Presented(None, b"%d" % len(self.hook.asked)))
                assert isinstance(found, Deferred)
                found.addErrback(lambda failure: failure.trap(Unauthorized))
        failed = (
            "the webhook failed: POST hook:443: answered 503: closed; tokens that it does not know yet are "
            "rejected"
        )
        self.assertEqual([formatEvent(e) for e in events], [failed, "the webhook answers again", failed])

    def test_quoted_token(self) -> None:
        """A program that quotes the token in its error does not bring it into the log."""
        token = b"eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"
        self.hook.status = {"authenticated": False, "error": f"cannot verify {token.decode()}"}
        with capturedLogs() as events:
            error = self.refused(token)
        self.assertNotIn("eyJ", error.reason + str(error) + "".join(map(formatEvent, events)))

    def test_clock_set_back(self) -> None:
        """A clock that is set back makes no answer count longer."""
        found = self.user()
        self.hook.status = {"authenticated": False}
        self.assertIsNone(self.ask(b"other"))
        asked = len(self.hook.asked)
        self.clock.rightNow -= 300
        self.hook.waits = True
        for _ in range(3):
            self.assertRaises(Stale, self.method.check, found)
        self.hook.answer()
        self.hook.waits = False
        error = self.assertRaises(Unauthorized, self.method.check, found)
        self.assertNotIsInstance(error, Stale)
        self.assertIsNone(self.ask(b"other"))
        self.assertEqual(len(self.hook.asked), asked + 2)

    def test_together(self) -> None:
        """Requests with the same token wait for one review, also if one of them ends."""
        self.hook.waits = True
        waiting = [self.method.authenticate(Presented(None, b"t")) for _ in range(3)]
        first, second, third = [each for each in waiting if isinstance(each, Deferred)]
        self.assertEqual((self.method.in_flight, self.method.blocked), (1, 3))
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.hook.answer()
        self.assertIs(self.successResultOf(first), self.successResultOf(third))
        self.assertEqual((len(self.hook.asked), self.method.in_flight), (1, 0))

    def test_slow(self) -> None:
        """A program that does not answer in time has failed, repetitions included."""
        self.hook.waits = True
        found = self.method.authenticate(Presented(None, b"t"))
        assert isinstance(found, Deferred)
        self.clock.advance(29)
        self.assertNoResult(found)
        self.clock.advance(1)
        error: Any = self.failureResultOf(found, Unauthorized).value
        self.assertEqual(error.reason, "no answer within 30 s")

    def test_live_connections(self) -> None:
        """An old answer is renewed in the background; sessions go on until it comes, or if none comes."""
        found = self.user()
        self.method.check(found)
        self.clock.advance(60)
        self.hook.waits = True
        for _ in range(3):
            self.assertRaises(Stale, self.method.check, found)
        self.assertEqual(len(self.hook.asked), 2)
        self.hook.answer()
        self.method.check(found)
        self.assertIs(self.user(), found)

        self.clock.advance(60)
        self.hook.waits, self.hook.status = False, None
        for seconds, asked in ((0, 3), (1, 3), (60, 4)):
            self.clock.advance(seconds)
            self.assertRaises(Stale, self.method.check, found)
            self.assertEqual(len(self.hook.asked), asked)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_lost(self) -> None:
        """A session ends when its token has no user any more, another one, or other groups."""
        answers: list[dict[str, Any]] = [
            {"authenticated": False},
            {"authenticated": False, "error": "gone"},
            {"authenticated": True, "user": {**USER, "username": "joe"}},
            {"authenticated": True, "user": {**USER, "groups": []}},
            {"authenticated": True, "user": {**USER, "username": "system:admin"}},
        ]
        for number, status in enumerate(answers):
            self.hook.status = {"authenticated": True, "user": USER}
            found = self.user(b"%d" % number)
            self.clock.advance(60)
            self.hook.status = status
            self.assertRaises(Stale, self.method.check, found)
            self.assertNotIsInstance(self.assertRaises(Unauthorized, self.method.check, found), Stale)
            assert found.lease is not None
            self.assertLess(found.lease.until, 0)

    def test_often(self) -> None:
        """Live connections are not reviewed more often than the limit."""
        self.method = self.new(ttl=1.0)
        found = self.user()
        self.clock.advance(AGAIN - 1)
        self.assertRaises(Stale, self.method.check, found)
        self.assertEqual(len(self.hook.asked), 1)
        self.clock.advance(1)
        self.assertRaises(Stale, self.method.check, found)
        self.assertEqual(len(self.hook.asked), 2)

    def test_bounds(self) -> None:
        """The least recently used answers are dropped; rejections do not replace users."""
        self.patch(token_reviewer, "KEPT", 3)
        found = self.user(b"first")
        self.hook.status = {}
        for number in range(10):
            self.ask(b"%d" % number)
        self.assertEqual(len(self.method), 4)
        self.assertIs(self.user(b"first"), found)
        self.hook.status = {"authenticated": True, "user": USER}
        for number in range(10):
            self.ask(b"x%d" % number)
        self.assertEqual(len(self.method), 6)
        asked = len(self.hook.asked)
        again = self.user(b"first")
        self.assertEqual((len(self.hook.asked), again), (asked + 1, found))
        self.assertIs(again.lease, found.lease)  # so a live connection follows

    def test_abandoned(self) -> None:
        """A review ends with the last request that waits for it, and is not reported as a failure."""
        self.hook.waits = True
        with capturedLogs() as events:
            for number in range(3):
                waiting = [self.method.authenticate(Presented(None, b"%d" % number)) for _ in range(2)]
                for each in waiting:
                    assert isinstance(each, Deferred)
                    each.cancel()
                    self.failureResultOf(each, CancelledError)
        self.assertEqual((self.method.in_flight, self.method.blocked), (0, 0))
        self.assertEqual((events, self.method.fetches), ([], {"ok": 0, "error": 0}))
        self.hook.waits = False
        self.assertEqual(self.user(b"0").user, "jane")

    def test_flood(self) -> None:
        """The reviews of unknown tokens are limited; those of known ones do not wait for them."""
        known = self.user(b"known")
        self.clock.advance(60)
        self.hook.waits = True
        numbers = range(token_reviewer.WAITING_LIMIT)
        waiting = [self.method.authenticate(Presented(None, b"%d" % number)) for number in numbers]
        self.assertEqual(len(self.hook.waiting), token_reviewer.PARALLEL)
        error = self.assertRaises(Unauthorized, self.method.authenticate, Presented(None, b"another"))
        self.assertIn("500 unknown tokens wait", error.reason)
        waiting.append(self.method.authenticate(Presented(None, b"0")))
        self.assertEqual(self.method.in_flight, token_reviewer.WAITING_LIMIT)

        self.assertRaises(Stale, self.method.check, known)
        found = self.method.authenticate(Presented(None, b"known"))
        assert isinstance(found, Deferred)
        self.assertEqual(len(self.hook.waiting), token_reviewer.PARALLEL + 1)
        self.hook.waiting.pop().callback(None)
        self.assertIs(self.successResultOf(found), known)
        self.clock.advance(30)
        for each in waiting:
            assert isinstance(each, Deferred)
            self.failureResultOf(each, Unauthorized)
        self.assertEqual(self.method.in_flight, 0)
