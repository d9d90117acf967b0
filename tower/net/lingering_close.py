"""What is left of a connection that we closed: its socket, until the peer has read what we sent."""

from __future__ import annotations

import socket

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.net.connection_slots import Slot
from tower.reactor.interfaces import ISocketReactor

#: How long to wait for the peer's end before the socket is closed, s.
LINGER = 2.0

#: Where bytes go that nobody wants.
_DROPPED = memoryview(bytearray(64 * 1024))


@implementer(IReadDescriptor)
class Lingering:
    """Reads what comes, for nobody, until the peer's end or for `LINGER` seconds.

    A socket that is closed with bytes unread, or gets some afterwards, resets the connection, and a reset
    destroys what the peer has not read yet (RFC 9112 section 9.6).  Nothing else of the connection, a TLS
    session least of all, is kept for that.

    :param reactor: an ``IReactorFDSet`` and ``IReactorTime``, which holds us for as long as it takes.
    :param sock: its sending side is shut down; ours from here on.
    :param slot: of the connection, if it has one; released with the socket.
    """

    __slots__ = ("_fd", "_reactor", "_slot", "_socket", "_timer")

    def __init__(self, reactor: ISocketReactor, sock: socket.socket, slot: Slot | None = None) -> None:
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._slot = slot
        if slot is not None:
            slot.owner = self
        self._timer = reactor.callLater(LINGER, self._let_go)
        reactor.addReader(self)

    def fileno(self) -> int:
        """Return the descriptor, or -1 once closed."""
        return self._fd

    def logPrefix(self) -> str:
        """Name this in log lines that the reactor writes."""
        return "closed connection"

    def doRead(self) -> None:
        """Drop what came; called by the reactor when there is something."""
        try:
            if self._socket.recv_into(_DROPPED):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass  # the peer is gone, one way or another
        self._let_go()

    def abort(self) -> None:
        """Close now: the slot is needed."""
        self._let_go()

    def connectionLost(self, reason: Failure) -> None:
        """Note that the reactor lost the descriptor or is shutting down."""
        self._let_go()

    def _let_go(self) -> None:
        if self._fd < 0:
            return
        self._reactor.removeReader(self)
        if self._timer.active():
            self._timer.cancel()
        self._fd = -1
        self._socket.close()
        if self._slot is not None:
            self._slot.release()
