"""One TLS session as an object without I/O: cipher text in, plain text out, and the other way.

Python's ``ssl`` on memory BIOs.  Some traps decide the shape:

* Bytes that wait inside raise no event of the socket, so `TLSSession.waiting` or `more` must be asked.
* A BIO never gives back the memory for what it once held, and asking OpenSSL for a record that is not whole
  costs an exception.  So it gets one record at a time; what is to be decrypted later waits outside.
* The outgoing BIO hands out a new ``bytes`` each time, so no more than `PIECE` is encrypted at once: from
  128 KiB on each would be an ``mmap`` of its own.
* OpenSSL loses what has come and was not read when we end our side, so `TLSSession.end` puts it aside.
* OpenSSL takes, and answers, as many new keys (RFC 8446 section 4.6.3) as a peer likes, who needs not even be
  known: 27 bytes each, and 40 us of ours.  So records that bring nothing are counted (`IDLE_RECORDS`), and
  no more than `_FLIGHT` are behind a handshake in the same call.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tower.net.pipes import Buffer

#: Plain text encrypted at once, B.
PIECE = 96 * 1024

#: Type, version and length of a record (RFC 8446 section 5.1), B.
_HEADER = 5

#: Records that may bring nothing to read: tickets, new keys.  Each that brings something makes good for one.
IDLE_RECORDS = 32

#: What TLS may have to say that nobody has taken yet, B.
UNSAID = 64 * 1024

#: Records that OpenSSL is given at once during the handshake; a side's flight has hardly more.
_FLIGHT = 8

_NOTHING = memoryview(b"")


class TLSEnded(Exception):
    """The peer said that it sends no more (close_notify)."""


class TLSSession:
    """:param server_hostname: name to verify and to send as SNI; None on the server's side.
    :param session: an earlier one with the same server and context, by which the handshake is shorter.
    :ivar more: whether something can be read at once.
    """

    __slots__ = (
        "_aside",
        "_begun",
        "_cipher_text",
        "_ended",
        "_head",
        "_idle",
        "_incoming",
        "_missing",
        "_outgoing",
        "_position",
        "more",
        "object",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ended = self._begun = self.more = False
        self._aside = self._head = b""  # decrypted when we ended our side; of a header that is not whole
        self._cipher_text = _NOTHING
        self._position = 0
        self._missing = 0  # of the record that OpenSSL has the beginning of
        self._idle = 0  # records that brought nothing, less what came of others
        self.object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
            session=session,
        )

    @property
    def waiting(self) -> bool:
        """Whether bytes wait inside that no event of the socket will announce."""
        return (
            self._ended
            or self._begun
            or self._position < len(self._cipher_text)
            or bool(self._aside)
            or (self._incoming.pending > 0 and not self._missing)
        )

    def handshake(self) -> bool:
        """Go on with the handshake; take what it wants sent from `take`.

        :return: whether it is over.
        :raise ssl.SSLError: it failed (an alert to send may be in `take`).
        """
        done = False
        while not done:
            given = 0
            while given < _FLIGHT and self._next_record():
                given += 1
            try:
                self.object.do_handshake()
            except ssl.SSLWantReadError:
                if given < _FLIGHT:
                    return False
            else:
                done = True
        self.keep()
        return True

    def talked(self) -> None:
        """Note that a record brought nothing to read.

        :raise ssl.SSLError: there were too many of them, or of the answers that they want.
        """
        self._idle += 1
        if self._idle > IDLE_RECORDS or self._outgoing.pending > UNSAID:
            raise ssl.SSLError(1, "too many records that bring nothing")

    def feed(self, cipher_text: memoryview) -> None:
        """Take what came from the socket.  Call `keep` before the buffer it is in is used again."""
        if self._position < len(self._cipher_text):
            cipher_text = memoryview(bytes(self._cipher_text[self._position :]) + cipher_text)
        self._cipher_text = cipher_text
        self._position = 0

    def keep(self) -> None:
        """Copy what was taken and not decrypted yet."""
        left = self._cipher_text[self._position :]
        self._cipher_text = memoryview(bytes(left)) if left else _NOTHING
        self._position = 0
        self.more = self.waiting

    def _next_record(self) -> bool:
        """Give OpenSSL what there is of the next record; return whether that was its end."""
        text, begin = self._cipher_text, self._position
        size, missing = len(text), self._missing
        if begin == size:
            return False
        if self._head or not missing:
            missing = _HEADER - len(self._head)
            head = self._head + bytes(text[begin : begin + missing])
            if len(head) == _HEADER:
                missing += head[3] << 8 | head[4]
                head = b""
            self._head = head
        end = min(size, begin + missing)
        self._incoming.write(text[begin:end])
        self._missing = missing - end + begin
        if end == size:
            self._cipher_text, self._position = _NOTHING, 0
        else:
            self._position = end
        return not self._missing

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
        incoming = self._incoming
        self.more = False
        while have < room and not self._ended:
            if not (self._begun or (incoming.pending and not self._missing) or self._next_record()):
                return have
            try:
                count = read(room - have, buffer[have:] if have else buffer)
            except ssl.SSLWantReadError:
                self._begun = False  # it was a ticket or a new key, or it was all read exactly
                self.talked()
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            self._ended = not count  # no event of the socket will say it again
            have += count
            if self._idle:
                self._idle -= 1
            self._begun = have == room and self.object.pending() > 0
        self.more = self.waiting
        if self._ended and not have:
            raise TLSEnded
        return have

    def decrypt(self, cipher_text: memoryview, buffer: memoryview) -> int:
        """Do what `feed` and `read_into` do; shorter for one whole record, as small messages mostly are.

        :param buffer: with room for the longest record.
        """
        size = len(cipher_text)
        if (
            size < _HEADER
            or size != _HEADER + (cipher_text[3] << 8 | cipher_text[4])
            or self._missing
            or self._head
            or self._cipher_text
            or self.more
        ):
            self.feed(cipher_text)
            return self.read_into(buffer)
        self._incoming.write(cipher_text)
        read: Callable[[int, memoryview], int] = self.object.read  # type: ignore[assignment]
        try:
            count = read(len(buffer), buffer)
        except ssl.SSLWantReadError:
            self.talked()
            return 0  # it was a ticket or a new key
        except ssl.SSLZeroReturnError:
            count = 0
        if not count:
            self._ended = self.more = True
            raise TLSEnded
        if self._idle:
            self._idle -= 1
        return count

    def encrypt(self, plain_text: Buffer) -> bytes:
        """Return the cipher text for at most `PIECE` of *plain_text*."""
        self.object.write(plain_text)
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the cipher text that ends our side (close_notify); the peer may go on sending."""
        if decrypted := self.object.pending():
            self._aside += self.object.read(decrypted)
            self._begun = False
        encrypted = self._incoming.read()
        try:
            self.object.unwrap()
        except ssl.SSLError:
            pass  # it wants the peer's close_notify, which is not for us to wait for
        self._incoming.write(encrypted)
        self.more = self.waiting
        return self._outgoing.read()

    def take(self) -> bytes:
        """Return what the handshake, a key update or an alert wants sent."""
        return self._outgoing.read()
