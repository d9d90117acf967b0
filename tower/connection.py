"""A TCP connection that owns its socket from the first byte to the last, with TLS inside if wanted.

This is one of the few places written for speed; each of its choices was measured (docs/data-path.md):

* Bytes are received into buffers of the process, not of the connection, so an idle connection owns none.
* What is sent goes to the kernel at once; the reactor is asked for a writable socket only when the
  kernel refuses.  Only what it refused is copied and kept.
* A receiver that also offers ``buffer`` and ``filled`` (as asyncio's BufferedProtocol) says itself where
  bytes are to go; that is how bulk data gets from a socket into an SSH packet without a copy.
* `Connection.resume` never reads by itself: bytes are delivered from the reactor's loop alone, so that
  nobody finds the process's buffers overwritten under his feet.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.errors import PeerError
from tower.pipes import Buffer, Receiver
from tower.tls import PIECE, TLSEnded, TLSSession

#: Received in one go, B.
READ_SIZE = 256 * 1024

#: Cipher text received in one go: what may stay inside a paused TLS session, B.
TLS_READ_SIZE = 128 * 1024

#: How long a closed connection waits for the peer's end before it lets go, s.
LINGER = 2.0

#: Turns of decrypting before other connections get theirs.
TLS_TURNS = 4

#: Bytes of the process for plain text and for cipher text on their way in; see the module's docstring.
_PLAIN = memoryview(bytearray(READ_SIZE))
_CIPHER = memoryview(bytearray(TLS_READ_SIZE))

_WOULD_BLOCK = (BlockingIOError, InterruptedError)


class ConnectionEnded(PeerError):
    """The peer closed the connection, or it was closed on our side."""


class TLSFailed(PeerError):
    """The TLS session could not be set up or broke."""


class _Unheard:
    """The receiver of a connection that has none yet."""

    def received(self, data: memoryview) -> None:
        raise AssertionError("bytes came to a connection without a receiver")

    def ended(self) -> None:
        """Nobody to tell."""

    def drained(self) -> None:
        """Nobody to tell."""

    def closed(self, reason: Exception) -> None:
        """Nobody to tell."""


@implementer(IReadWriteDescriptor)
class Connection:
    """One end of a TCP connection; a `tower.pipes.Pipe`.

    A connection starts paused.  With TLS the handshake goes on by itself, within *handshake_timeout* s,
    and *on_secure* is called when it is over.

    :param reactor: an ``IReactorFDSet`` and ``IReactorTime``.
    :param sock: connected; the connection makes it non-blocking and owns it from here on.
    :ivar bytes_in: bytes received, after decryption.
    :ivar bytes_out: bytes sent, before encryption.
    :ivar queued: bytes accepted by `send` that the kernel has not taken yet.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        sock: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        server_side: bool = True,
        server_hostname: str | None = None,
        handshake_timeout: float = 10.0,
        on_secure: Callable[[], None] | None = None,
    ) -> None:
        sock.settimeout(0)
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._receiver: Receiver = _Unheard()
        self._buffer: Callable[[], memoryview | None] | None = None
        self._filled: Callable[[int], None] | None = None
        self._queue: deque[memoryview] = deque()
        self._cipher_left: memoryview | None = None
        self._reading = self._writing = False
        self._paused = True
        self._congested = False
        self._peer_ended = self._finishing = self._closing = self._closed = False
        self._again: Any = None
        self._lingering: Any = None
        self._end_sent = False
        self.queued = self.bytes_in = self.bytes_out = 0
        self._session: TLSSession | None = None
        self._handshaking = False
        self._deadline: Any = None
        self._on_secure = on_secure
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            self._session = TLSSession(tls, server_side=server_side, server_hostname=server_hostname)
            self._handshaking = True
            self._deadline = reactor.callLater(handshake_timeout, self._handshake_too_slow)
            self._read_on()
            if not server_side:
                self._reactor.callLater(0, self._handshake)

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
        return self._session.object if self._session is not None else None

    def peer_certificate(self) -> bytes | None:
        """Return the certificate that the peer showed and proved, DER, or None."""
        return None if self._session is None else self._session.object.getpeercert(binary_form=True)

    def getPeer(self) -> IPv4Address | IPv6Address:
        """Return the address of the other side."""
        return _address(self._socket.getpeername)

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
        """See `tower.pipes.Pipe.pause`."""
        self._paused = True
        if self._reading and not self._handshaking:
            self._reading = False
            self._reactor.removeReader(self)

    def resume(self) -> None:
        """See `tower.pipes.Pipe.resume`; bytes come from the reactor's loop, not from within this call."""
        if not self._paused:
            return
        self._paused = False
        self._read_on()
        if self._session is not None and not self._handshaking and self._session.waiting:
            self._soon()

    def _read_on(self) -> None:
        if not (self._reading or self._peer_ended or self._closed):
            self._reading = True
            self._reactor.addReader(self)

    def _soon(self) -> None:
        if self._again is None and not self._closed:
            self._again = self._reactor.callLater(0, self._resumed)

    def _resumed(self) -> None:
        self._again = None
        if not (self._paused or self._closed or self._peer_ended):
            self._decrypt()

    def doRead(self) -> Failure | None:
        """Receive once; called by the reactor when there is something."""
        if self._lingering is not None:
            self._discard()
            return None
        if self._paused and not self._handshaking:
            return None  # paused by somebody who came before us in this turn of the reactor
        if self._session is not None:
            self._receive_cipher_text()
            return None
        buffer = _PLAIN if self._buffer is None else self._buffer()
        if buffer is None:
            self.pause()
            return None
        try:
            count = self._socket.recv_into(buffer)
        except _WOULD_BLOCK:
            return None
        except OSError as e:
            self._lost(e)
            return None
        if not count:
            self._end_of_stream()
            return None
        self.bytes_in += count
        if self._filled is not None:
            self._filled(count)
        else:
            self._receiver.received(_PLAIN[:count])
        return None

    def _receive_cipher_text(self) -> None:
        session = self._session
        assert session is not None
        if not session.waiting or self._handshaking:
            try:
                count = self._socket.recv_into(_CIPHER)
            except _WOULD_BLOCK:
                return
            except OSError as e:
                self._lost(e)
                return
            if not count:
                # without close_notify nobody can tell an end from a cut
                self._lost(ConnectionEnded("the connection was cut"))
                return
            session.feed(_CIPHER[:count])
        if self._handshaking:
            self._handshake()
        elif not self._paused:
            self._decrypt()

    def _decrypt(self) -> None:
        """Deliver what TLS holds, for a few turns at most."""
        session = self._session
        assert session is not None
        for _ in range(TLS_TURNS):
            buffer = _PLAIN if self._buffer is None else self._buffer()
            if buffer is None:
                self.pause()
                return
            try:
                count = session.read_into(buffer)
            except TLSEnded:
                self._end_of_stream()
                return
            except ssl.SSLError as e:
                self._lost(TLSFailed(_reason(e)))
                return
            if not count:
                self._flush_session()
                return
            self.bytes_in += count
            if self._filled is not None:
                self._filled(count)
            else:
                self._receiver.received(buffer[:count])
            if self._paused or self._closed or not session.waiting:
                return
        self._soon()

    def _flush_session(self) -> None:
        """Send what TLS itself wants sent (key updates)."""
        assert self._session is not None
        if (own := self._session.take()) and not self._closed:
            self._send_cipher_text(own)

    def _end_of_stream(self) -> None:
        self._peer_ended = True
        if self._reading:
            self._reading = False
            self._reactor.removeReader(self)
        if not self._closing:
            self._receiver.ended()
        if self._end_sent and self._cipher_left is None:
            self._lost(ConnectionEnded("both sides are done"))

    # The TLS handshake

    def _handshake(self) -> None:
        session = self._session
        if session is None or self._closed or not self._handshaking:
            return
        try:
            done = session.handshake()
        except (ssl.SSLError, ValueError) as e:
            if alert := session.take():
                self._send_cipher_text(alert)
            self._lost(TLSFailed(_reason(e)))
            return
        if own := session.take():
            self._send_cipher_text(own)
        if not done or self._closed:
            return
        self._handshaking = False
        self._deadline.cancel()
        self._deadline = None
        if self._paused:
            self.pause()
        on_secure, self._on_secure = self._on_secure, None
        if on_secure is not None:
            on_secure()
        if self._queue:
            self.doWrite()
        if not self._paused and session.waiting:
            self._soon()

    def _handshake_too_slow(self) -> None:
        self._deadline = None
        self._lost(TLSFailed("the TLS handshake took too long"))

    # Sending

    def send(self, data: Buffer) -> bool:
        """See `tower.pipes.Pipe.send`; after `finish` or `close` *data* is dropped."""
        if self._closed or self._closing or self._finishing:
            return True
        size = len(data)
        self.bytes_out += size
        sent = 0 if self._queue or self._handshaking else self._transmit(data)
        if sent < size:
            self._queue.append(memoryview(bytes(data[sent:])))
            self.queued += size - sent
        elif self._cipher_left is None:
            return True
        self._congested = True
        if not (self._writing or self._closed or self._handshaking):
            self._writing = True
            self._reactor.addWriter(self)
        return False

    def _transmit(self, data: Buffer) -> int:
        """Give the kernel what it takes of *data*; return how much need not be kept."""
        try:
            if self._session is None:
                return self._socket.send(data)
            if self._cipher_left is not None:
                return 0
            size = len(data)
            if size <= PIECE:
                self._send_cipher_text(self._session.encrypt(data))
                return size
            sent = 0
            with memoryview(data) as view:
                while sent < size and self._cipher_left is None and not self._closed:
                    piece = view[sent : sent + PIECE]
                    self._send_cipher_text(self._session.encrypt(piece))
                    sent += len(piece)
            return sent
        except _WOULD_BLOCK:
            return 0
        except OSError as e:  # ssl.SSLError is one too
            self._lost(e)
            return len(data)

    def _send_cipher_text(self, data: bytes) -> None:
        if self._cipher_left is not None:
            self._cipher_left = memoryview(bytes(self._cipher_left) + data)
            return
        try:
            sent = self._socket.send(data)
        except _WOULD_BLOCK:
            sent = 0
        except OSError as e:
            self._lost(e)
            return
        if sent < len(data):
            self._cipher_left = memoryview(data)[sent:]
            if not self._writing:
                self._writing = True
                self._reactor.addWriter(self)

    def doWrite(self) -> Failure | None:
        """Send what is queued; called by the reactor when the kernel takes bytes again."""
        if self._cipher_left is not None:
            left, self._cipher_left = self._cipher_left, None
            self._send_cipher_text(bytes(left))
            if self._cipher_left is not None or self._closed:
                return None
        queue = self._queue
        while queue and not self._handshaking:
            first = queue[0]
            sent = self._transmit(first)
            if self._closed:
                return None
            self.queued -= sent
            if sent == len(first):
                queue.popleft()
            else:
                queue[0] = first[sent:]
            if sent < len(first) or self._cipher_left is not None:
                if not self._writing:
                    self._writing = True
                    self._reactor.addWriter(self)
                return None
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)
        self._all_sent()
        return None

    def _all_sent(self) -> None:
        if self._queue or self._cipher_left is not None:
            return
        if self._closing or self._finishing:
            self._end_our_side()
        elif self._congested:
            self._congested = False
            self._receiver.drained()

    # Ends

    def finish(self) -> None:
        """See `tower.pipes.Pipe.finish`."""
        if not (self._finishing or self._closing or self._closed):
            self._finishing = True
            if not self._handshaking:
                self._all_sent()

    def close(self) -> None:
        """See `tower.pipes.Pipe.close`."""
        if self._closing or self._closed:
            return
        self._closing = self._paused = True
        if self._handshaking:
            self._lost(ConnectionEnded("closed on our side"))
        else:
            self._all_sent()

    def _end_our_side(self) -> None:
        """Tell the peer that this was all; when both sides are done, or we want no more, that is the end."""
        if not self._end_sent:
            self._end_sent = True
            if self._session is not None:
                self._send_cipher_text(self._session.end())
                if self._cipher_left is not None or self._closed:
                    return  # we are called again once it has gone
        if self._peer_ended:
            self._lost(ConnectionEnded("both sides are done"))
        elif self._closing:
            self._linger()
        elif self._session is None:
            self._shut()

    def _shut(self) -> bool:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as e:
            self._lost(e)
            return False
        return True

    def _linger(self) -> None:
        """Close without a reset: one would destroy what the peer has not read yet (RFC 9112 section 9.6)."""
        if not self._shut():
            return
        self._lingering = self._reactor.callLater(LINGER, self._release)
        self._read_on()
        receiver, self.receiver = self._receiver, _Unheard()
        receiver.closed(ConnectionEnded("closed on our side"))

    def _discard(self) -> None:
        try:
            if self._socket.recv_into(_CIPHER):
                return
        except _WOULD_BLOCK:
            return
        except OSError:
            pass  # gone, and that is all we wait for
        self._release()

    def _release(self) -> None:
        self._lost(ConnectionEnded("closed on our side"))

    def abort(self) -> None:
        """See `tower.pipes.Pipe.abort`; the peer sees a reset."""
        if self._closed:
            return
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass  # it is about to be closed anyway
        self._lost(ConnectionEnded("aborted on our side"))

    def connectionLost(self, reason: Failure) -> None:
        """Note that the reactor lost the descriptor or is shutting down."""
        error = reason.value
        self._lost(error if isinstance(error, Exception) else ConnectionEnded(str(error)))

    def _lost(self, reason: Exception) -> None:
        if self._closed:
            return
        self._closed = True
        self._reactor.removeReader(self)
        self._reactor.removeWriter(self)
        for call in (self._deadline, self._again, self._lingering):
            if call is not None and call.active():
                call.cancel()
        self._deadline = self._again = self._lingering = None
        self._queue.clear()
        self._cipher_left = None
        self.queued = 0
        self._fd = -1
        self._socket.close()
        self._on_secure = None
        receiver, self.receiver = self._receiver, _Unheard()
        receiver.closed(reason)


def _address(name: Callable[[], Any]) -> IPv4Address | IPv6Address:
    try:
        host, port = name()[:2]
    except OSError:
        return IPv4Address("TCP", "0.0.0.0", 0)
    kind = IPv6Address if ":" in host else IPv4Address
    return kind("TCP", host, port)


def _reason(error: Exception) -> str:
    """Return what OpenSSL says, without its file names and numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error)
