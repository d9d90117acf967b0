"""The sending side of a tunnel: packets that leave early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.packets import ClearSealer
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.outlet import Outlet
from tower.reactor.turn import Turn


class TurningClock(Clock):
    """A clock with turns."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = Turn()


def payloads(packets: bytes) -> Iterator[bytes]:
    """Yield the payloads of packets that are not encrypted (RFC 4253 section 6)."""
    while packets:
        length, padding = int.from_bytes(packets[:4]), packets[4]
        yield packets[5 : 4 + length - padding]
        packets = packets[4 + length :]


class Wire:
    """A pipe, and an SSH transport whose packets are not encrypted."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.checks = 0
        self.sealer = ClearSealer(0)

    def send(self, data: bytes) -> bool:
        """Record the payloads that are sent together."""
        self.sent.append(b"".join(payloads(bytes(data))))
        return True

    def rekey_if_due(self) -> None:
        """Count the calls."""
        self.checks += 1


class LoneTurnTests(SynchronousTestCase):
    """An outlet in turns with one ready socket, and with more."""

    def setUp(self) -> None:
        """Make the outlet."""
        self.clock, self.wire = TurningClock(), Wire()
        wire: Any = self.wire
        self.outlet = Outlet(self.clock, wire, wire, UNFRAMED)

    def test_lone(self) -> None:
        """In a lone turn, the first packet leaves at once and the others at its end, in order."""
        self.clock.turn.is_lone = True
        for packet in (b"1", b"2", b"3"):
            self.outlet.send(packet)
        self.assertEqual(self.wire.sent, [b"1"])
        self.clock.advance(0)
        self.assertEqual(self.wire.sent, [b"1", b"23"])

    def test_gathered(self) -> None:
        """In other turns, and after a packet that waits, all leave together."""
        self.outlet.send(b"1")
        self.clock.turn.is_lone = True
        self.outlet.send(b"2")
        self.assertEqual(self.wire.sent, [])
        self.clock.advance(0)
        self.assertEqual(self.wire.sent, [b"12"])

    def test_keys(self) -> None:
        """A packet that leaves at once counts for the key exchange too."""
        self.clock.turn.is_lone = True
        self.outlet.send(b"1")
        self.assertEqual(self.wire.checks, 1)
