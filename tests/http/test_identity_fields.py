"""Tests of `tower.http.identity_fields`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.http.identity_fields import STANDARD, IdentityFields, extra_key


class IdentityFieldsTests(SynchronousTestCase):
    def test_standard(self) -> None:
        """Impersonate-* and X-Remote-*, in any case, also with another sign."""
        for name in (b"Impersonate-User", b"impersonate_user", b"X-REMOTE-USER", b"x_remote-a", b"X-Remote-"):
            block = b"Host: a\r\n" + name + b": b\r\n\r\n"
            self.assertEqual(STANDARD.first(block), name)
            self.assertTrue(STANDARD.matches(name + b": b\r\n"))
        for name in (b"X-Remotely", b"Impersonator", b"X-User", b"A-X-Remote-User", b"Remote-User"):
            self.assertEqual(STANDARD.first(name + b": X-Remote-User: b\r\n\r\n"), b"")

    def test_further(self) -> None:
        """Given names and prefixes, as well as the standard fields."""
        fields = IdentityFields([b"x-user", b"a.b"], [b"x-extra-"])
        for name in (
            b"X-User",
            b"x_user",
            b"A.B",
            b"X-Extra-Key",
            b"X_Extra_k",
            b"X-Extra-",
            b"X-Remote-User",
        ):
            self.assertEqual(fields.first(b"Host: a\r\n" + name + b": b\r\n\r\n"), name)
            self.assertTrue(fields.matches(name + b": b\r\n"))
        for name in (b"X-Users", b"AxB", b"X-Extr", b"Y-X-User"):
            self.assertEqual(fields.first(name + b": b\r\n\r\n"), b"")
            self.assertFalse(fields.matches(name + b": X-User: b\r\n"))


class ExtraKeyTests(SynchronousTestCase):
    def test_keys(self) -> None:
        """Keys are decoded as in kube-apiserver, which decodes none with a malformed escape."""
        for name, key in (
            (b"Scopes", "scopes"),
            (b"Acme.Org%2FTeam", "acme.org/team"),
            (b"%41dmin", "Admin"),
            (b"%4Aa%6a", "Jaj"),
            (b"a+b%2bc", "a+b+c"),
            (b"A%2fB%zz", "a%2fb%zz"),
            (b"A%2fB%4", "a%2fb%4"),
            (b"%252f", "%2f"),
            (b"%C3%9C", "\u00dc"),
        ):
            self.assertEqual(extra_key(name), key)
        self.assertEqual(extra_key(b"%ff"), "\\xff")
        self.assertRaises(UnicodeDecodeError, extra_key, b"%ff", "strict")
