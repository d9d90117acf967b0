"""Tests for `tower.kube.canonical_head`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Forbidden, Invalid
from tower.http.requests import Fields
from tower.kube.canonical_head import (
    forwarding_lines,
    identity_lines,
    plain_fields,
    write_fields,
    write_trusted_fields,
)


class IdentityTests(SynchronousTestCase):
    """Names in header fields."""

    def test_lines(self) -> None:
        """User first, then the groups in order, in UTF-8."""
        self.assertEqual(
            identity_lines("jané", ("dev", "a b")),
            "Impersonate-User: jané\r\nImpersonate-Group: dev\r\nImpersonate-Group: a b\r\n".encode(),
        )

    def test_refused(self) -> None:
        """A name that a field would change, or that would be more than a name, is refused."""
        for name in ("", " jane", "jane ", "jane\t", "a\r\nImpersonate-User: root", "a\nb", "a\0b", "a\x7fb"):
            self.assertRaises(Invalid, identity_lines, name, ())
            self.assertRaises(Invalid, identity_lines, "jane", (name,))


class FieldTests(SynchronousTestCase):
    """The fields in their order."""

    def test_order(self) -> None:
        """Framing, identity, the user's, the proxy's, the upgrade."""
        fields = Fields(b"A:b\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\nHost: h\r\n\r\n")
        self.assertEqual(
            write_fields(fields, identity_lines("jane", ()), forwarding_lines("::1")),
            b"Content-Length: 0\r\nImpersonate-User: jane\r\nHost: h\r\nA: b\r\nX-Forwarded-For: ::1\r\n"
            b"X-Forwarded-Proto: https\r\nVia: 1.1 tower\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        )

    def test_no_host(self) -> None:
        """A request without Host (HTTP/1.0) gets one."""
        self.assertIn(b"\r\nHost: kubernetes\r\n", write_fields(Fields(b"\r\n"), b"I: u\r\n", b""))

    def test_plain(self) -> None:
        """Framing, the user's fields, the upgrade; no proxy fields; a host only if it was missing."""
        fields = Fields(
            b"A:b\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\nHost: h\r\n"
            b"Impersonate-User: u\r\n\r\n"
        )
        self.assertEqual(
            plain_fields(fields, "wiki", bearer=True),
            b"Content-Length: 0\r\nA: b\r\nHost: h\r\nImpersonate-User: u\r\n"
            b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n",
        )
        self.assertEqual(plain_fields(Fields(b"\r\n"), "wiki", bearer=True), b"Host: wiki\r\n\r\n")

    def test_client(self) -> None:
        """The client's address is the last of one X-Forwarded-For; the others are kept, as they were sent."""
        for sent, expected in (
            (b"", b"192.0.2.7"),
            (b"X-Forwarded-For: 1.2.3.4\r\n", b"1.2.3.4, 192.0.2.7"),
            (
                b"x-forwarded-for: 1.2.3.4, ::1\r\nX-FORWARDED-FOR: 5.6.7.8\r\n",
                b"1.2.3.4, ::1, 5.6.7.8, 192.0.2.7",
            ),
            (b"X-Forwarded-For: \r\n", b"192.0.2.7"),
            (b"Connection: X-Forwarded-For\r\nX-Forwarded-For: 1.2.3.4\r\n", b"192.0.2.7"),
        ):
            fields = Fields(b"Host: h\r\n" + sent + b"A: x-forwarded-for: 9\r\n\r\n")
            self.assertEqual(
                plain_fields(fields, "wiki", bearer=True, client="192.0.2.7"),
                b"Host: h\r\nA: x-forwarded-for: 9\r\nX-Forwarded-For: %b\r\n\r\n" % expected,
            )

    def test_trusted(self) -> None:
        """A trusted caller's own identity, or its claim, or a token."""
        own = identity_lines("ks", ())
        plain = Fields(b"Host: h\r\nA: b\r\nAuthorization: Bearer t\r\n\r\n")
        rest = b"Host: h\r\nA: b\r\n\r\n"
        self.assertEqual(write_trusted_fields(plain, own, b"", None), own + rest)
        self.assertEqual(write_trusted_fields(plain, own, b"", b"t"), b"Authorization: Bearer t\r\n" + rest)
        claimed = Fields(b"Host: h\r\nimpersonate-group: g\r\nA: b\r\nImpersonate-user: u\r\n\r\n")
        self.assertEqual(
            write_trusted_fields(claimed, own, b"", None),
            b"Impersonate-User: u\r\nImpersonate-Group: g\r\n" + rest,
        )
        self.assertRaises(Forbidden, write_trusted_fields, claimed, own, b"", b"t")
        self.assertRaises(Forbidden, write_trusted_fields, plain, own, b"", b"t t")

    def test_foreign(self) -> None:
        """A claimed identity is refused here too, whatever the chain did."""
        fields = Fields(b"Host: h\r\nImpersonate-Uid: 1\r\n\r\n")
        self.assertRaises(Forbidden, write_fields, fields, b"", b"")
