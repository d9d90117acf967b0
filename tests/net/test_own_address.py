"""Tests of `tower.net.own_address`."""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from tower.net.own_address import default_address


class DefaultAddressTests(SynchronousTestCase):
    def found(self, host: str, **addresses: str) -> str | None:
        """Return the address; *addresses* has those of the families that have a route."""

        def find(family: int) -> str:
            name = "ipv6" if family == socket.AF_INET6 else "ipv4"
            if name not in addresses:
                raise OSError("Network is unreachable")
            return addresses[name]

        return default_address(host, find)

    def test_families(self) -> None:
        """The family of the listening address is preferred; the other one is used if it alone has a route."""
        both = {"ipv4": "192.0.2.7", "ipv6": "2001:db8::7"}
        self.assertEqual(self.found("0.0.0.0", **both), "192.0.2.7")
        self.assertEqual(self.found("::", **both), "2001:db8::7")
        self.assertEqual(self.found("0.0.0.0", ipv6="2001:db8::7"), "2001:db8::7")
        self.assertEqual(self.found("::", ipv4="192.0.2.7"), "192.0.2.7")

    def test_none(self) -> None:
        """Without a route there is none, and an address that other machines cannot reach does not count."""
        self.assertIsNone(self.found("0.0.0.0"))
        for useless in ("127.0.0.1", "169.254.3.4", "0.0.0.0"):
            self.assertIsNone(self.found("0.0.0.0", ipv4=useless))
        self.assertIsNone(self.found("::", ipv6="fe80::1"))
