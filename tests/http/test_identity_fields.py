"""Tests of `tower.http.identity_fields`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.http.identity_fields import STANDARD, IdentityFields


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
