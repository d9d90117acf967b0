"""Connections through an HTTP proxy: CONNECT (RFC 9110 section 9.3.6)."""

from __future__ import annotations

import re

from twisted.internet.defer import Deferred

from tower.escaping import PEER_TEXT_LIMIT, shortened
from tower.net.connecting import ConnectFailed
from tower.net.pipes import Pipe
from tower.net.proxy_environment import HTTPProxy, ServerURL

#: Longest head of a proxy's response, B.
LONGEST_HEAD = 16 * 1024


def connect_through(pipe: Pipe, proxy: HTTPProxy, url: ServerURL) -> Deferred[None]:
    """Ask *proxy*, the peer of *pipe*, to connect to *url*; the caller limits the time.

    :return: fires when connected; the pipe is paused then, and nothing was received from *url*.  Cancelling
        closes the pipe.
    :raise ConnectFailed: through the Deferred: the proxy refused; the pipe is closed.
    """
    answer = _ConnectAnswer(pipe, proxy)
    answer.start(proxy.request(url))
    return answer.done


class _ConnectAnswer:
    """Receiver of an HTTP proxy's response to CONNECT; `done` fires when connected."""

    def __init__(self, pipe: Pipe, proxy: HTTPProxy) -> None:
        self._pipe = pipe
        self._proxy = proxy
        self._head = b""
        self._settled = False
        self.done: Deferred[None] = Deferred(self._canceled)

    def _canceled(self, _: object) -> None:
        self._settled = True
        self._pipe.abort()

    def start(self, request: bytes) -> None:
        """Send the request."""
        self._pipe.receiver = self
        self._pipe.send(request)
        self._pipe.resume()

    def received(self, data: memoryview) -> None:
        """Parse the response head; the server sends nothing before we do, so more bytes are an error."""
        self._head += bytes(data)
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            if len(self._head) > LONGEST_HEAD:
                self._fail("answered CONNECT with a head that is too long")
            return
        status = re.match(rb"HTTP/1\.[01] ([0-9]{3})(?: ([ -~]*))?\r\n", self._head)
        if status is None:
            self._fail("did not answer CONNECT as an HTTP proxy does")
        elif not status.group(1).startswith(b"2"):
            text = b" ".join(part for part in status.groups() if part).decode("ascii")
            self._fail(f"answered CONNECT with {shortened(text, PEER_TEXT_LIMIT)}")
        elif end + 4 != len(self._head):
            self._fail("sent more than its answer to CONNECT")
        elif not self._settled:
            self._settled = True
            self._pipe.pause()
            self.done.callback(None)

    def ended(self) -> None:
        """Fail."""
        self._fail("closed the connection")

    def drained(self) -> None:
        """The request is small."""

    def closed(self, reason: Exception) -> None:
        """Fail."""
        self._fail(f"closed the connection: {reason}")

    def _fail(self, text: str) -> None:
        if not self._settled:
            self._settled = True
            self.done.errback(ConnectFailed("unreachable", f"the HTTP proxy {self._proxy} {text}"))
            self._pipe.abort()
