"""A login session for tests of its use."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.logins import LoginKit
from tower.clusters.login.login_session import LoginSession
from tower.errors import TowerError, Unauthorized
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented


class SessionCase(SynchronousTestCase):
    """One session, and a provider that confirms it."""

    def setUp(self) -> None:
        """Begin the session."""
        self.kit = LoginKit(self)
        self.session = self.kit.begun(groups=["dev"])

    def asked(self, token: bytes) -> Any:
        """Return the result of `LoginMethod.authenticate`."""
        return self.kit.method.authenticate(Presented(None, token))

    def user(self, token: bytes | None = None) -> Identity:
        """Return the user of a token, by default of a new one."""
        found = self.asked(token or self.kit.token(self.session))
        if isinstance(found, Deferred):
            results: list[Any] = []
            found.addBoth(results.append)
            (found,) = results
            if isinstance(found, Failure):
                found.raiseException()
        assert isinstance(found, Identity)
        return found

    def refused(self, token: bytes, kind: type[TowerError] = Unauthorized) -> str:
        """Return the text of a rejected token."""
        return str(self.assertRaises(kind, self.asked, token))

    def kept(self) -> LoginSession:
        """Return the session as it is now."""
        found = self.kit.sessions.find(self.session.id)
        assert found is not None
        return found
