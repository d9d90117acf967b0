"""Tests of `tower.web.access.authentication.login.method`."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred

from tests.fakes.id_tokens import CLIENT, ISSUER, URL
from tests.fakes.logins import LoginKit
from tests.web.access.authentication.login.session_case import SessionCase
from tower.errors import Unauthorized
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.oidc.issuer import ClaimSource
from tower.web.access.authentication.presented import Presented
from tower.web.login.login_settings import LoginSettings


class LoginMethodTests(SessionCase):
    """Tokens of one session."""

    def test_user(self) -> None:
        """A token is for the user of the ID token; other bearer tokens are of other methods."""
        user = self.user()
        self.assertEqual((user.user, user.groups, user.method), ("jane", ("dev",), "login"))
        self.assertEqual(user.session, self.session.id)
        self.assertTrue(user.uses(self.kit.token(self.session)))
        for other in (None, b"towerk-x", b"a.b.c"):
            self.assertIsNone(self.kit.method.authenticate(Presented(None, other)))

    def test_bad_tokens(self) -> None:
        """Tokens of another key, of no session, too long, expired and from the future are rejected."""
        kit, session = self.kit, self.session
        for token, text in (
            (kit.token(session, at=-301), "has expired"),
            (kit.token(session, at=120), "from the future"),
            (kit.token(session, lifetime=601), "longer than ten minutes"),
            (kit.token(evolve(session, id="s-x")), "has ended"),
            (kit.token(session)[:-4] + b"AAAA", "another key has signed it"),
        ):
            self.assertIn(text, self.refused(token))
            self.assertIn("tower login", self.refused(token))
        self.assertTrue(self.user(kit.token(session, at=50)))

    def test_cluster(self) -> None:
        """A token may be for one cluster only."""
        self.assertEqual(self.user().cluster, "")
        self.assertEqual(self.user(self.kit.token(self.session, cluster="alpha")).cluster, "alpha")

    def test_token_expires(self) -> None:
        """A request needs a valid token, also on a kept connection; a request in progress goes on."""
        user = self.user()
        self.kit.method.check(user)
        self.kit.pass_time(301)
        self.assertRaises(Unauthorized, self.kit.method.check, user)
        self.kit.method.check_lasting(user)
        self.assertLess(user.term[1], self.kit.clock.seconds())

    def test_ended(self) -> None:
        """The end of a session counts at once, for requests in progress, too."""
        user, token = self.user(), self.kit.token(self.session)
        self.successResultOf(Deferred.fromCoroutine(self.kit.sessions.end(self.session.id)))
        for check in (self.kit.method.check, self.kit.method.check_lasting):
            self.assertRaises(Unauthorized, check, user)
        self.assertIn("has ended", self.refused(token))

    def test_issuer_changed(self) -> None:
        """Sessions of an issuer that was changed or removed end."""
        user = self.user()
        self.kit.oidc.use((evolve(ISSUER, groups=ClaimSource("teams")),))
        self.assertIn(
            "was changed or removed", str(self.assertRaises(Unauthorized, self.kit.method.check, user))
        )
        self.kit.oidc.use(())
        self.assertIn("was changed or removed", self.refused(self.kit.token(self.session)))

    def test_session_expires(self) -> None:
        """At its end, a session is over."""
        user = self.user()
        self.kit.clock.advance(12 * 3600 + 1)
        self.assertRaises(Unauthorized, self.kit.method.check_lasting, user)

    def test_without_refresh_token(self) -> None:
        """A session that cannot be confirmed goes on until it expires."""
        kit = LoginKit(self, LoginSettings({URL: CLIENT}, requires_refresh=False))
        session = kit.begun("")
        self.assertFalse(session.is_confirmed_again)
        kit.clock.advance(11 * 3600)
        found = kit.method.authenticate(Presented(None, kit.token(session)))
        self.assertIsInstance(found, Identity)
