"""A TCP connection that owns its socket from the first byte to the last.

This is one of the few places written for speed; each of its choices was measured (docs/data-path.md):

* Bytes are received into buffers of the process, not of the connection, so an idle connection owns none.
* What is sent goes to the kernel at once; the reactor is asked for a writable socket only when the
  kernel refuses.  Only what it refused is copied and kept.
* A receiver that also offers ``buffer`` and ``filled`` (as asyncio's BufferedProtocol) says itself where
  bytes are to go; that is how bulk data gets from a socket into an SSH packet without a copy.  Each
  ``buffer()`` is followed by ``filled(count)``, 0 when nothing came, unless it returned None or the
  connection broke.
* `Connection.resume` never reads by itself: bytes are delivered from the reactor's loop alone, so that
  nobody finds the process's buffers overwritten under his feet.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.errors import PeerError
from tower.net.connection_slots import Slot
from tower.net.lingering_close import Lingering
from tower.net.pipes import NO_RECEIVER, Buffer, Receiver
from tower.net.send_queue import SendQueue
from tower.reactor.interfaces import ISocketReactor

#: Received in one go, B.
READ_SIZE = 256 * 1024

#: How long a closed connection waits for a peer that takes nothing of what is still queued, and a broken one
#: for what its peer said before, s.
STALLED = 30.0

#: Where bytes are put on their way in; see the module's docstring.
PLAIN = memoryview(bytearray(READ_SIZE))

WOULD_BLOCK = (BlockingIOError, InterruptedError)

#: Of SO_LINGER, to reset a connection by closing it: struct linger {1, 0}.
RESET_ON_CLOSE = b"\1\0\0\0\0\0\0\0"


class ConnectionEnded(PeerError):
    """The peer closed the connection, or it was closed on our side."""


@implementer(IReadWriteDescriptor)
class Connection:
    """One end of a TCP connection; a `tower.net.pipes.Pipe`.  It starts paused.

    `tower.net.tls.connection.TLSConnection` is the same with TLS inside.

    :param sock: connected; the connection makes it non-blocking and owns it from here on.
    :ivar bytes_in: bytes received, after decryption.
    :ivar bytes_out: bytes sent, before encryption.
    :ivar slot: its place among all connections; released when the socket is closed or given up.
    """

    __slots__ = (
        "_backlog",
        "_broken",
        "_buffer",
        "_closed",
        "_closing",
        "_congested",
        "_end_sent",
        "_fd",
        "_filled",
        "_finishing",
        "_patience",
        "_paused",
        "_peer",
        "_peer_ended",
        "_reactor",
        "_reading",
        "_ready",
        "_receiver",
        "_socket",
        "_unsent",
        "_writing",
        "bytes_in",
        "bytes_out",
        "slot",
    )

    def __init__(self, reactor: ISocketReactor, sock: socket.socket) -> None:
        sock.settimeout(0)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._receiver: Receiver = NO_RECEIVER
        self._buffer: Callable[[], memoryview | None] | None = None
        self._filled: Callable[[int], None] | None = None
        self._ready = True  # whether bytes may go and come: not so during a TLS handshake
        self._backlog: SendQueue | None = None
        self._unsent: memoryview | None = None  # cipher text that the kernel refused
        self._reading = self._writing = False
        self._paused = True
        self._congested = False
        self._peer_ended = self._finishing = self._closing = self._closed = False
        self._end_sent = False
        self._patience: Any = None
        self._broken: OSError | None = None
        self._peer: IPv4Address | IPv6Address | None = None
        self.slot: Slot | None = None
        self.bytes_in = self.bytes_out = 0

    # Who gets the bytes

    @property
    def receiver(self) -> Receiver:
        """Who gets what happens here; may be replaced at any time."""
        return self._receiver

    @receiver.setter
    def receiver(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = getattr(receiver, "buffer", None)
        self._filled = getattr(receiver, "filled", None)

    # Facts about the connection

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS session, if there is one."""
        return None

    def peer_certificate(self) -> bytes | None:
        """Return the certificate that the peer showed and proved, DER, or None."""
        return None

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` that the kernel has not taken yet."""
        return 0 if self._backlog is None else self._backlog.size

    def getPeer(self) -> IPv4Address | IPv6Address:
        """Return the address of the other side: of the client, where a load balancer has told it."""
        return self._peer or _address(self._socket.getpeername)

    def comes_from(self, host: str, port: int) -> None:
        """Have `getPeer` return this address, which a load balancer has told."""
        self._peer = _tcp(host, port)

    def getHost(self) -> IPv4Address | IPv6Address:
        """Return the address of our side."""
        return _address(self._socket.getsockname)

    def fileno(self) -> int:
        """Return the descriptor, or -1 once closed."""
        return self._fd

    def logPrefix(self) -> str:
        """Name this connection in log lines that the reactor writes."""
        return "connection"

    # Reading

    def pause(self) -> None:
        """See `tower.net.pipes.Pipe.pause`."""
        self._paused = True
        if self._ready and not self._closing:
            self._stop_reading()

    def resume(self) -> None:
        """See `tower.net.pipes.Pipe.resume`; bytes come from the reactor's loop, not from within this call."""
        if self._closed:
            if self._receiver is not NO_RECEIVER:
                self._reactor.callLater(0, self._tell, ConnectionEnded("the connection is gone already"))
        elif self._paused and not self._closing:
            self._paused = False
            self._read_on()

    def _read_on(self) -> None:
        if not (self._reading or self._peer_ended or self._closed):
            self._reading = True
            self._reactor.addReader(self)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._reactor.removeReader(self)

    def doRead(self) -> None:
        """Receive once; called by the reactor when there is something."""
        if self._paused:
            if self._closing:
                self._discard()
            return  # else paused by somebody who came before us in this turn of the reactor
        buffer = PLAIN if self._buffer is None else self._buffer()
        if buffer is None:
            self.pause()
            return
        try:
            count = self._socket.recv_into(buffer)
        except WOULD_BLOCK:
            self._nothing_came()
            return
        except OSError as e:
            self._lost(e)
            return
        if not count:
            self._nothing_came()
            if self._broken is None:
                self._end_of_stream()
            else:
                self._lost(self._broken)
            return
        self.bytes_in += count
        if self._filled is not None:
            self._filled(count)
        else:
            self._receiver.received(PLAIN[:count])

    def _nothing_came(self) -> None:
        """Have the receiver take its buffer back."""
        if self._filled is not None:
            self._filled(0)

    def _end_of_stream(self) -> None:
        self._peer_ended = True
        self._stop_reading()
        self._receiver.ended()
        if self._end_sent and self._unsent is None:
            self._lost(ConnectionEnded("both sides are done"))

    # Sending

    def send(self, data: Buffer) -> bool:
        """See `tower.net.pipes.Pipe.send`."""
        if self._closed or self._closing or self._finishing:
            return False
        size = len(data)
        self.bytes_out += size
        sent = 0
        if self._ready and self._backlog is None:
            sent = self._transmit(data)
            if self._fd < 0 or self._end_sent:
                return False  # it was lost under this
        if sent < size:
            if self._backlog is None:
                self._backlog = SendQueue()
            self._backlog.add(data[sent:])
        elif self._unsent is None and self._backlog is None:
            return True
        self._congested = True
        if self._ready:
            self._write_on()
        return False

    def _transmit(self, data: Buffer) -> int:
        """Give the kernel what it takes of *data*; return how much need not be kept."""
        try:
            return self._socket.send(data)
        except WOULD_BLOCK:
            return 0
        except OSError as e:
            self._cannot_send(e)
            return len(data)

    def _cannot_send(self, error: OSError) -> None:
        """Send no more; a peer that went while we sent may have said why, so hear it out first.

        Whether it said all nobody can tell any more, so that does not count as its end.  There is a limit to
        that: a receiver that pauses now may wait for something that comes only when it hears of the end.
        """
        self._drop_backlog()
        if self._paused or self._peer_ended or self._closing or not self._ready:
            self._lost(error)
            return
        self._broken = error.with_traceback(None)  # its frames would hold us
        self._finishing = self._end_sent = True
        self._patience = self._reactor.callLater(STALLED, self._lost, self._broken)
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)

    def _drop_backlog(self) -> None:
        self._backlog = self._unsent = None

    def _write_on(self) -> None:
        if not (self._writing or self._closed):
            self._writing = True
            self._reactor.addWriter(self)

    def doWrite(self) -> None:
        """Send what is queued; called by the reactor when the kernel takes bytes again."""
        while (backlog := self._backlog) is not None and self._ready:
            first = backlog.first()
            sent = self._transmit(first)
            if self._backlog is None:
                return  # it was lost under this
            backlog.advance(sent)
            if not backlog.size:
                self._backlog = None
            if sent < len(first) or self._unsent is not None:
                self._write_on()
                return
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)
        self._all_sent()

    def _all_sent(self) -> None:
        if self._backlog is not None or self._unsent is not None or self._closed or not self._ready:
            return
        if self._closing or self._finishing:
            self._end_our_side()
        elif self._congested:
            self._congested = False
            self._receiver.drained()

    # Ends

    def finish(self) -> None:
        """See `tower.net.pipes.Pipe.finish`."""
        if not (self._finishing or self._closing or self._closed):
            self._finishing = True
            self._all_sent()

    def close(self) -> None:
        """See `tower.net.pipes.Pipe.close`; a peer that takes nothing for `STALLED` seconds is cut off."""
        if self._closing or self._closed:
            return
        self._closing = self._paused = True
        self._all_sent()
        if not self._closed:
            self._read_on()
            self._await_progress(-1)

    def _await_progress(self, left: int) -> None:
        """Give up if there is as much to be sent as there was last time."""
        self._patience = None
        now = self.queued + len(self._unsent or b"")
        if now == left:
            self.abort()
        else:
            self._patience = self._reactor.callLater(STALLED, self._await_progress, now)

    def _end_our_side(self) -> None:
        """Tell the peer that this was all; when both sides are done, or we want no more, that is the end."""
        if not self._end_sent:
            self._end_sent = True
            self._say_end()
            if self._unsent is not None or self._closed:
                return  # we are called again once it has gone
        if self._peer_ended:
            self._lost(ConnectionEnded("both sides are done"))
        elif self._closing:
            self._linger()

    def _say_end(self) -> None:
        if not (self._closing or self._peer_ended):
            self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as e:
            self._lost(e)

    def _linger(self) -> None:
        """Be gone, but for the socket: it is closed when the peer has read all."""
        self._shut()
        if not self._closed:
            slot, self.slot = self.slot, None
            self._release()
            Lingering(self._reactor, self._socket, slot)
            self._tell(ConnectionEnded("closed on our side"))

    def _discard(self) -> None:
        """Read what nobody wants any more: a peer may want to be read before it reads the rest."""
        try:
            if self._socket.recv_into(PLAIN):
                return
        except WOULD_BLOCK:
            return
        except OSError as e:
            self._lost(e)
            return
        self._peer_ended = True
        self._stop_reading()

    def abort(self) -> None:
        """See `tower.net.pipes.Pipe.abort`; the peer sees a reset."""
        if self._closed:
            return
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        except OSError:
            pass  # it is about to be closed anyway
        self._lost(ConnectionEnded("aborted on our side"))

    def connectionLost(self, reason: Failure) -> None:
        """Note that the reactor lost the descriptor or is shutting down."""
        error = reason.value
        self._lost(error if isinstance(error, Exception) else ConnectionEnded(str(error)))

    def detach(self) -> socket.socket:
        """Give up the socket, which goes on in another connection; the receiver hears nothing more.

        Call it with nothing left to send, between the bytes of two protocols (TLS after a proxy's CONNECT).
        """
        self.receiver = NO_RECEIVER
        self._release()
        return self._socket

    def _lost(self, reason: Exception) -> None:
        if not self._closed:
            self._release()
            self._socket.close()
            self._tell(reason)

    def _release(self) -> None:
        """Leave the reactor, and keep nothing."""
        self._closed = True
        self._reactor.removeReader(self)
        self._reactor.removeWriter(self)
        self._reading = self._writing = False
        patience, self._patience = self._patience, None
        if patience is not None and patience.active():
            patience.cancel()
        self._drop_backlog()
        self._fd = -1
        if self.slot is not None:
            self.slot.release()
            self.slot = None

    def _tell(self, reason: Exception) -> None:
        receiver, self.receiver = self._receiver, NO_RECEIVER
        receiver.closed(reason)


def _address(name: Callable[[], Any]) -> IPv4Address | IPv6Address:
    try:
        host, port = name()[:2]
    except (OSError, ValueError):  # it is closed, or of a family without ports
        return IPv4Address("TCP", "0.0.0.0", 0)
    return _tcp(host, port)


def _tcp(host: str, port: int) -> IPv4Address | IPv6Address:
    kind = IPv6Address if ":" in host else IPv4Address
    return kind("TCP", host, port)
