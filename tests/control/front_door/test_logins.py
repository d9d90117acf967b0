"""Tests of `tower.control.front_door.logins`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.logins import LoginKit
from tower.control.front_door import logins
from tower.control.front_door.logins import Logins
from tower.kube.status import StatusError
from tower.web.access.authentication.login.confirmer import LIMIT
from tower.web.access.authentication.presented import Presented


class LoginsTests(SynchronousTestCase):
    """The services of logins, with a provider that does not answer."""

    def test_stop(self) -> None:
        """When the services stop, requests that wait for the provider and revocations end, without timers."""
        kit = LoginKit(self)
        kit.requests.answer = None
        self.patch(logins, "TokenEndpoint", lambda *_, **__: kit.requests)
        session = kit.begun()
        records: Any = SimpleNamespace(login_sessions=kit.sessions, clusters=kit.clusters)
        clock, policies = kit.clock, kit.policies.index
        found = Logins(kit.settings, clock, records, [kit.oidc], policies, clock.seconds, bytes, tuple)
        for each in found.services:
            each.startService()
        clock.advance(LIMIT)
        waiting = found.methods[0].authenticate(Presented(None, kit.token(session)))
        assert isinstance(waiting, Deferred)
        self.assertNoResult(waiting)
        self.patch(kit.requests, "revoke", lambda *_: deferLater(clock, 5))
        found.revoke(session)
        for each in (*found.services, kit.oidc):
            each.stopService()
        self.failureResultOf(waiting, StatusError)
        self.assertEqual(clock.getDelayedCalls(), [])
