"""Tests of `tower.trust.login_nonce`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.trust.login_nonce import is_own_server, login_nonce


class LoginNonceTests(SynchronousTestCase):
    """The nonce, and the names of a front door."""

    def test_format(self) -> None:
        """The nonce has the documented form, and depends on front door and key."""
        nonce = login_nonce("https://tower.example.org:8443", "AAAA")
        self.assertEqual(nonce, "KACPxe0HRMark9GH1WkVqcqGeM3XppHoFU3vmPcb2cQ")
        for server, key in (
            ("https://tower.example.org", "AAAA"),
            ("https://tower.example.org:8443", "AAAB"),
        ):
            self.assertNotEqual(login_nonce(server, key), nonce)

    def test_own_server(self) -> None:
        """Names, wildcards and addresses are compared in any spelling, without their ports."""
        names = ("Tower.example.org", "*.door.example", "türme.example", "[2001:DB8::1]", "127.0.0.1")
        for server in (
            "https://tower.example.org:8443",
            "https://TOWER.example.org.",
            "https://a.door.example",
            "https://xn--trme-0ra.example",
            "https://[2001:db8:0::1]:1",
            "https://127.0.0.1",
        ):
            self.assertTrue(is_own_server(server, names), server)
        for server in (
            "https://evil.example",
            "https://tower.example.org.evil.example",
            "https://tower.example.org@evil.example",
            "https://door.example",
            "https://a.b.door.example",
            "http://tower.example.org",
            "https://127.0.0.2",
            "https://[x",
            "https://",
            "",
        ):
            self.assertFalse(is_own_server(server, names), server)
        self.assertFalse(is_own_server("https://tower.example.org", ()))
