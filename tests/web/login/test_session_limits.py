"""Tests of the limit of a user's sessions in `tower.web.login.session_requests`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.logins import SERVER, LoginKit
from tower.clusters.login import login_sessions
from tower.clusters.login.login_session import LoginSession
from tower.errors import Conflict
from tower.store.records import StoreFailed
from tower.trust.session_tokens import public_text
from tower.web.access.authentication.login.confirmer import AGE
from tower.web.login import session_requests

LIMIT = 3


class SessionLimitTests(SynchronousTestCase):
    """A user with as many sessions as possible, and another user."""

    def setUp(self) -> None:
        """Begin the sessions."""
        self.patch(session_requests, "PERSON_LIMIT", LIMIT)
        self.kit = LoginKit(self)
        self.joe = self.kit.begun(sub="joe")
        self.sessions = []
        for name in ("a", "b", "c"):
            self.sessions.append(self.kit.begun(f"refresh-{name}"))
            self.kit.clock.advance(1)

    def begin(self) -> Deferred[LoginSession]:
        """Begin a further session of the user."""
        kit = self.kit
        token = kit.id_token(iat=int(kit.clock.seconds()) - 300)
        body = {"publicKey": public_text(kit.key), "server": SERVER, "refreshToken": "refresh-x"}
        return Deferred.fromCoroutine(kit.beginning.begin(kit.user(token), token, body))

    def ids(self) -> list[str]:
        """Return the IDs of the user's sessions."""
        return [each.id for each in self.kit.sessions.of_user("jane")]

    def test_next(self) -> None:
        """The next session of a user with many ends the least recently used; others stay."""
        kit = self.kit
        kit.in_use.append(self.sessions[0].id)
        kit.pass_time(AGE + 10)
        self.assertEqual(kit.requests.asked, ["refresh-a"])
        new = kit.begun("refresh-d")
        self.assertEqual(set(self.ids()), {self.sessions[0].id, self.sessions[2].id, new.id})
        self.assertEqual(kit.requests.revoked, ["refresh-b"])
        self.assertEqual(kit.sessions.of_user("joe"), [self.joe])
        self.assertEqual(kit.sessions.of_user("x"), [])

    def test_concurrent(self) -> None:
        """Logins at the same time leave no more sessions than the limit, and these are the new ones."""
        create, waiting = self.kit.store.create, list[Deferred[None]]()

        def slow(*arguments: Any) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1].addCallback(lambda _: create(*arguments))

        self.patch(self.kit.store, "create", slow)
        beginning = [self.begin() for _ in range(LIMIT)]
        self.assertEqual(self.ids(), [each.id for each in self.sessions])
        for each in waiting:
            each.callback(None)
        self.assertEqual(set(self.ids()), {self.successResultOf(each).id for each in beginning})

    def test_failed_login(self) -> None:
        """A login that fails ends no session."""
        self.patch(login_sessions, "SESSIONS_LIMIT", LIMIT + 1)
        self.failureResultOf(self.begin(), Conflict)
        self.assertEqual(self.ids(), [each.id for each in self.sessions])

    def test_store_failed(self) -> None:
        """A session that the store cannot remove is logged, and the next login ends it."""
        delete = self.kit.store.delete

        def failing(*_: object) -> None:
            raise StoreFailed("the disk is full")

        self.patch(self.kit.store, "delete", failing)
        with capturedLogs() as logged:
            self.successResultOf(self.begin())
        self.assertIn("goes on until the user's next login: the disk is full", eventAsText(logged[-1]))
        self.assertEqual(len(self.ids()), LIMIT + 1)
        self.patch(self.kit.store, "delete", delete)
        self.successResultOf(self.begin())
        self.assertEqual(len(self.ids()), LIMIT)
