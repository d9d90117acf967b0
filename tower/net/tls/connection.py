"""A TCP connection with TLS inside: `Connection` on top of a `TLSSession`.

Ciphertext is received into a buffer of the process too, as much as the receiver has room for, and decrypted
directly into the receiver's buffer.  Ciphertext of the last `send` that the kernel refuses is kept apart from
the send queue, because it cannot be encrypted twice.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from tower.errors import PeerError
from tower.net.connection import PLAIN, READ_SIZE, WOULD_BLOCK, Connection, ConnectionEnded
from tower.net.pipes import Buffer, NoReceiver
from tower.net.tls.session import PIECE, UNSAID, TLSEnded, TLSSession
from tower.reactor.interfaces import ISocketReactor

#: Plain text in the longest record, and all of that record in TLS 1.3, B.
_PLAIN: Final = 16 * 1024
_RECORD: Final = _PLAIN + 22

#: Ciphertext per receive call: bytes that may stay inside a paused TLS session, B.  In the longest records,
#: it is one packet of a tunnel.
TLS_READ_SIZE: Final = READ_SIZE // _PLAIN * _RECORD

#: Decryptions before other connections are served.
TLS_TURNS: Final = 4

#: Longest handshake, s.
HANDSHAKE_TIMEOUT: Final = 10.0

_CIPHER: Final = memoryview(bytearray(TLS_READ_SIZE))


class TLSFailed(PeerError):
    """The TLS handshake or session failed."""


class CertificateRejected(TLSFailed):
    """The TLS handshake failed because of the peer's certificate."""


