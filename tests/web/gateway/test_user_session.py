"""Tests for `tower.web.gateway.user_session`."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FORWARDING, IDENTITY, FakeSessions, FakeUser, Jane, as_sessions, connection
from tower.errors import Forbidden
from tower.http.requests import Fields
from tower.web.gateway.user_session import UserSession
from tower.web.peer import Peer


class UserSessionTests(SynchronousTestCase):
    """The session of a connection."""

    def setUp(self) -> None:
        """Begin a session of jane with alpha."""
        self.sessions, self.ends = FakeSessions(), list[str]()
        self.jane: Any = cast(Any, Jane())
        self.session = UserSession(as_sessions(self.sessions), Peer(connection(FakeUser())))
        self.session.enter(self.jane, "alpha", self.ends.append)

    def test_one_at_a_time(self) -> None:
        """A new session ends the one before; leaving twice ends it once."""
        self.assertEqual((self.session.identity, self.session.cluster), (self.jane, "alpha"))
        joe: Any = cast(Any, Jane("joe"))
        self.session.enter(joe, "beta", self.ends.append)
        self.assertEqual([(who, where) for who, where, _ in self.sessions.inside], [(joe, "beta")])
        for _ in range(2):
            self.session.leave()
            self.assertEqual(self.sessions.inside, [])
            self.assertIsNone(self.session.identity)

    def test_lines(self) -> None:
        """The lines of equal fields are cached for an identity and all clusters, but not for another one."""
        fields = Fields(b"Host: h\r\n\r\n")
        lines = self.session.write(fields)
        self.assertEqual(lines, IDENTITY + b"Host: h\r\n" + FORWARDING + b"\r\n")
        self.session.enter(self.jane, "beta", self.ends.append)
        self.assertIs(self.session.write(fields), lines)
        joe: Any = cast(Any, Jane("joe", ()))
        self.session.enter(joe, "beta", self.ends.append)
        self.assertEqual(
            self.session.write(fields), b"Impersonate-User: joe\r\nHost: h\r\n" + FORWARDING + b"\r\n"
        )
        self.assertIn(b"\r\nHost: i\r\n", self.session.write(Fields(b"Host: i\r\n\r\n")))

    def test_refused(self) -> None:
        """Rejected fields are rejected again."""
        fields = Fields(b"Host: h\r\nImpersonate-User: root\r\n\r\n")
        for _ in range(2):
            self.assertRaises(Forbidden, self.session.write, fields)


class PeerTests(SynchronousTestCase):
    """The client's end of a connection."""

    def test_once(self) -> None:
        """Each property is read on first use, and once."""
        user = FakeUser()
        peer = Peer(connection(user))
        user.certificate = b"other"
        self.assertEqual((peer.certificate, peer.address), (b"other", "192.0.2.7"))
        user.certificate = None
        self.assertEqual((peer.certificate, peer.forwarding), (b"other", FORWARDING))
