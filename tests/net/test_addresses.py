"""Tests of `tower.net.addresses`: the kinds of addresses."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.net.addresses import is_loopback, is_unicast


class KindsTests(SynchronousTestCase):
    """Kinds of addresses."""

    def test_loopback(self) -> None:
        """All forms that a resolver reads without DNS count, also the old ones of IPv4."""
        forms = (
            "127.0.0.1",
            "127.255.0.9",
            "::1",
            "::ffff:127.0.0.1",
            "localhost",
            "LocalHost.",
            "a.localhost",
        )
        for host in (*forms, "2130706433", "0x7f000001", "0x7f.1", "0177.1", "127.1"):
            self.assertTrue(is_loopback(host), host)
            self.assertFalse(is_unicast(host), host)

    def test_not_unicast(self) -> None:
        """Link-local, multicast, broadcast and unspecified addresses are not those of one machine."""
        for host in ("169.254.169.254", "0xa9fea9fe", "::ffff:169.254.1.1", "fe80::1", "fe80::1%eth0"):
            self.assertEqual((is_loopback(host), is_unicast(host)), (False, False), host)
        for host in ("0.0.0.0", "::", "0", "224.0.0.1", "ff02::1", "255.255.255.255"):
            self.assertEqual((is_loopback(host), is_unicast(host)), (False, False), host)

    def test_unicast(self) -> None:
        """Addresses of machines, and names."""
        for host in ("10.0.0.1", "192.0.2.1", "8.8.8.8", "fd00::1", "2001:db8::1", "::ffff:10.0.0.1"):
            self.assertTrue(is_unicast(host), host)
        for name in (
            "n1",
            "n1.example.",
            "localhost.example",
            "notlocalhost",
            "bücher.example",
            "0x7f.example",
        ):
            self.assertEqual((is_loopback(name), is_unicast(name)), (False, True), name)
