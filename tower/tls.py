"""One TLS session as an object without I/O: cipher text in, plain text out, and the other way.

Python's ``ssl`` on memory BIOs.  Three traps decide the shape: bytes that wait inside raise no event of the
socket, so `TLSSession.waiting` must be asked; the outgoing BIO hands out a new ``bytes`` each time, so no
more than `PIECE` is encrypted at once (from 128 KiB on each would be an ``mmap`` of its own); and OpenSSL
loses what has come and was not read when we end our side, so `TLSSession.end` puts it aside.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tower.pipes import Buffer

#: Plain text encrypted at once, B.
PIECE = 96 * 1024


class TLSEnded(Exception):
    """The peer said that it sends no more (close_notify)."""


class TLSSession:
    """:param server_hostname: name to verify and to send as SNI; None on the server's side.
    :ivar more: whether the last `read_into` left something that can be read at once.
    """

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ended = self.more = False
        self._aside = b""
        self.object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )

    @property
    def waiting(self) -> bool:
        """Whether bytes wait inside that no event of the socket will announce."""
        return self._ended or bool(self._aside) or self._incoming.pending > 0 or self.object.pending() > 0

    def handshake(self) -> bool:
        """Go on with the handshake; take what it wants sent from `take`.

        :return: whether it is over.
        :raise ssl.SSLError: it failed (an alert to send may be in `take`).
        """
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, cipher_text: memoryview) -> None:
        """Take what came from the socket."""
        self._incoming.write(cipher_text)

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt what is there into *buffer*, to its end if there is so much.

        :return: how many bytes; 0 when more must come from the socket first.
        :raise TLSEnded: the peer ended its side, and everything before was read.
        :raise ssl.SSLError: the session is broken.
        """
        have, room = 0, len(buffer)
        if self._aside:
            have = min(room, len(self._aside))
            buffer[:have] = self._aside[:have]
            self._aside = self._aside[have:]
        read: Callable[[int, memoryview], int] = self.object.read  # type: ignore[assignment]
        self.more = False
        try:
            while have < room:
                count = read(room - have, buffer[have:] if have else buffer)
                if not count:
                    self._ended = True
                    break
                have += count
                if have < room and not self._incoming.pending:
                    return have  # it stopped at the end of a record, and there is no other
            else:
                self.more = self.waiting
        except ssl.SSLWantReadError:
            return have
        except ssl.SSLZeroReturnError:
            self._ended = True  # no event of the socket will say it again
        if have:
            self.more = self.more or self._ended
            return have
        raise TLSEnded

    def encrypt(self, plain_text: Buffer) -> bytes:
        """Return the cipher text for at most `PIECE` of *plain_text*."""
        self.object.write(plain_text)
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the cipher text that ends our side (close_notify); the peer may go on sending."""
        if decrypted := self.object.pending():
            self._aside += self.object.read(decrypted)
        encrypted = self._incoming.read()
        try:
            self.object.unwrap()
        except ssl.SSLError:
            pass  # it wants the peer's close_notify, which is not for us to wait for
        self._incoming.write(encrypted)
        return self._outgoing.read()

    def take(self) -> bytes:
        """Return what the handshake, a key update or an alert wants sent."""
        return self._outgoing.read()
