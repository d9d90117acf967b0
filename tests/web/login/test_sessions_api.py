"""Tests of `tower.web.login.sessions_api`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.logins import LoginKit
from tower.errors import NotFound
from tower.kube.status import StatusError
from tower.web.api.calls.call import Call
from tower.web.api.table import TABLES
from tower.web.login.sessions_api import LoginSessionsApi
from tower.web.outcome import Response


class LoginSessionsApiTests(SynchronousTestCase):
    """Sessions of two users."""

    def setUp(self) -> None:
        """Begin them."""
        self.kit = LoginKit(self)
        self.api = LoginSessionsApi(self.kit.sessions, self.kit.clock, self.kit.revoker.revoke)
        self.first, self.second = self.kit.begun(groups=["dev"]), self.kit.begun(sub="joe")

    def ask(
        self,
        method: str,
        *below: str,
        query: dict[str, str] | None = None,
        accept: str = "",
        body: bytes = b"",
    ) -> Any:
        """Return the object of an answer."""
        path = ("apis", "g", "v", "loginsessions", *below)
        call = Call(method, path, query or {}, accept, "application/json", lambda: succeed(body))
        answer = self.successResultOf(Deferred.fromCoroutine(self.api.answer(call, below)))
        assert isinstance(answer, Response)
        return json.loads(answer.body)

    def test_list(self) -> None:
        """All sessions, or those of a user; without keys and tokens."""
        items = self.ask("GET")["items"]
        self.assertEqual({each["spec"]["user"] for each in items}, {"jane", "joe"})
        (item,) = self.ask("GET", query={"fieldSelector": "spec.user=joe"})["items"]
        self.assertEqual(item, self.ask("GET", self.second.id))
        self.assertEqual(
            sorted(item["spec"]), ["client", "confirmed", "expirationTimestamp", "groups", "issuer", "user"]
        )
        for each in ((), (self.first.id,)):
            rows = self.ask("GET", *each, accept=TABLES[0])["rows"]
            self.assertIn("jane", [cell for row in rows for cell in row["cells"]])

    def test_dry_run(self) -> None:
        """A dry run of a delete ends no session, and revokes no refresh token."""
        self.ask("DELETE", self.first.id, query={"dryRun": "All"})
        self.ask("DELETE", self.first.id, body=b'{"kind":"DeleteOptions","dryRun":["All"]}')
        self.assertEqual(self.kit.requests.revoked, [])
        self.assertEqual(self.kit.sessions.find(self.first.id), self.first)

    def test_end(self) -> None:
        """A delete ends a session, and revokes its refresh token."""
        self.assertEqual(self.ask("DELETE", self.first.id)["status"], "Success")
        self.assertEqual(self.kit.requests.revoked, ["refresh-1"])
        self.assertIsNone(self.kit.sessions.find(self.first.id))
        for method, below, kind in (
            ("DELETE", (self.first.id,), NotFound),
            ("GET", ("s-x",), NotFound),
            ("PUT", (self.second.id,), StatusError),
            ("GET", ("a", "b"), StatusError),
        ):
            answer = self.api.answer(Call(method, below), below)
            self.failureResultOf(Deferred.fromCoroutine(answer), kind)
