"""A reactor whose ports are in memory, and the connections of agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock

from tests.fakes.tunnel_pairs import MemoryPipe
from tests.fakes.tunnels import Unread

#: When it all happens, s since the epoch.
NOW = 1_800_000_000.0


class Machine(MemoryReactorClock):
    """A reactor whose ports exist in memory.

    :ivar open: the factories of the open ports, by number.
    :ivar opened: every port that was ever opened, in order: number and interface.
    :ivar taken: numbers that another process listens on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.advance(NOW)
        self.open: dict[int, Any] = {}
        self.opened: list[tuple[int, str]] = []
        self.taken: set[int] = set()

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """Open a port, until its service stops it."""
        if port in self.taken or port in self.open:
            raise CannotListenError(interface, port, OSError(98, "Address already in use"))
        self.open[port] = factory
        self.opened.append((port, interface))
        listening = super().listenTCP(port, factory, backlog, interface)
        listening.stopListening = lambda: self._close(port)
        return listening

    def _close(self, port: int) -> None:
        del self.open[port]


class Line(MemoryPipe):
    """One end of an agent's connection, for a gateway and for a tunnel.

    :ivar frozen: nothing goes from this end, as when a process is stopped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.receiver = Unread()
        self.room = 1 << 24
        self.frozen = False

    @classmethod
    def pair(cls) -> tuple[Line, Line]:
        """Return both ends of a new connection."""
        near, far = cls(), cls()
        near.other, far.other = far, near
        return near, far

    def carry(self, size: int) -> bool:
        """See `MemoryPipe.carry`."""
        return not self.frozen and super().carry(size)

    def peer_certificate(self) -> bytes | None:
        """Return no certificate."""
        return None


def run_dry(clock: Clock, lines: Callable[[], list[Line]]) -> None:
    """Carry all data on *lines*, and make the calls that are due now, until nothing moves."""
    for _ in range(10_000):
        clock.advance(0)
        moved = [line.carry(1 << 20) for line in lines()]
        if not any(moved) and not is_due(clock):
            return
    raise AssertionError("it never comes to rest")


def is_due(clock: Clock) -> bool:
    """Return whether a delayed call is due now."""
    return any(call.getTime() <= clock.seconds() for call in clock.getDelayedCalls())
