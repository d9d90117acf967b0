"""Tests of `tower.web.access.authentication.request_header`."""

from __future__ import annotations

from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW
from tests.fakes.client_certificates import Company, sent, subject
from tower.errors import Unauthorized
from tower.http.requests import Fields
from tower.trust.client_authorities import ClientAuthorities
from tower.trust.pki import Issued
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.request_header import (
    EXTRA_LIMIT,
    FrontProxyFields,
    RequestHeaderAuthenticator,
)

FIELDS = FrontProxyFields(
    (b"x-remote-user", b"x-user"), (b"x-remote-group", b"x-group"), (b"x-remote-uid",), (b"x-remote-extra-",)
)


@define
class File:
    """The file of the CAs."""

    value: ClientAuthorities


def fields(*lines: str) -> Fields:
    """Return the header of a request."""
    text = "".join(f"{line}\r\n" for line in ("Host: a", *lines))
    return Fields(text.encode() + b"\r\n", FIELDS.claims)


class RequestHeaderTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with one front proxy."""
        self.now = NOW
        self.company = Company.root("front")
        self.file = File(ClientAuthorities.of_pem(self.company.pem, lambda _: False))
        self.proxy = self.company.issue(subject("proxy"))
        self.method = self.of("proxy", "other-proxy")

    def of(self, *allowed: str, same: bool = False) -> RequestHeaderAuthenticator:
        """Return the method with these allowed names; *same*: the CA signs users' certificates, too."""
        return RequestHeaderAuthenticator(self.file, allowed, FIELDS, lambda: self.now, lambda _: same)

    def ask(self, *lines: str, by: Issued | None = None) -> Identity | None:
        """Return the user of a request."""
        chain = sent(by or self.proxy)
        return self.method.authenticate(Presented(chain[0], None, fields(*lines), lambda: chain))

    def user(self, *lines: str) -> Identity:
        """Return the user that the front proxy names."""
        identity = self.ask(*lines)
        assert identity is not None
        return identity

    def refusal(self, *lines: str, by: Issued | None = None) -> Unauthorized:
        """Return the rejection of a request."""
        with self.assertRaises(Unauthorized) as caught:
            self.ask(*lines, by=by)
        error: Unauthorized = caught.exception
        return error

    def test_user(self) -> None:
        """The fields name the user, all groups, the UID and further facts."""
        identity = self.user(
            "x-remote-user: jürgen",
            "X-Remote-Group: dev",
            "X-Group: qa",
            "X-Remote-Group: ops",
            "X-Remote-Group:",
            "X-Remote-Uid: u-1",
            "X-Remote-Extra-Scopes: a",
            "X-Remote-Extra-scopes: b",
            "X-Remote-Extra-example.org%2fKey: c",
            "X-Remote-Extra-%41%2fB%zz: d",
        )
        self.assertEqual(
            (identity.user, identity.groups, identity.uid), ("jürgen", ("dev", "qa", "ops"), "u-1")
        )
        self.assertEqual(
            identity.extra, (("scopes", ("a", "b")), ("example.org/key", ("c",)), ("%41%2fb%zz", ("d",)))
        )
        self.assertEqual((identity.method, identity.expires), ("request-header", NOW + DAY))
        self.assertIsNone(identity.credential)

    def test_precedence(self) -> None:
        """The first configured name that has a value counts, as for kube-apiserver."""
        self.assertEqual(self.user("X-User: joe", "X-Remote-User: jane").user, "jane")
        self.assertEqual(self.user("X-User: joe", "X-Remote-User:").user, "joe")

    def test_no_user(self) -> None:
        """Without a user, a certificate or such fields, other methods are asked."""
        self.assertIsNone(self.ask("X-Remote-Group: dev"))
        self.assertIsNone(self.ask("X-Remote-User:"))
        self.assertIsNone(self.ask("Impersonate-User: jane"))
        self.assertIsNone(self.ask())
        named = fields("X-Remote-User: jane")
        self.assertIsNone(self.method.authenticate(Presented(None, b"token", named)))
        self.assertIsNone(self.method.authenticate(Presented(sent(self.proxy)[0], None)))

    def test_names_of_proxies(self) -> None:
        """Only allowed names are front proxies; the reason in the log is that of kube-apiserver."""
        jane = self.company.issue(subject("jane"))
        refusal = self.refusal("X-Remote-User: admin", by=jane)
        self.assertEqual(refusal.reason, "x509: subject with cn=jane is not in the allowed list")
        self.assertIn("omit the header X-Remote-User", str(refusal))
        self.method = self.of()
        self.assertIsNotNone(self.ask("X-Remote-User: admin", by=jane))
        self.method = self.of(same=True)
        self.assertIsNone(self.ask("X-Remote-User: admin", by=jane))

    def test_other_authorities(self) -> None:
        """A certificate of another CA, also with an allowed name, is another method's."""
        for company in (Company.root("front"), Company.root("users")):
            self.assertIsNone(self.ask("X-Remote-User: admin", by=company.issue(subject("proxy"))))

    def test_dates(self) -> None:
        """The certificate of the front proxy must be valid at each request."""
        old = self.company.issue(subject("proxy"), NOW - DAY, NOW - 1)
        self.assertEqual(self.refusal("X-Remote-User: jane", by=old).kind, "expired")
        identity = self.user("X-Remote-User: jane")
        self.now += DAY + 1
        self.assertEqual(self.refusal("X-Remote-User: jane").kind, "expired")
        with self.assertRaises(Unauthorized) as caught:
            self.method.check(identity)
        self.assertIn("certificate of the front proxy of jane expired", str(caught.exception))

    def test_removed_authority(self) -> None:
        """Users end with the CA of their front proxy."""
        identity = self.user("X-Remote-User: jane")
        self.method.check(identity)
        self.file.value = ClientAuthorities.of_pem(Company.root().pem, lambda _: False)
        self.assertRaises(Unauthorized, self.method.check, identity)
        self.assertIsNone(self.ask("X-Remote-User: jane"))

    def test_sessions(self) -> None:
        """Each user of a front proxy has other sessions."""
        jane, joe = self.user("X-Remote-User: jane"), self.user("X-Remote-User: joe")
        self.assertNotEqual(jane.session, joe.session)
        self.assertEqual(jane.session, self.user("X-Remote-User: jane", "X-Remote-Group: dev").session)

    def test_doubtful(self) -> None:
        """Two users, reserved names and values that cannot be names are rejected, with the cure."""
        for lines, text in (
            (("X-Remote-User: jane", "x-remote-user: admin"), "names 2 users: correct"),
            (("X-Remote-User: jane", "X-Remote-Uid: 1", "X-Remote-Uid: 2"), "names 2 UIDs: correct"),
            (("X-Remote-User: system:admin",), "user 'system:admin': names with the prefix 'system:'"),
            (("X-Remote-User: jane", "X-Remote-Group: system:masters"), "group 'system:masters'"),
            (("X-Remote-User: jane", "X-Remote-Group: tower:admins"), "group 'tower:admins'"),
            (("X-Remote-User: \u202ejane",), "printable characters"),
            (("X-Remote-User: jane", "X-Remote-Extra-: a"), "extra value '': must be"),
            (("X-Remote-User: jane", "X-Remote-Extra-%0a: a"), "extra value '\\n': must be"),
            (("X-Remote-User: jane", "X-Remote-Extra-%ff: a"), "not UTF-8"),
            (
                ("X-Remote-User: jane", *(f"X-Remote-Extra-a: {i}" for i in range(EXTRA_LIMIT + 1))),
                f"more than {EXTRA_LIMIT} extra values",
            ),
        ):
            refusal = str(self.refusal(*lines))
            self.assertIn(text, refusal)
            self.assertIn("correct the front proxy", refusal)
        shown = Fields(b"Host: a\r\nX-Remote-User: \xff\r\n\r\n", FIELDS.claims)
        with self.assertRaises(Unauthorized):
            self.method.authenticate(Presented(sent(self.proxy)[0], None, shown))

    def test_fields(self) -> None:
        """The fields are not sent on; other identity fields stay, and are rejected."""
        given = fields(
            "X-Remote-User: jane", "x-group: dev", "X-Remote-Extra-A: b", "X_Remote_User: x", "A: b"
        )
        left = given.without(FIELDS.includes)
        self.assertEqual(left.onward, b"Host: a\r\nX_Remote_User: x\r\nA: b\r\n")
        self.assertEqual(left.foreign, b"X_Remote_User")
        self.assertIs(given.without(FIELDS.includes), left)
        self.assertEqual(fields("X-User: a").foreign, b"X-User")
