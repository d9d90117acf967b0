"""A TCP connection that owns its socket from the first byte to the last.

This module is written for speed; each choice was measured (docs/data-path.md):

* Bytes are received into buffers of the process, not of the connection, so an idle connection owns none.
* Bytes are sent to the kernel at once; only the rest that it refuses is copied and queued, and only then the
  reactor waits for a writable socket.
* A receiver with ``buffer`` and ``filled`` (as asyncio's BufferedProtocol) provides the receive buffer; so
  bulk data gets from a socket into an SSH packet without a copy.  Each ``buffer()`` is followed by
  ``filled(count)``, 0 if nothing was received, unless it returned None or the connection broke.
* `Connection.resume` never reads: bytes are delivered from the reactor's loop only, so that a view into a
  buffer of the process stays valid during the call.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IDelayedCall, IReadWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import classImplements

from tower.errors import PeerError
from tower.net.addresses import address_from, tcp_address
from tower.net.connection_slots import Slot
from tower.net.lingering_close import Lingering, reset_on_close
from tower.net.pipes import NO_RECEIVER, Buffer, Receiver
from tower.net.send_queue import SendQueue
from tower.reactor.interfaces import ISocketReactor

#: Bytes per receive call.
READ_SIZE: Final = 256 * 1024

#: How long a closed connection waits for a peer that reads nothing of the queue, and a broken connection for
#: the peer's last bytes, s.
STALLED: Final = 30.0

#: Receive buffer of the process; see the module's docstring.
PLAIN: Final = memoryview(bytearray(READ_SIZE))

WOULD_BLOCK: Final = (BlockingIOError, InterruptedError)


class ConnectionEnded(PeerError):
    """The connection was closed, by the peer or by us."""


class Connection:
    """One end of a TCP connection; a `tower.net.pipes.Pipe`.  It starts paused.

    :param sock: connected; made non-blocking and owned from here on.
    :ivar bytes_in: bytes received, after decryption.
    :ivar bytes_out: bytes sent, before encryption.
    :ivar slot: its connection slot; released when the socket is closed or detached.
    """

    __slots__ = (
        "_broken",
        "_buffer",
        "_closed",
        "_closing",
        "_congested",
        "_end_sent",
        "_fd",
        "_filled",
        "_finishing",
        "_paused",
        "_peer",
        "_peer_ended",
        "_reactor",
        "_reading",
        "_ready",
        "_receiver",
        "_send_queue",
        "_socket",
        "_timer",
        "_unsent",
        "_writing",
        "bytes_in",
        "bytes_out",
        "slot",
    )

    def __init__(self, reactor: ISocketReactor, sock: socket.socket) -> None:
        self._reactor = reactor
        self._socket = sock
        self._receiver: Receiver = NO_RECEIVER
        self._buffer: Callable[[], memoryview | None] | None = None
        self._filled: Callable[[int], None] | None = None
        self._ready = True  # False during a TLS handshake
        self._send_queue: SendQueue | None = None
        self._unsent: memoryview | None = None  # cipher text that the kernel refused
        self._reading = self._writing = False
        self._paused = True
        self._congested = self._peer_ended = False
        self._finishing = self._closing = self._closed = self._end_sent = False
        self._timer: IDelayedCall | None = None
        self._broken: OSError | None = None
        self._peer: IPv4Address | IPv6Address | None = None
        self.slot: Slot | None = None
        self.bytes_in = self.bytes_out = 0
        sock.settimeout(0)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._fd = sock.fileno()

    # Receiver

    @property
    def receiver(self) -> Receiver:
        """Receiver of events; may be replaced at any time."""
        return self._receiver

    @receiver.setter
    def receiver(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = getattr(receiver, "buffer", None)
        self._filled = getattr(receiver, "filled", None)

    # Facts about the connection

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS session, if any."""
        return None

    def peer_certificate(self) -> bytes | None:
        """Return the peer's verified certificate, DER, or None."""
        return None

    @property
    def queued(self) -> int:
        """Bytes that `send` has queued."""
        return 0 if self._send_queue is None else self._send_queue.size

    def getPeer(self) -> IPv4Address | IPv6Address:
        """Return the peer's address; behind a load balancer, the client's."""
        if self._peer is None:  # kept: a socket that was reset has none
            self._peer = address_from(self._socket.getpeername)
        return self._peer

    def set_peer(self, host: str, port: int) -> None:
        """Set the result of `getPeer`: the client's address that a load balancer sent."""
        self._peer = tcp_address(host, port)

    def getHost(self) -> IPv4Address | IPv6Address:
        """Return the local address."""
        return address_from(self._socket.getsockname)

    def fileno(self) -> int:
        """Return the descriptor, or -1 once closed."""
        return self._fd

    def logPrefix(self) -> str:
        """Return the name for the reactor's log lines."""
        return "connection"

    # Reading

    def pause(self) -> None:
        """See `tower.net.pipes.Pipe.pause`."""
        self._paused = True
        if self._ready and not self._closing:
            self._stop_reading()

    def resume(self) -> None:
        """See `tower.net.pipes.Pipe.resume`; never delivers bytes from within this call."""
        if self._closed:
            if self._receiver is not NO_RECEIVER:
                self._reactor.callLater(0, self._notify, ConnectionEnded("the connection was closed before"))
        elif self._paused and not self._closing:
            self._paused = False
            self._start_reading()

    def _start_reading(self) -> None:
        if not (self._reading or self._peer_ended or self._closed):
            self._reading = True
            self._reactor.addReader(self)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._reactor.removeReader(self)

    def doRead(self) -> None:
        """Receive once."""
        if self._paused:
            if self._closing:
                self._discard()
            return  # or paused by another call in this iteration of the reactor
        buffer = PLAIN if self._buffer is None else self._buffer()
        if buffer is None:
            self.pause()
            return
        try:
            count = self._socket.recv_into(buffer)
        except WOULD_BLOCK:
            self._return_buffer()
            return
        except OSError as e:
            self._lost(e)
            return
        if not count:
            self._return_buffer()
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

    def _return_buffer(self) -> None:
        """Return the receiver's buffer, without bytes."""
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
        if self._ready and self._send_queue is None:
            sent = self._transmit(data)
            if self._fd < 0 or self._end_sent:
                return False  # the connection was lost meanwhile
        if sent < size:
            if self._send_queue is None:
                self._send_queue = SendQueue()
            self._send_queue.add(data[sent:])
        elif self._unsent is None and self._send_queue is None:
            return True
        self._congested = True
        if self._ready:
            self._start_writing()
        return False

    def _transmit(self, data: Buffer) -> int:
        """Send *data*; return the number of bytes that need not be queued."""
        try:
            return self._socket.send(data)
        except WOULD_BLOCK:
            return 0
        except OSError as e:
            self._cannot_send(e)
            return len(data)

    def _cannot_send(self, error: OSError) -> None:
        """Send no more, but first read the peer's last bytes: they may have the reason.

        They do not count as a complete stream.  The wait is limited: a paused receiver may wait for an event
        that follows only from the end of this connection.
        """
        self._send_queue = self._unsent = None
        if self._paused or self._peer_ended or self._closing or not self._ready:
            self._lost(error)
            return
        self._broken = error.with_traceback(None)  # its frames refer to us
        self._finishing = self._end_sent = True
        self._timer = self._reactor.callLater(STALLED, self._lost, self._broken)
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)

    def _start_writing(self) -> None:
        if not (self._writing or self._closed):
            self._writing = True
            self._reactor.addWriter(self)

    def doWrite(self) -> None:
        """Send queued bytes."""
        while (queue := self._send_queue) is not None and self._ready:
            first = queue.first()
            sent = self._transmit(first)
            if self._send_queue is None:
                return  # the connection was lost meanwhile
            queue.advance(sent)
            if not queue.size:
                self._send_queue = None
            if sent < len(first) or self._unsent is not None:
                self._start_writing()
                return
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)
        self._all_sent()

    def _all_sent(self) -> None:
        if self._send_queue is not None or self._unsent is not None or self._closed or not self._ready:
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
        """See `tower.net.pipes.Pipe.close`; aborts if the peer reads nothing for `STALLED` seconds."""
        if self._closing or self._closed:
            return
        self._closing = self._paused = True
        self._all_sent()
        if not self._closed:
            self._start_reading()
            self._await_progress(-1)

    def _await_progress(self, left: int) -> None:
        """Abort if as much is queued as at the last call."""
        self._timer = None
        now = self.queued + len(self._unsent or b"")
        if now == left:
            self.abort()
        else:
            self._timer = self._reactor.callLater(STALLED, self._await_progress, now)

    def _end_our_side(self) -> None:
        """Send the end of our stream; if both sides are done, or we are closing, close."""
        if not self._end_sent:
            self._end_sent = True
            self._send_end()
            if self._unsent is not None or self._closed:
                return  # called again once it is sent
        if self._peer_ended:
            self._lost(ConnectionEnded("both sides are done"))
        elif self._closing:
            self._linger()

    def _send_end(self) -> None:
        if not (self._closing or self._peer_ended):
            self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as e:
            self._lost(e)

    def _linger(self) -> None:
        """Close, except the socket: see `Lingering`."""
        self._shut()
        if not self._closed:
            slot, self.slot = self.slot, None
            self._release()
            Lingering(self._reactor, self._socket, slot)
            self._notify(ConnectionEnded("closed on our side"))

    def _discard(self) -> None:
        """Discard received bytes: some peers send them before they read the rest of our bytes."""
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
        reset_on_close(self._socket)
        self._lost(ConnectionEnded("aborted on our side"))

    def connectionLost(self, reason: Failure) -> None:
        """Close: the reactor lost the descriptor or is shutting down."""
        error = reason.value
        self._lost(error if isinstance(error, Exception) else ConnectionEnded(str(error)))

    def detach(self) -> socket.socket:
        """Release the socket, for another connection; the receiver gets no more events.

        The send queue must be empty, and no byte of the next protocol received (TLS after a proxy's CONNECT).
        """
        self.receiver = NO_RECEIVER
        self._release()
        return self._socket

    def _lost(self, reason: Exception) -> None:
        if not self._closed:
            self._release()
            self._socket.close()
            self._notify(reason)

    def _release(self) -> None:
        """Leave the reactor, and release all but the socket."""
        self._closed = True
        self._reactor.removeReader(self)
        self._reactor.removeWriter(self)
        self._reading = self._writing = False
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        self._send_queue = self._unsent = None
        self._fd = -1
        if self.slot is not None:
            self.slot.release()
            self.slot = None

    def _notify(self, reason: Exception) -> None:
        receiver, self.receiver = self._receiver, NO_RECEIVER
        receiver.closed(reason)


classImplements(Connection, IReadWriteDescriptor)
