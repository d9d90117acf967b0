"""Lingering close: the socket stays open until the peer has read what we sent."""

from __future__ import annotations

import socket

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.net.connection_slots import Slot
from tower.reactor.interfaces import ISocketReactor

#: Longest wait for the end of the peer's stream, s.  The peer may be slow or suspended for a while, with
#: megabytes in its socket that it has not read; kubectl sends a ping every 5 s meanwhile.
LINGER = 10.0

#: Of SO_LINGER: struct linger {1, 0}.
_RESET_ON_CLOSE = b"\1\0\0\0\0\0\0\0"

#: Buffer for discarded bytes.
_DROPPED = memoryview(bytearray(64 * 1024))


def reset_on_close(sock: socket.socket) -> None:
    """Make the next ``close`` of *sock* reset the connection."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    except OSError:
        pass  # closed next anyway


@implementer(IReadDescriptor)
class Lingering:
    """Discards received bytes until the peer's end of stream, for at most `LINGER` seconds.

    Closing a socket with unread bytes, or bytes that arrive afterwards, resets the connection, and a reset
    destroys what the peer has not read yet (RFC 9112 section 9.6).  Only the socket is kept, not the
    connection or its TLS session.

    :param sock: its sending side is shut down; owned from here on.
    :param slot: of the connection; released with the socket.
    """

    __slots__ = ("_fd", "_reactor", "_slot", "_socket", "_timer")

    def __init__(self, reactor: ISocketReactor, sock: socket.socket, slot: Slot | None = None) -> None:
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._slot = slot
        if slot is not None:
            slot.owner = self
            slot.retire()
        self._timer = reactor.callLater(LINGER, self._finish)
        reactor.addReader(self)

    def fileno(self) -> int:
        """Return the descriptor, or -1 once closed."""
        return self._fd

    def logPrefix(self) -> str:
        """Return the name for the reactor's log lines."""
        return "closed connection"

    def doRead(self) -> None:
        """Discard received bytes."""
        try:
            if self._socket.recv_into(_DROPPED):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass  # the peer closed the connection
        self._finish()

    def abort(self) -> None:
        """Close now: the slot is needed."""
        self._finish()

    def connectionLost(self, reason: Failure) -> None:
        """Close: the reactor lost the descriptor or is shutting down."""
        self._finish()

    def _finish(self) -> None:
        if self._fd < 0:
            return
        self._reactor.removeReader(self)
        if self._timer.active():
            self._timer.cancel()
        self._fd = -1
        self._socket.close()
        if self._slot is not None:
            self._slot.release()
