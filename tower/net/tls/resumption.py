"""TLS session resumption."""

from __future__ import annotations

import ssl

#: Largest number of reads of a session, per server.
LOOKS = 100


class Resumption:
    """Resumes sessions with one server and one context by tickets (RFC 8446 section 2.2).

    A resumed handshake needs no signature and no verification of a chain.  Each read of a session leaks some
    KiB in Python (`SSLObject.session`, seen with 3.11), so their number is limited.
    """

    __slots__ = ("_looks", "session")

    def __init__(self) -> None:
        self.session: ssl.SSLSession | None = None
        self._looks = LOOKS

    def learn(self, tls: ssl.SSLObject, offered: ssl.SSLSession | None) -> None:
        """Store a new ticket: before TLS 1.3 it comes during the handshake, since then after it.

        :param offered: the value of `session` at the start of the handshake.
        """
        if offered is not self.session or tls.session_reused or not self._looks:
            return
        self._looks -= 1
        latest = tls.session
        if latest is not None and latest.has_ticket:
            self.session = latest
