"""Tests of `tower.web.access.sessions`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import Issues, authenticated, issue
from tests.fakes.policies import Policies, cluster_of, spec_of, user_of
from tower.web.access.authentication.identity import ANONYMOUS
from tower.web.access.authorization.cluster_entry import Asked
from tower.web.access.sessions import Session, Sessions


class SessionsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Start with two users without sessions."""
        self.clock = Clock()
        self.issues = Issues()
        self.authenticator = self.issues.authenticator(self.clock)
        self.sessions = Sessions(self.authenticator)
        self.ended: list[tuple[str, str]] = []
        for name in ("jane", "joe"):
            self.issues.put(name.encode(), issue(name))

    def enter(self, who: str, cluster: str = "alpha") -> Session:
        """Begin a session."""
        identity = authenticated(self.authenticator, None, who.encode())
        return self.sessions.enter(identity, cluster, lambda reason: self.ended.append((who, reason)))

    def test_leave(self) -> None:
        """A session that has left is not aborted, and leaves nothing behind."""
        sessions = [self.enter("jane"), self.enter("jane"), self.enter("joe", "beta")]
        self.assertEqual(len(self.sessions), 3)
        for session in sessions * 2:
            self.sessions.leave(session)
        self.assertEqual(len(self.sessions), 0)
        self.assertEqual(self.sessions.cut("x", credential="c-jane", cluster="beta"), 0)
        self.assertEqual(self.ended, [])

    def test_cut_credential(self) -> None:
        """Revoking a credential aborts its sessions, and no other."""
        self.enter("jane")
        self.enter("joe")
        self.enter("jane", "beta")
        self.assertEqual(self.sessions.cut("revoked", credential="c-jane"), 2)
        self.assertEqual(self.ended, [("jane", "revoked")] * 2)
        self.assertEqual(len(self.sessions), 1)

    def test_cut_cluster(self) -> None:
        """Hole 5: disabling or removing a cluster aborts all its sessions, once."""
        self.enter("jane")
        self.enter("joe")
        self.enter("jane", "beta")
        self.assertEqual(self.sessions.cut("removed", cluster="alpha"), 2)
        self.assertEqual(sorted(self.ended), [("jane", "removed"), ("joe", "removed")])
        self.assertEqual(self.sessions.cut("removed", cluster="alpha", credential="c-joe"), 0)

    def test_anybody(self) -> None:
        """An anonymous session is aborted only with its cluster."""
        ended: list[str] = []
        leaving, staying = (self.sessions.enter(ANONYMOUS, "alpha", ended.append) for _ in range(2))
        self.assertTrue(self.sessions.leave(leaving))
        self.clock.advance(1e9)
        self.sessions.sweep()
        self.assertEqual(self.sessions.cut("revoked", credential=""), 0)
        self.assertEqual((ended, len(self.sessions)), ([], 1))
        self.assertEqual(self.sessions.cut("removed", cluster="alpha"), 1)
        self.assertEqual(ended, ["removed"])
        self.assertFalse(self.sessions.leave(staying))

    def test_sweep_expired(self) -> None:
        """A sweep aborts the sessions of expired credentials, with the reason; the others continue."""
        self.issues.put(b"joe", issue("joe", expires=1000.0))
        for who in ("jane", "jane", "joe"):
            self.enter(who)
        self.clock.advance(99)
        self.sessions.sweep()
        self.assertEqual(self.ended, [])
        self.clock.advance(1)
        self.sessions.sweep()
        self.assertEqual([who for who, _ in self.ended], ["jane", "jane"])
        self.assertIn("expired", self.ended[0][1])
        self.assertEqual(len(self.sessions), 1)

    def test_sweep_revoked(self) -> None:
        """A sweep also finds credentials that were revoked or removed in the store."""
        self.enter("jane")
        self.enter("joe")
        self.issues.put(b"jane", issue("jane", revoked=True))
        self.sessions.sweep()
        self.assertEqual([who for who, _ in self.ended], ["jane"])
        self.issues.all.clear()
        self.sessions.sweep()
        self.assertEqual([who for who, _ in self.ended], ["jane", "joe"])

    def test_one_that_cannot_be_ended(self) -> None:
        """An error in one abort is logged, and the other sessions are aborted."""

        def broken(reason: str) -> None:
            raise RuntimeError

        identity = authenticated(self.authenticator, None, b"jane")
        self.sessions.enter(identity, "alpha", broken)
        self.enter("jane")
        self.enter("joe")
        self.clock.advance(100)
        self.sessions.sweep()
        self.assertEqual(sorted(who for who, _ in self.ended), ["jane", "joe"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(len(self.sessions), 0)

    def test_ending_ends_others(self) -> None:
        """During a cut, an abort may end another session or begin a new one."""
        identity = authenticated(self.authenticator, None, b"jane")
        others: list[Session] = []
        chained: list[str] = []

        def chain(reason: str) -> None:
            chained.append(reason)
            for other in others:
                self.sessions.leave(other)
            self.enter("joe")

        others += [self.sessions.enter(identity, "alpha", chain) for _ in range(3)]
        self.assertEqual(self.sessions.cut("removed", cluster="alpha"), 1)
        self.assertEqual((chained, self.ended, len(self.sessions)), (["removed"], [], 1))


class AdmittedTests(SynchronousTestCase):
    """Sessions of users that access policies admitted."""

    def test_admitted(self) -> None:
        """They are listed until they end, with status 403 or with their credential."""
        policies = Policies()
        policies.put("p", spec_of())
        cluster = cluster_of()
        entered = policies.entry.admit(user_of(), cluster, "alpha", Asked())
        sessions = Sessions(Issues().authenticator(Clock()))
        ended: list[tuple[str, int]] = []
        first, second, third = (
            sessions.enter(entered, "alpha", lambda reason, code=401: ended.append((reason, code)))
            for _ in range(3)
        )
        sessions.enter(user_of("joe"), "alpha", self.fail)
        self.assertEqual(set(sessions.admitted), {first, second, third})
        self.assertTrue(sessions.end(first, "the policy was removed", 403))
        self.assertFalse(sessions.end(first, "again", 403))
        sessions.leave(second)
        self.assertEqual(sessions.cut("revoked", credential="test:jane"), 1)
        self.assertEqual(ended, [("the policy was removed", 403), ("revoked", 401)])
        self.assertEqual(len(sessions.admitted), 0)
