"""Tests of `tower.web.access.trusted_callers`, and of the logs that have its facts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.credentials import Credential, CredentialRole
from tower.http.requests import Fields
from tower.web.access.access_log import _shared
from tower.web.access.audit_formats import JSONLines
from tower.web.access.authentication.identity import ANONYMOUS, Identity
from tower.web.access.trusted_callers import Acting, acting

TOKEN = b"eyJhbGciOiJSUzI1NiJ9.e30.c2ln"
CLAIMS = b"impersonate-user: alice\r\nImpersonate-Group: dev\r\nImpersonate-Group: qa\r\n"


def identity(role: CredentialRole = "trusted-caller", kind: Any = "cert") -> Identity:
    """Return an identity with a credential of that role."""
    digest = hashlib.sha256(b"x").hexdigest()
    credential = Credential("c-1", "alpha", "u-1", "ks", ("ops",), kind, digest, 0.0, 60.0, role=role)
    return Identity("ks", ("ops",), credential)


def fields(*lines: bytes) -> Fields:
    """Return parsed fields."""
    return Fields(b"Host: h\r\n" + b"".join(lines) + b"\r\n")


class ActingTests(SynchronousTestCase):
    """Tests of `acting`."""

    def test_claims(self) -> None:
        """The impersonated user and groups, or nothing for the caller itself."""
        self.assertEqual(acting(identity(), fields(CLAIMS)), Acting("alice", ("dev", "qa")))
        self.assertEqual(acting(identity(), fields()), Acting())

    def test_token(self) -> None:
        """A token of the member counts only next to a certificate, and never one of Tower."""
        bearer = fields(b"Authorization: Bearer " + TOKEN + b"\r\n")
        self.assertEqual(acting(identity(), bearer), Acting(by_token=True))
        self.assertEqual(acting(identity(kind="token"), bearer), Acting())
        own = fields(b"Authorization: Bearer towerk-abc\r\n")
        self.assertEqual(acting(identity(), own), Acting())

    def test_others(self) -> None:
        """Users and anonymous clients have no such facts, whatever they send."""
        self.assertIsNone(acting(identity("user"), fields(CLAIMS)))
        self.assertIsNone(acting(ANONYMOUS, fields(CLAIMS)))


class LogTests(SynchronousTestCase):
    """The lines of both logs."""

    def line(self, facts: Acting | None) -> dict[str, Any]:
        """Return the keys of a line of the access log."""
        shared = _shared("192.0.2.7", "ks", "alpha", "kubernetes", b"GET", b"/api", b"", facts)
        line: dict[str, Any] = json.loads("{" + shared.rstrip(",") + "}")
        return line

    def test_access_log(self) -> None:
        """The access log has the role, the user or that there was a token; users' lines have neither."""
        line = self.line(Acting("alice", ("dev",)))
        self.assertEqual(
            (line["user"], line["role"], line["impersonatedUser"]), ("ks", "trusted-caller", "alice")
        )
        self.assertNotIn("memberToken", line)
        line = self.line(Acting(by_token=True))
        self.assertEqual((line["role"], line["memberToken"]), ("trusted-caller", "true"))
        self.assertNotIn("impersonatedUser", line)
        self.assertNotIn("role", self.line(None))

    def event(self, facts: Acting | None) -> dict[str, Any]:
        """Return an event of the audit log."""

        class Entry:
            """The facts of one request."""

            id, method, uri, relative = "i", b"GET", b"/api", b"/api"
            user, groups, cluster, credential = "ks", ("ops",), "alpha", "c-1"
            address, agent, received, upgrades = "192.0.2.7", b"", Clock().seconds(), False
            acting = facts

        entry: Any = Entry()
        event: dict[str, Any] = json.loads(JSONLines().received(entry))
        return event

    def test_audit_log(self) -> None:
        """So does the audit log, in the form of Kubernetes."""
        event = self.event(Acting("alice", ("dev", "qa")))
        self.assertEqual(event["user"], {"username": "ks", "groups": ["ops"]})
        self.assertEqual(event["impersonatedUser"], {"username": "alice", "groups": ["dev", "qa"]})
        role, token = "cluster.kubesphere.io/credential-role", "cluster.kubesphere.io/member-token"
        self.assertEqual(event["annotations"][role], "trusted-caller")
        self.assertNotIn(token, event["annotations"])
        event = self.event(Acting(by_token=True))
        self.assertEqual(event["annotations"][token], "true")
        self.assertNotIn("impersonatedUser", event)
        self.assertEqual(set(self.event(None)["annotations"]) & {role, token}, set())
