"""Tests of `tower.web.access.authentication.login.revoker`."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import ISSUER, URL
from tests.fakes.logins import LoginKit
from tower.clusters.login.login_session import LoginSession
from tower.store.records import StoreFailed
from tower.web.access.authentication.login.confirmer import AGE
from tower.web.access.authentication.login.revoker import CONCURRENT, WAITING
from tower.web.access.authentication.login.token_endpoint import ProviderUnavailable, RefreshedTokens

OTHER = "https://other.example"


class RevokerTests(SynchronousTestCase):
    """A session of a provider, and others like it.

    :ivar waiting: for the provider's answers; *begun*: the tokens.
    """

    def setUp(self) -> None:
        """Begin the session."""
        self.kit = LoginKit(self)
        self.session = self.kit.begun()
        self.waiting: list[Deferred[None]] = []
        self.begun: list[str] = []

    def revoke(self, session: LoginSession, count: int = 1) -> list[str]:
        """Revoke its token, or several newer ones; return the log."""
        with capturedLogs() as found:
            for number in range(count):
                self.kit.revoker.revoke(session, f"{session.user}-{number}" if count > 1 else "")
        return [str(eventAsText(each)) for each in found]

    def wait(self) -> None:
        """Let the provider not answer."""

        async def revoke(_provider: Any, _client: str, token: str) -> None:
            self.begun.append(token)
            self.waiting.append(Deferred())
            await self.waiting[-1]

        self.patch(self.kit.requests, "revoke", revoke)

    def test_rotated_and_ended(self) -> None:
        """The end of a session revokes its newest refresh token, stored or not, also one that comes later."""
        update = self.kit.store.update

        def fail(*_: object) -> None:
            raise StoreFailed("the disk is full")

        for name, is_full, is_late in (("a", False, False), ("b", True, False), ("c", False, True)):
            session = self.kit.begun(f"{name}-1")
            self.kit.in_use[:] = [session.id]
            self.kit.requests.answer = None if is_late else RefreshedTokens("", f"{name}-2")
            self.patch(self.kit.store, "update", fail if is_full else update)
            self.kit.pass_time(AGE + 10)
            self.assertEqual(self.kit.requests.asked.pop(), f"{name}-1")
            self.successResultOf(Deferred.fromCoroutine(self.kit.beginning.end(session)))
            self.kit.requests.release(f"{name}-2")
            self.assertIn(f"{name}-2", self.kit.requests.revoked)

    def test_not_revoked(self) -> None:
        """A refresh token that cannot be revoked is logged, once for each problem of the provider."""
        logged: list[str] = []
        for problem, count in (("503", 1), ("503", 1), ("400", 2), (None, 2), ("400", 3)):
            error = None if problem is None else ProviderUnavailable(f"answered {problem}")
            self.kit.requests.revocation = error
            logged += self.revoke(self.session)
            self.assertEqual(len(logged), count, logged)
        self.assertIn(f"a refresh token of {URL} was not revoked: answered 503", logged[0])
        self.assertNotIn("refresh-1", "".join(logged))
        self.assertEqual(self.kit.requests.revoked, ["refresh-1"] * 5)

    def test_nothing_to_revoke(self) -> None:
        """A session without a refresh token, or of an issuer that is not configured any more, needs none."""
        for session in (evolve(self.session, sealed=""), evolve(self.session, issuer=OTHER)):
            self.assertEqual(self.revoke(session), [])
        self.assertEqual(self.kit.requests.revoked, [])

    def test_limit(self) -> None:
        """A provider that does not answer gets few requests at a time, and does not delay another one."""
        self.wait()
        self.kit.oidc.use((ISSUER, evolve(ISSUER, url=OTHER)))
        self.revoke(self.session, CONCURRENT + 2)
        self.assertEqual(len(self.waiting), CONCURRENT)
        self.revoke(evolve(self.session, issuer=OTHER))
        self.assertEqual(len(self.waiting), CONCURRENT + 1)
        self.waiting[0].callback(None)
        self.assertEqual(len(self.waiting), CONCURRENT + 2)

    def test_user_with_many(self) -> None:
        """The revocations of a user who ends sessions in a loop are limited, and do not delay other users."""
        self.wait()
        logged = self.revoke(self.session, CONCURRENT + WAITING + 50)
        (line,) = logged
        self.assertIn(f"refresh tokens of jane are not revoked: {WAITING} of them wait for {URL}", line)
        self.assertNotIn("jane-", line)
        self.assertEqual(self.revoke(evolve(self.session, user="joe"), 2), [])
        for number in range(WAITING + 2):
            self.waiting[number].callback(None)
        self.assertIn("joe-0", self.begun[: CONCURRENT + 2])
        self.assertEqual(len(self.begun), CONCURRENT + WAITING + 2)
        self.assertEqual(len(self.revoke(self.session, WAITING + 1)), 1)

    def test_unexpected_error(self) -> None:
        """An error that is not the provider's is logged, and the tokens that wait are still revoked."""
        self.wait()
        self.revoke(self.session, CONCURRENT + 2)
        self.waiting[0].errback(ZeroDivisionError())
        self.waiting[CONCURRENT].callback(None)
        self.assertEqual(len(self.begun), CONCURRENT + 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stop(self) -> None:
        """A stop cancels all requests, begins none that waits, and logs nothing."""
        self.wait()
        self.revoke(self.session, CONCURRENT + 2)
        with capturedLogs() as found:
            self.kit.revoker.stop()
        self.assertEqual((len(self.waiting), list(found)), (CONCURRENT, []))
        self.assertTrue(all(each.called for each in self.waiting))
