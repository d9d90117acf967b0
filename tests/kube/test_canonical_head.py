"""Tests for `tower.kube.canonical_head`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Forbidden, Invalid
from tower.http.requests import Fields
from tower.kube.canonical_head import forwarding_lines, identity_lines, plain_fields, write_fields


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

    def test_foreign(self) -> None:
        """A claimed identity is refused here too, whatever the chain did."""
        fields = Fields(b"Host: h\r\nImpersonate-Uid: 1\r\n\r\n")
        self.assertRaises(Forbidden, write_fields, fields, b"", b"")