class TLSConnection(Connection):
    """See `Connection`.  The handshake proceeds even while the connection is paused.

    Bytes that are sent during the handshake are queued.

    :param server_hostname: as the client: the name that the peer's certificate must have.
    :param handshake_timeout: longest handshake, s.
    """

    __slots__ = ("_again", "_deadline", "_on_secure", "_session")

    def __init__(
        self,
        reactor: ISocketReactor,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = True,
        server_hostname: str | None = None,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        on_secure: Callable[[], None] | None = None,
    ) -> None:
        self._session = TLSSession(context, server_side=server_side, server_hostname=server_hostname)
        super().__init__(reactor, sock)
        self._ready = False
        self._on_secure = on_secure
        self._deadline: IDelayedCall | None = reactor.callLater(handshake_timeout, self._too_slow)
        self._again = None if server_side else reactor.callLater(0, self._begin)
        self._start_reading()

    @property
    def tls(self) -> ssl.SSLObject:
        """The TLS session."""
        return self._session.object

    def peer_certificate(self) -> bytes | None:
        """See `Connection.peer_certificate`."""
        return self._session.object.getpeercert(binary_form=True)

    # The handshake

    def _begin(self) -> None:
        """Send the client's hello."""
        self._again = None
        self._handshake()

    def _handshake(self) -> None:
        session = self._session
        try:
            done = session.handshake()
        except (ssl.SSLError, ValueError) as e:
            if alert := session.take():
                self._send_alert(alert)
            if isinstance(e, ssl.SSLCertVerificationError):
                self.getPeer()  # kept for the receiver: the socket is closed before it is notified
                self._lost(CertificateRejected(reason_of(e)))
            else:
                self._lost(TLSFailed(reason_of(e)))
            return
        if own := session.take():
            self._send_cipher_text(own)
        if not done or self._closed:
            return
        self._ready = True
        assert self._deadline is not None
        self._deadline.cancel()
        self._deadline = None
        if self._paused and not self._closing:
            self._stop_reading()
        on_secure, self._on_secure = self._on_secure, None
        if on_secure is not None:
            on_secure()
        if self._send_queue is not None or self._finishing or self._closing:
            self.doWrite()
        if not self._paused and session.waiting:
            self._soon()

    def _send_alert(self, alert: bytes) -> None:
        """Send the alert, if the kernel accepts it at once."""
        try:
            self._socket.send(alert)
        except OSError:
            pass  # the failure that caused the alert is reported

    def _too_slow(self) -> None:
        self._lost(TLSFailed("the TLS handshake took too long"))

    # Reading

    def resume(self) -> None:
        """See `Connection.resume`."""
        super().resume()
        if self._ready and not self._paused and self._session.waiting:
            self._soon()

    def _soon(self) -> None:
        """Deliver bytes inside TLS, which no event of the socket announces."""
        if self._again is None and not self._closed:
            self._again = self._reactor.callLater(0, self._resumed)

    def _resumed(self) -> None:
        self._again = None
        if not (self._paused or self._peer_ended):
            self._decrypt()

    def doRead(self) -> None:
        """See `Connection.doRead`."""
        if not self._ready:
            if count := self._receive(_CIPHER):
                self._session.feed(_CIPHER[:count])
                self._handshake()
        elif self._paused:
            if self._closing:
                self._discard()
        elif self._session.more:
            self._decrypt()
        else:
            buffer = self._lend()
            if buffer is None:
                return
            room = len(buffer)
            fits = _CIPHER if room >= READ_SIZE else _CIPHER[: -(-room // _PLAIN) * _RECORD]
            if count := self._receive(fits):
                self._decrypt(buffer, fits[:count])
            elif not self._closed:
                self._return_buffer()

    def _receive(self, room: memoryview) -> int:
        """Receive ciphertext from the socket; return its length, 0 if there is none."""
        try:
            count = self._socket.recv_into(room)
        except WOULD_BLOCK:
            return 0
        except OSError as e:
            self._lost(e)
            return 0
        if not count:
            # without close_notify, an end is not distinguishable from a cut
            self._lost(ConnectionEnded("the connection was cut"))
        return count

    def _decrypt(self, buffer: memoryview | None = None, cipher_text: memoryview | None = None) -> None:
        """Deliver decrypted bytes, `TLS_TURNS` times at most.

        :param buffer: of the receiver.
        :param cipher_text: was just received.
        """
        session = self._session
        for _ in range(TLS_TURNS):
            if buffer is None:
                buffer = self._lend()
                if buffer is None:
                    break
            try:
                count = session.decrypt(cipher_text, buffer)
            except TLSEnded:
                self._return_buffer()
                self._end_of_stream()
                return
            except ssl.SSLError as e:
                self._lost(TLSFailed(reason_of(e)))
                return
            if not count:
                self._nothing_read()
                return
            self.bytes_in += count
            if self._filled is not None:
                self._filled(count)
            else:
                self._receiver.received(buffer[:count])
            if self._paused or self._closed or not session.more:
                break
            buffer = cipher_text = None
        else:
            self._soon()
        if session.more:
            session.keep()

    def _lend(self) -> memoryview | None:
        """Return the receiver's buffer; pause if it has no room."""
        buffer = PLAIN if self._buffer is None else self._buffer()
        if buffer is None:
            self.pause()
        return buffer

    def _nothing_read(self) -> None:
        self._return_buffer()
        if own := self._session.take():  # a key update, an alert
            self._send_cipher_text(own)

    # Sending

    @property
    def _has_unsent(self) -> bool:
        return self._unsent is not None

    def _transmit(self, data: Buffer) -> int:
        if self._has_unsent:
            return 0
        size = len(data)
        try:
            if size <= PIECE:
                self._send_cipher_text(self._session.encrypt(data))
                return size
            sent = 0
            with memoryview(data) as view:
                while sent < size and not (self._has_unsent or self._closed or self._end_sent):
                    piece = view[sent : sent + PIECE]
                    self._send_cipher_text(self._session.encrypt(piece))
                    sent += len(piece)
            return sent
        except ssl.SSLError as e:
            self._lost(TLSFailed(reason_of(e)))
            return size

    def _send_cipher_text(self, data: bytes) -> None:
        if self._unsent is not None:
            if len(self._unsent) > PIECE + UNSAID:
                self._lost(TLSFailed("the peer requests TLS messages but does not read them"))
                return
            self._unsent = memoryview(bytes(self._unsent) + data)
            return
        try:
            sent = self._socket.send(data)
        except WOULD_BLOCK:
            sent = 0
        except OSError as e:
            self._cannot_send(e)
            return
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._start_writing()

    def doWrite(self) -> None:
        """See `Connection.doWrite`."""
        if self._unsent is not None:
            try:
                sent = self._socket.send(self._unsent)
            except WOULD_BLOCK:
                return
            except OSError as e:
                self._cannot_send(e)
                return
            if sent < len(self._unsent):
                self._unsent = self._unsent[sent:]
                return
            self._unsent = None
        super().doWrite()

    # Ends

    def close(self) -> None:
        """See `Connection.close`; a handshake without queued bytes is not finished."""
        if self._ready or self._send_queue is not None:
            super().close()
        else:
            self._lost(ConnectionEnded("closed on our side"))

    def _send_end(self) -> None:
        self._send_cipher_text(self._session.end())

    def _release(self) -> None:
        self._on_secure = None
        for call in (self._deadline, self._again):
            if call is not None and call.active():
                call.cancel()
        self._deadline = self._again = None
        super()._release()


class _HandshakeReceiver(NoReceiver):
    """Receiver of a connection during its handshake; it is paused, so only `closed` is called."""

    def __init__(self, closed: Callable[[Exception], None]) -> None:
        self._closed = closed

    def closed(self, reason: Exception) -> None:
        """See `Receiver`."""
        self._closed(reason)


def start_tls(
    reactor: ISocketReactor,
    sock: socket.socket,
    context: ssl.SSLContext,
    host: str,
    handshake_timeout: float = HANDSHAKE_TIMEOUT,
) -> Deferred[TLSConnection]:
    """Start TLS as the client of *host* on a connected socket; cancelling aborts the connection.

    :return: fires with the connection, paused, after the handshake; fails with its close reason.
    :raise ValueError: *host* is not a valid server name.
    """

    def failed(reason: Exception) -> None:
        if not done.called:
            done.errback(reason)

    connection = TLSConnection(
        reactor,
        sock,
        context,
        server_side=False,
        server_hostname=host,
        handshake_timeout=handshake_timeout,
        on_secure=lambda: done.callback(connection),
    )
    done: Deferred[TLSConnection] = Deferred(lambda _: connection.abort())
    connection.receiver = _HandshakeReceiver(failed)
    return done


def reason_of(error: Exception) -> str:
    """Return OpenSSL's text, without its file names and numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and getattr(error, "reason", None):
        return error.reason.replace("_", " ").lower()
    return str(error)
