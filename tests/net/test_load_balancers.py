"""Tests of `tower.net.load_balancers`: trusted addresses, and waiting for a header, on socket pairs."""

from __future__ import annotations

import socket

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.sockets import SocketReactor, socket_pair
from tower.net.connection_slots import REMINDER, Slots
from tower.net.load_balancers import PATIENCE, Arrival, Balancers, read_networks
from tower.net.proxy_protocol import Origin

HEADER = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 8443\r\n"
HELLO = b"\x16\x03\x01hello"
ADDRESS = ("192.0.2.250", 1234)


class BalancersTests(SynchronousTestCase):
    """Trusted addresses."""

    def test_networks(self) -> None:
        """Only addresses of the networks are, however they are written."""
        balancers = Balancers(Clock(), read_networks("10.0.0.0/8, 192.0.2.1,fd00::/8"))
        for host in ("10.1.2.3", "192.0.2.1", "::ffff:10.1.2.3", "fd00::1", "fd00::1%eth0"):
            self.assertTrue(balancers.include(host), host)
        for host in ("11.1.2.3", "192.0.2.2", "::ffff:11.1.2.3", "fe80::1%eth0", "::1"):
            self.assertFalse(balancers.include(host), host)
        self.assertFalse(Balancers(Clock()).include("10.0.0.1"))

    def test_bad_networks(self) -> None:
        """An error names what is wrong, and what would be right."""
        for text, wanted in (
            ("10.0.0.0/33", "10.0.0.0/33"),
            ("10.0.0.0/8,balancer", "balancer"),
            ("", "10.0.0.0/8"),
            ("10.0.0.0/8,", "10.0.0.0/8"),
            ("10.0.0.1/8", "give 10.0.0.0/8 or 10.0.0.1"),
        ):
            error = self.assertRaises(ValueError, read_networks, text)
            self.assertIn(wanted, str(error))

    def test_log(self) -> None:
        """Failures are logged in one line a minute, with their number."""
        clock = Clock()
        balancers = Balancers(clock)
        with capturedLogs() as events:
            balancers.sweep()
            for _ in range(3):
                balancers.failed("10.0.0.1", "no header")
            balancers.sweep()
            balancers.failed("10.0.0.2", "its line is malformed")
            balancers.sweep()
            self.assertEqual([each["count"] for each in events], [3])
            clock.advance(REMINDER)
            balancers.sweep()
            balancers.sweep()
        self.assertEqual(
            [(each["count"], each["host"]) for each in events], [(3, "10.0.0.1"), (1, "10.0.0.2")]
        )


class ArrivalTests(SynchronousTestCase):
    """A header that is waited for."""

    def setUp(self) -> None:
        """Connect."""
        self.reactor = SocketReactor()
        self.near, self.far = socket_pair()
        self.addCleanup(self.near.close)
        self.addCleanup(self.far.close)
        self.slots = Slots(self.reactor)
        slot = self.slots.take(None)
        assert slot is not None
        self.read: list[Arrival] = []
        self.over: list[str] = []
        self.arrival = Arrival(
            self.reactor, self.near, ADDRESS, slot, self.read.append, lambda _, why: self.over.append(why)
        )

    def ended(self) -> list[str]:
        """Return why it is over, if nothing of it is left."""
        self.assertEqual((self.reactor.readers, self.reactor.getDelayedCalls()), ([], []))
        self.assertEqual((self.near.fileno(), self.slots.unproven, self.arrival.fileno()), (-1, 0, -1))
        return self.over

    def test_read(self) -> None:
        """The header is read, and the bytes after it stay in the socket."""
        self.far.send(HEADER + HELLO)
        self.reactor.run()
        self.assertEqual((self.read, self.over), ([self.arrival], []))
        self.assertEqual(self.arrival.origin, Origin("192.0.2.7", 4711))
        self.assertEqual((self.near.recv(100), self.slots.unproven), (HELLO, 1))
        self.assertEqual((self.reactor.readers, self.reactor.getDelayedCalls()), ([], []))

    def test_pieces(self) -> None:
        """It may come in pieces, without busy waiting in between."""
        for byte in HEADER:
            self.assertEqual(self.read, [])
            self.far.send(bytes([byte]))
            self.reactor.run(limit=5)
        self.assertEqual(self.read, [self.arrival])

    def test_malformed(self) -> None:
        """An invalid header closes the connection, with the reason."""
        self.far.send(b"GET / HTTP/1.1\r\n\r\n")
        self.reactor.run()
        self.assertIn("does not begin", self.ended()[0])
        self.assertEqual(self.read, [])

    def test_silent(self) -> None:
        """Without a header it is closed after a few seconds."""
        self.far.send(HEADER[:5])
        self.reactor.run()
        self.reactor.advance(PATIENCE - 0.1)
        self.assertEqual(self.over, [])
        self.reactor.advance(0.1)
        self.assertIn("5 s", self.ended()[0])

    def test_gone(self) -> None:
        """A TCP health check, without bytes, is not logged."""
        self.far.close()
        self.reactor.run()
        self.assertEqual(self.ended(), [""])

    def test_broken(self) -> None:
        """Neither is a connection that breaks."""
        self.near.shutdown(socket.SHUT_RDWR)
        self.near.close()
        self.reactor.readers.clear()
        self.arrival.doRead()
        self.assertEqual(self.ended(), [""])

    def test_aborted(self) -> None:
        """It goes when its slot is needed, or the reactor stops, and that once."""
        self.assertTrue(self.slots.evict())
        self.arrival.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.ended(), [""])
