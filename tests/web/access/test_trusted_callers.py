"""Tests of `tower.web.access.trusted_callers`, and of the logs that have its facts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.credentials import Credential, CredentialRole
from tower.http.requests import Fields
from tower.kube.audit.policy import METADATA, RECEIVED, AuditDecision
from tower.kube.system_identities import AUTHENTICATED
from tower.web.access.access_log import _shared
from tower.web.access.audit.formats import event_of
from tower.web.access.audit.request_entry import UNANSWERED
from tower.web.access.audit.request_line import request_line
from tower.web.access.authentication.identity import ANONYMOUS, Identity, UserInfo
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

    def test_right(self) -> None:
        """A user with the right to act as another one does not become a trusted caller."""
        sender = Identity("jane", ("dev",), method="test", key="jane")
        facts = (("scopes", ("a", "b")),)
        acted = evolve(
            sender,
            user="bob",
            groups=("qa",),
            uid="7",
            extra=facts,
            member=UserInfo("bob"),
            impersonator=sender,
        )
        expected = Acting("bob", ("qa",), is_caller=False, uid="7", extra=facts)
        self.assertEqual(acting(acted, fields(CLAIMS)), expected)
        self.assertIsNone(acting(sender, fields()))

    def test_claims(self) -> None:
        """The impersonated user and groups, or nothing for the caller itself."""
        self.assertEqual(acting(identity(), fields(CLAIMS)), Acting("alice", ("dev", "qa")))
        self.assertEqual(acting(identity(), fields()), Acting())
        more = b"Impersonate-Uid: 7\r\nImpersonate-Extra-a%2fB: x\r\nimpersonate-extra-a%2fb: y\r\n"
        self.assertEqual(
            acting(identity(), fields(CLAIMS, more)),
            Acting("alice", ("dev", "qa"), uid="7", extra=(("a/b", ("x", "y")),)),
        )
        malformed = acting(identity(), fields(CLAIMS, b"Impersonate-Extra-%41%2fB%zz: x\r\n"))
        self.assertEqual(malformed, Acting("alice", ("dev", "qa"), extra=(("%41%2fb%zz", ("x",)),)))

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

            id, line, recorded = "i", request_line(b"GET", b"/api", b"/api"), AuditDecision(METADATA)
            user, groups, cluster, credential = "ks", ("ops",), "alpha", "c-1"
            address, agent, received, upgrades = "192.0.2.7", b"", Clock().seconds(), False
            acting, member, policies, extra = facts, None, "", ()
            decision = reason = head = uid = ""

        entry: Any = Entry()
        event: dict[str, Any] = json.loads(event_of(entry, RECEIVED, UNANSWERED, 0.0))
        return event

    def test_audit_log(self) -> None:
        """So does the audit log, in the form of Kubernetes."""
        event = self.event(Acting("alice", ("dev", "qa")))
        self.assertEqual(event["user"], {"username": "ks", "groups": ["ops"]})
        self.assertEqual(
            event["impersonatedUser"], {"username": "alice", "groups": ["dev", "qa", AUTHENTICATED]}
        )
        role, token = "cluster.kubesphere.io/credential-role", "cluster.kubesphere.io/member-token"
        self.assertEqual(event["annotations"][role], "trusted-caller")
        self.assertNotIn(token, event["annotations"])
        event = self.event(Acting("alice", is_caller=False, uid="7", extra=(("scopes", ("a",)),)))
        self.assertEqual(
            event["impersonatedUser"],
            {"username": "alice", "uid": "7", "groups": [AUTHENTICATED], "extra": {"scopes": ["a"]}},
        )
        event = self.event(Acting(by_token=True))
        self.assertEqual(event["annotations"][token], "true")
        self.assertNotIn("impersonatedUser", event)
        self.assertEqual(set(self.event(None)["annotations"]) & {role, token}, set())
