"""Tests of `tower.web.access.authentication.login.confirmer`; see also `test_many_sessions`."""

from __future__ import annotations

from random import Random

from attrs import evolve

from tests.fakes.id_tokens import ISSUER
from tests.fakes.logins import LoginKit
from tests.web.access.authentication.login.session_case import SessionCase
from tower.errors import Outdated, Unauthorized
from tower.kube.status import StatusError
from tower.store.records import StoreFailed
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.login import confirmation_queue, confirmer
from tower.web.access.authentication.login.confirmer import AGE, JITTER, LIMIT, WAIT
from tower.web.access.authentication.login.token_endpoint import (
    ProviderRefused,
    ProviderUnavailable,
    RefreshedTokens,
)
from tower.web.access.authentication.oidc.expressions import parsed_expression
from tower.web.access.authentication.oidc.issuer import ValidationRule


class ConfirmerTests(SessionCase):
    """One session, and a provider that confirms it, or does not."""

    def test_confirmed_while_in_use(self) -> None:
        """A session in use is confirmed before ten minutes have passed, and its requests go on for hours."""
        user = self.user()
        self.kit.in_use.append(self.session.id)
        for _ in range(30):
            self.kit.pass_time(200)
            self.kit.method.check_lasting(user)
        self.assertGreaterEqual(len(self.kit.requests.asked), int(6000 / AGE))
        self.assertLessEqual(len(self.kit.requests.asked), int(6000 / (AGE - JITTER)))

    def test_not_confirmed_unused(self) -> None:
        """A session without use is not confirmed; its next request waits for the provider."""
        self.kit.pass_time(3600)
        self.assertEqual(self.kit.requests.asked, [])
        self.kit.requests.answer = None
        waiting = [self.asked(self.kit.token(self.session)) for _ in range(3)]
        self.assertEqual(self.kit.requests.asked, ["refresh-1"])
        for each in waiting:
            self.assertNoResult(each)
        self.kit.requests.release()
        for each in waiting:
            self.assertEqual(self.successResultOf(each).user, "jane")
        self.assertIsInstance(self.asked(self.kit.token(self.session)), Identity)

    def test_slow_provider(self) -> None:
        """Requests wait for a bounded time, and few requests to the provider are made at a time."""
        self.patch(confirmation_queue, "CONCURRENT", 2)
        sessions = [self.session, *(self.kit.begun() for _ in range(3))]
        self.kit.pass_time(3600)
        self.kit.requests.answer = None
        waiting = [self.asked(self.kit.token(each)) for each in sessions]
        self.assertEqual(len(self.kit.requests.asked), 2)
        self.kit.clock.advance(WAIT)
        for each in waiting:
            self.assertEqual(self.failureResultOf(each, StatusError).value.code, 503)
        self.kit.requests.release()
        for each in sessions:
            self.assertIsInstance(self.asked(self.kit.token(each)), Identity)

    def test_removed_user(self) -> None:
        """A user that the provider does not confirm is out within ten minutes."""
        user = self.user()
        self.kit.in_use.append(self.session.id)
        self.kit.requests.answer = ProviderRefused("invalid_grant")
        self.kit.pass_time(AGE + 10)
        self.assertRaises(Unauthorized, self.kit.method.check_lasting, user)
        self.assertIn("has ended", self.refused(self.kit.token(self.session)))
        self.assertIsNone(self.kit.sessions.find(self.session.id))

    def test_removed_user_at_any_time(self) -> None:
        """Whatever the use of a session before and after that, no request is accepted ten minutes later."""
        accepted = rejected = 0
        for seed in range(25):
            random = Random(seed)
            kit = self.kit = LoginKit(self)
            session, removed = kit.begun(), float("inf")
            user = self.user(kit.token(session))
            for _ in range(25):
                kit.pass_time(random.choice((1, 20, 60, 150, AGE - 1, AGE + 1, LIMIT + 1)))
                now = kit.clock.seconds()
                if now < removed and random.random() < 0.1:
                    kit.requests.answer, removed = ProviderRefused("invalid_grant"), now
                kit.in_use[:] = [session.id] if random.random() < 0.2 else []
                try:
                    if random.random() < 0.5:
                        kit.method.check_lasting(user)
                    else:
                        user = self.user(kit.token(session))
                except (Unauthorized, Outdated):
                    rejected += removed < now
                else:
                    accepted += removed < now
                    self.assertLess(now - removed, 600, seed)
        self.assertGreater(min(accepted, rejected), 10)

    def test_removed_user_on_a_full_disk(self) -> None:
        """A refused session that the store cannot remove is over, and is removed once the store can."""
        user, delete = self.user(), self.kit.store.delete
        self.kit.in_use.append(self.session.id)
        self.kit.requests.answer = ProviderRefused("invalid_grant")

        def fail(*_: object) -> None:
            raise StoreFailed("the disk is full")

        self.patch(self.kit.store, "delete", fail)
        self.kit.pass_time(AGE + 10)
        self.assertRaises(Unauthorized, self.kit.method.check_lasting, user)
        self.kit.in_use.clear()
        self.kit.requests.answer = RefreshedTokens("", "")
        self.kit.pass_time(20)
        self.failureResultOf(self.asked(self.kit.token(self.session)), Unauthorized)
        self.patch(self.kit.store, "delete", delete)
        self.kit.pass_time(10)
        self.assertEqual((self.kit.sessions.list(), self.kit.requests.asked), ([], ["refresh-1"]))

    def test_provider_is_down(self) -> None:
        """Without the provider, requests end after ten minutes, and the session goes on later."""
        user = self.user()
        self.kit.in_use.append(self.session.id)
        self.kit.requests.answer = ProviderUnavailable("no answer")
        self.kit.pass_time(LIMIT - 10)
        self.kit.method.check_lasting(user)
        self.kit.pass_time(20)
        self.assertRaises(Outdated, self.kit.method.check_lasting, user)
        waiting = self.asked(self.kit.token(self.session))
        failure = self.failureResultOf(waiting, StatusError)
        self.assertEqual(failure.value.code, 503)
        self.kit.requests.answer = RefreshedTokens("", "")
        self.assertEqual(self.user().user, "jane")
        self.kit.method.check_lasting(user)

    def test_rotated_refresh_token(self) -> None:
        """A new refresh token replaces the former one, also if the store fails for a while."""
        self.patch(confirmer, "JITTER", 0.0)
        self.kit.in_use.append(self.session.id)
        self.kit.requests.answer = RefreshedTokens("", "refresh-2")
        self.kit.pass_time(AGE + 10)
        self.assertEqual(self.kit.sessions.refresh_token(self.kept()), "refresh-2")

        def fail(*_: object) -> None:
            raise StoreFailed("the disk is full")

        update = self.kit.store.update
        self.patch(self.kit.store, "update", fail)
        self.kit.requests.answer = RefreshedTokens("", "refresh-3")
        self.kit.pass_time(AGE + 10)
        self.patch(self.kit.store, "update", update)
        self.kit.requests.answer = RefreshedTokens("", "refresh-4")
        self.kit.pass_time(AGE + 10)
        self.assertEqual(self.kit.requests.asked, ["refresh-1", "refresh-2", "refresh-3"])
        self.assertEqual(self.kit.sessions.refresh_token(self.kept()), "refresh-4")

    def test_changed_groups(self) -> None:
        """Groups that the provider has changed count from the next confirmation on."""
        user = self.user()
        self.kit.in_use.append(self.session.id)
        self.kit.clock.advance(AGE)
        self.kit.requests.answer = RefreshedTokens(self.kit.id_token(groups=["ops"], jti="x").decode(), "")
        self.kit.confirmer.check()
        for check in (self.kit.method.check, self.kit.method.check_lasting):
            self.assertRaises(Outdated, check, user)
        self.assertEqual(self.user().groups, ("ops",))

    def test_another_user(self) -> None:
        """A provider that answers with another user's token ends the session."""
        self.kit.in_use.append(self.session.id)
        self.kit.clock.advance(AGE)
        self.kit.requests.answer = RefreshedTokens(self.kit.id_token(sub="joe").decode(), "")
        self.kit.confirmer.check()
        self.assertIsNone(self.kit.sessions.find(self.session.id))

    def test_refresh_token_of_another(self) -> None:
        """So does a refresh token of another user, whose answers have no ID token."""
        self.kit.in_use.append(self.session.id)
        self.kit.clock.advance(AGE)
        self.kit.requests.answer, self.kit.requests.user = RefreshedTokens("", "", "access"), "joe"
        self.kit.confirmer.check()
        self.assertIsNone(self.kit.sessions.find(self.session.id))

    def test_user_not_known(self) -> None:
        """Without the user, a session is not confirmed; the next refresh token is kept nevertheless."""
        self.kit.in_use.append(self.session.id)
        self.kit.clock.advance(AGE)
        self.kit.requests.answer = RefreshedTokens("", "refresh-2", "access")
        self.kit.requests.user = ProviderUnavailable("no userinfo")
        self.kit.pass_time(LIMIT - AGE + 20)
        self.assertTrue(self.kit.confirmer.is_overdue(self.kept()))
        self.assertEqual(self.kit.requests.asked[:2], ["refresh-1", "refresh-2"])
        self.kit.requests.user = "jane"
        self.kit.pass_time(10)
        self.assertFalse(self.kit.confirmer.is_overdue(self.kept()))

    def test_forged_token(self) -> None:
        """A new ID token with a signature that cannot be verified does not confirm the user."""
        self.kit.in_use.append(self.session.id)
        self.kit.clock.advance(AGE)
        self.kit.requests.answer = RefreshedTokens(self.kit.id_token(name="other").decode(), "")
        self.kit.confirmer.check()
        self.kit.pass_time(LIMIT - AGE + 20)
        self.assertTrue(self.kit.confirmer.is_overdue(self.kept()))

    def test_groups_of_userinfo(self) -> None:
        """Without a new ID token, the groups at the userinfo endpoint count, and the rules about the user."""
        rule = ValidationRule(parsed_expression("user.groups.exists(group, group != 'banned')", "user"))
        self.kit.oidc.use((evolve(ISSUER, user_rules=(rule,)),))
        self.session = self.kit.begun(groups=["dev"])
        self.kit.in_use.append(self.session.id)
        for claims, groups in (({}, ("dev",)), ({"groups": ["ops"]}, ("ops",))):
            self.kit.requests.claims = claims
            self.kit.pass_time(AGE + 10)
            self.assertEqual(self.kept().groups, groups)
        self.kit.requests.claims = {"groups": ["banned"]}
        self.kit.pass_time(AGE + 10)
        self.assertIsNone(self.kit.sessions.find(self.session.id))

    def test_clock_set_back(self) -> None:
        """A confirmation in the future does not count, and no confirmation counts for longer."""
        kept = evolve(self.kept(), confirmed=self.kit.clock.seconds() + 3600)
        self.assertTrue(self.kit.confirmer.is_overdue(kept))
        self.user()
        self.patch(self.kit.confirmer, "_seconds", lambda: self.kit.clock.seconds() - 250)
        self.kit.clock.advance(LIMIT - 1)
        self.assertFalse(self.kit.confirmer.is_overdue(self.kept()))
        self.kit.clock.advance(1)
        self.assertTrue(self.kit.confirmer.is_overdue(self.kept()))
