"""A gateway in memory with an audit log, as the base of tests."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import Lines, audit_to
from tests.fakes.gateway import FakeUser, Kit, as_sessions, get
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.request import Request
from tower.web.outcome import Relay

NOON = 1_795_348_800.25
STAMP = "2026-11-22T12:00:00.250000Z"
PODS = b"/clusters/alpha/api/v1/namespaces/default/pods"
UPGRADE = (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class AuditTestCase(SynchronousTestCase):
    """Common parts of the tests."""

    form = "json"

    def setUp(self) -> None:
        """Make a gateway with an audit log, and a user."""
        clock: Any = Clock()
        self.clock = clock
        self.clock.advance(NOON)
        self.kit = Kit()
        self.lines = Lines()
        self.audit = audit_to(self.lines, self.clock.seconds, self.form)
        self.serve(self.relayed)

    def serve(self, router: Any) -> None:
        """Route requests with *router*, for new users."""
        self.kit.gateway = Gateway(
            self.clock, router, self.kit.pool, as_sessions(self.kit.sessions), audit=self.audit
        )
        self.user = self.kit.connect()

    def relayed(self, request: Request) -> Relay:
        """Relay a request of jane to alpha."""
        request.identity = self.kit.jane
        request.audit("alpha")
        return Relay("alpha", b"/clusters/alpha")

    def ask(self, *arguments: Any, **more: Any) -> FakeUser:
        """Send a request as a new user."""
        self.user = self.kit.connect()
        self.user.deliver(get(*arguments, **more))
        return self.user
