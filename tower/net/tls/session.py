"""A TLS session without I/O: ciphertext in, plaintext out, and the reverse.

Python's ``ssl`` on memory BIOs, with these constraints:

* Bytes inside the session cause no event of the socket, so check `TLSSession.waiting` or `more`.
* A BIO never releases its memory, and reading an incomplete record costs an exception.  So OpenSSL gets one
  record at a time; the rest waits outside.
* The outgoing BIO returns a new ``bytes`` each time, so at most `PIECE` is encrypted at once: from 128 KiB
  on, each would be an ``mmap``.
* OpenSSL loses received, unread bytes when we end our side, so `TLSSession.end` stores them.
* OpenSSL accepts, and answers, any number of key updates (RFC 8446 section 4.6.3), even from unauthenticated
  peers: 27 bytes each, and 40 us of our time.  So records without data are counted (`IDLE_RECORDS`), and no
  more than `_FLIGHT` after a handshake are processed in the same call.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from tower.net.pipes import Buffer

#: Plaintext encrypted at once, B.
PIECE: Final = 96 * 1024

#: Type, version and length of a record (RFC 8446 section 5.1), B.
_HEADER: Final = 5

#: Records without data (tickets, key updates) that a peer may send beyond those with data.
IDLE_RECORDS: Final = 32

#: TLS's own output that may wait to be sent, B.
UNSAID: Final = 64 * 1024

#: Records processed at once during the handshake; a flight hardly has more.
_FLIGHT: Final = 8

_NOTHING: Final = memoryview(b"")


class TLSEnded(Exception):
    """The peer ended its stream (close_notify)."""


class TLSSession:
    """One end of a TLS connection.

    :param server_hostname: name to verify and to send as SNI; None on the server's side.
    :param session: an earlier one with the same server and context, to resume.
    :ivar more: whether bytes can be read at once.
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
        self._aside = self._head = b""  # decrypted when we ended our side; part of a record header
        self._cipher_text = _NOTHING
        self._position = 0
        self._missing = 0  # bytes, of the record that OpenSSL has the start of
        self._idle = 0  # records without data, minus those with data
        self.object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
            session=session,
        )

    @property
    def waiting(self) -> bool:
        """Whether bytes wait inside that no event of the socket announces."""
        return (
            self._ended
            or self._begun
            or self._position < len(self._cipher_text)
            or bool(self._aside)
            or (self._incoming.pending > 0 and not self._missing)
        )

    def handshake(self) -> bool:
        """Continue the handshake; return whether it is over.  `take` returns its output.

        :raise ssl.SSLError: it failed (`take` may have an alert).
        """
        given = _FLIGHT
        while given == _FLIGHT:
            given = 0
            while given < _FLIGHT and self._next_record():
                given += 1
            if self._shook_hands():
                self.keep()
                return True
        return False

    def _shook_hands(self) -> bool:
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def count_idle(self) -> None:
        """Count a record without data.

        :raise ssl.SSLError: too many such records, or too many unsent answers to them.
        """
        self._idle += 1
        if self._idle > IDLE_RECORDS or self._outgoing.pending > UNSAID:
            raise ssl.SSLError(1, "too many records without data")

    def feed(self, cipher_text: memoryview) -> None:
        """Add received bytes.  Call `keep` before their buffer is used again."""
        if self._position < len(self._cipher_text):
            cipher_text = memoryview(bytes(self._cipher_text[self._position :]) + cipher_text)
        self._cipher_text = cipher_text
        self._position = 0

    def keep(self) -> None:
        """Copy the bytes that are not decrypted yet."""
        left = self._cipher_text[self._position :]
        self._cipher_text = memoryview(bytes(left)) if left else _NOTHING
        self._position = 0
        self.more = self.waiting

    def _next_record(self) -> bool:
        """Pass the received part of the next record to OpenSSL; return whether it is complete."""
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
        """Decrypt received bytes into *buffer*, up to its size; return their number, 0 if more must come.

        :raise TLSEnded: the peer ended its stream, and all bytes before were read.
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
                self._begun = False  # a ticket, a key update, or a record that was read completely
                self.count_idle()
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            self._ended = not count  # no event of the socket repeats it
            have += count
            if self._idle:
                self._idle -= 1
            self._begun = have == room and self.object.pending() > 0
        self.more = self.waiting
        if self._ended and not have:
            raise TLSEnded
        return have

    def decrypt(self, cipher_text: memoryview | None, buffer: memoryview) -> int:
        """Do the same as `feed`, unless there is nothing new, and `read_into`.

        It is faster for one complete record: most small messages.
        """
        if cipher_text is None:
            return self.read_into(buffer)
        size = len(cipher_text)
        if (
            not _HEADER <= size <= len(buffer)
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
            count = read(size, buffer)
        except ssl.SSLWantReadError:
            self.count_idle()
            return 0  # a ticket or a key update
        except ssl.SSLZeroReturnError:
            count = 0
        if not count:
            self._ended = self.more = True
            raise TLSEnded
        if self._idle:
            self._idle -= 1
        return count

    def encrypt(self, plain_text: Buffer) -> bytes:
        """Return the ciphertext of *plain_text*, at most `PIECE`."""
        self.object.write(plain_text)
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the ciphertext that ends our stream (close_notify); the peer may continue to send."""
        if decrypted := self.object.pending():
            self._aside += self.object.read(decrypted)
            self._begun = False
        encrypted = self._incoming.read()
        try:
            self.object.unwrap()
        except ssl.SSLError:
            pass  # OpenSSL waits for the peer's close_notify; we do not
        self._incoming.write(encrypted)
        self.more = self.waiting
        return self._outgoing.read()

    def take(self) -> bytes:
        """Return the output of the handshake, a key update or an alert."""
        return self._outgoing.read()
