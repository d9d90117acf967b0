"""Tests of `tower.clusters.login.login_sessions`, and of the records."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.logins import LoginKit
from tests.fakes.stores import DelayedStore
from tower.clusters.login import login_sessions
from tower.clusters.login.login_session import LoginSession, encode_session
from tower.clusters.login.login_sessions import LoginSessions
from tower.errors import Conflict, NotFound
from tower.store.kinds import LOGIN_SESSIONS
from tower.trust.vault import new_key


class LoginSessionsTests(SynchronousTestCase):
    """Sessions in a store in memory."""

    def setUp(self) -> None:
        """Make the store."""
        self.kit = LoginKit(self)
        self.sessions = self.kit.sessions
        self.changes: list[tuple[str, bool]] = []
        self.sessions.watch(lambda session, ended: self.changes.append((session.id, ended)))

    def reloaded(self) -> LoginSessions:
        """Return the sessions as another process reads them."""
        return LoginSessions(self.kit.store, self.kit.clock, self.sessions.sealed.vault)

    def test_record(self) -> None:
        """A session survives a restart, with its refresh token sealed."""
        session = self.kit.begun()
        self.assertEqual(self.reloaded().find(session.id), session)
        self.assertEqual(self.reloaded().refresh_token(session), "refresh-1")
        self.assertNotIn("refresh-1", str(self.kit.store.snapshot(LOGIN_SESSIONS)))

    def test_expiry(self) -> None:
        """An expired session is not found, and is removed later."""
        session = self.kit.begun()
        self.kit.clock.advance(12 * 3600)
        self.assertIsNone(self.sessions.find(session.id))
        self.assertEqual(self.sessions.list(), [])
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.sessions.purge())), 1)
        self.assertEqual(len(self.sessions), 0)
        self.assertEqual(self.changes, [(session.id, True)])

    def test_end(self) -> None:
        """An ended session does not exist, and a second end fails."""
        session = self.kit.begun()
        self.successResultOf(Deferred.fromCoroutine(self.sessions.end(session.id)))
        self.assertIsNone(self.sessions.find(session.id))
        self.failureResultOf(Deferred.fromCoroutine(self.sessions.end(session.id)), NotFound)

    def test_changed_user(self) -> None:
        """Watchers are called if the user changes, but not for another refresh token."""
        session = self.kit.begun()
        self.successResultOf(Deferred.fromCoroutine(self.sessions.confirm(session, "refresh-2")))
        self.assertEqual(self.changes, [])
        changed = evolve(session, groups=("ops",))
        self.successResultOf(Deferred.fromCoroutine(self.sessions.confirm(changed, "")))
        self.assertEqual(self.changes, [(session.id, False)])

    def test_newer_record(self) -> None:
        """A record with an unknown field, which may limit the session, is not used."""
        session = self.kit.begun()
        value = {**encode_session(session), "limit": 1}
        self.successResultOf(self.kit.store.update(LOGIN_SESSIONS, session.id, value))
        self.assertIsNone(self.sessions.find(session.id))
        self.assertEqual(len(self.flushLoggedErrors()), 0)

    def test_limits(self) -> None:
        """The number of sessions of one user, and of all, is limited."""
        self.patch(login_sessions, "USER_LIMIT", 2)
        self.patch(login_sessions, "SESSIONS_LIMIT", 3)
        first = self.kit.begun()
        self.kit.begun()
        self.assertIn("sessions of", str(self.assertRaises(Conflict, self.kit.begun)))
        self.kit.begun(sub="joe")
        self.assertIn("limit of 3", str(self.assertRaises(Conflict, self.kit.begun, sub="jim")))
        self.successResultOf(Deferred.fromCoroutine(self.sessions.end(first.id)))
        self.assertIsInstance(self.kit.begun(), LoginSession)

    def test_limits_at_once(self) -> None:
        """Sessions that are not stored yet count, and an ended one does not."""
        self.patch(login_sessions, "USER_LIMIT", 2)
        session = self.kit.begun()
        store = DelayedStore()
        sessions = LoginSessions(store, self.kit.clock, self.sessions.sealed.vault)
        adding = [Deferred.fromCoroutine(sessions.add(session, "refresh-1")) for _ in range(3)]
        self.failureResultOf(adding.pop(), Conflict)
        store.commit()
        first, _ = self.successResultOf(gatherResults(adding))
        self.failureResultOf(Deferred.fromCoroutine(sessions.add(session, "refresh-1")), Conflict)
        ending = Deferred.fromCoroutine(sessions.end(first.id))
        store.commit()
        self.successResultOf(ending)
        again = Deferred.fromCoroutine(sessions.add(session, "refresh-1"))
        store.commit()
        self.successResultOf(again)

    def test_reseal(self) -> None:
        """A new key of the vault seals the refresh tokens again; sessions without one are skipped."""
        session = self.kit.begun()
        vault = self.sessions.sealed.vault
        vault.add_key(new_key())
        self.assertEqual(self.sessions.sealed.sealed_with_old_keys(), 1)
        self.assertEqual(self.successResultOf(self.sessions.sealed.reseal()), 1)
        self.assertEqual(self.sessions.sealed.sealed_with_old_keys(), 0)
        vault.drop_old_keys()
        kept = self.sessions.find(session.id)
        assert kept is not None
        self.assertEqual(self.sessions.refresh_token(kept), "refresh-1")
