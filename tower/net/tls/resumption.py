"""Shorter TLS handshakes with a server that was met before."""

from __future__ import annotations

import ssl

#: How often the sessions with one server are looked at, at the most.
LOOKS = 100


class Resumption:
    """Makes handshakes with one server shorter, by its own tickets (RFC 8446 section 2.2).

    They cost the server no signature and nobody the check of a chain.  It is for pipes of one and the same
    context.

    Each look at a session costs some KiB that Python never gives back (`SSLObject.session`, seen with 3.11).
    So there are no more looks than need be, and a limit.

    :ivar session: the last one that can be resumed.
    """

    __slots__ = ("_looks", "session")

    def __init__(self) -> None:
        self.session: ssl.SSLSession | None = None
        self._looks = LOOKS

    def learn(self, tls: ssl.SSLObject, offered: ssl.SSLSession | None) -> None:
        """Keep a ticket that came; before TLS 1.3 that is in the handshake, then behind it.

        :param offered: what `session` was when the handshake began.
        """
        if offered is not self.session or tls.session_reused or not self._looks:
            return
        self._looks -= 1
        latest = tls.session
        if latest is not None and latest.has_ticket:
            self.session = latest
