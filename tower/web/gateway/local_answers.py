"""Requests that are answered here: reading their bodies, writing answers at once or piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from tower.http.bodies import CHUNKED, ChunkedBody
from tower.kube.status import StatusError, status_line
from tower.net.pipes import Buffer
from tower.web.outcome import Headers, StreamingResponse

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def response_head(code: int, headers: Headers, date: bytes, *, framing: bytes, close: bool) -> bytes:
    """Return the head of an answer.

    :param date: the Date line.
    :param framing: the line that says where the body ends, or nothing.
    """
    lines = [status_line(code), *(b"%b: %b\r\n" % header for header in headers), date, framing]
    lines.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(lines)


class BodyReading:
    """Collects the body of one request.

    :ivar done: fires with the body, or fails with a `StatusError`.
    """

    def __init__(self, request: Request, limit: int) -> None:
        self.done: Deferred[bytes] = Deferred()
        self._request = request
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []
        channel = request.channel
        self._take(request.early)
        if not channel.body_pending:
            self.complete()
        elif not self.done.called:
            if request.fields.expects and not request.early:
                channel.send(_CONTINUE)
                if request.over:  # the user went under it
                    self.abandon()
                    return
            channel.take_body(self._take)

    def _take(self, data: Buffer) -> bool:
        self._size += len(data)
        if self._size > self._limit:
            self._pieces.clear()
            self._fail(
                StatusError(413, f"the body of the request is longer than {self._limit} B", close=True)
            )
        else:
            self._pieces.append(bytes(data))
        return True

    def complete(self) -> None:
        """Note that the body is here."""
        if self.done.called:
            return
        body = b"".join(self._pieces)
        self._pieces.clear()
        if self._request.fields.body == CHUNKED:
            payload: list[bytes] = []
            ChunkedBody(payload).feed(body)
            body = b"".join(payload)
        self.done.callback(body)

    def drained(self) -> None:
        """Nothing was held back."""

    def abandon(self) -> None:
        """Tell the router that the user is gone, if it is still waiting."""
        self._fail(StatusError(400, "the user has gone"))

    def tick(self, age: int) -> None:
        """Give the user so long for the body, and the router so long for the rest."""
        limits = self._request.channel.gateway.limits
        if not self.done.called:
            if age > limits.body:
                self._fail(StatusError(408, "the body of the request came too slowly", close=True))
        elif age > limits.answer:
            self._request.fail(StatusError(504, "Tower took too long to answer"))

    def _fail(self, refusal: StatusError) -> None:
        if not self.done.called:
            self.done.errback(refusal)


class BodyDiscarding:
    """Drops what is still to come of a request's body after its answer, so that the connection can go on."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._seconds = 0

    def start(self) -> None:
        """Take the rest of the body."""
        self._request.channel.take_body(self._drop)

    def _drop(self, data: Buffer) -> bool:
        return True

    def complete(self) -> None:
        """Go on with the next request."""
        self._request.finish(keep=True)

    def drained(self) -> None:
        """Nothing was held back."""

    def abandon(self) -> None:
        """Nothing is held."""

    def tick(self, age: int) -> None:
        """Close if the body takes longer than a head may: it does no good any more."""
        self._seconds += 1
        if self._seconds > self._request.channel.gateway.limits.head:
            self._request.finish(keep=False)


class StreamedAnswer:
    """Writes one answer of unknown length; a `tower.web.outcome.BodyStream`."""

    def __init__(self, request: Request) -> None:
        self.on_drained: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self._request = request
        self._chunked = request.minor == 1
        self._over = False
        self._keep = self._chunked and request.keep

    def begin(self, response: StreamingResponse) -> None:
        """Send the head and start."""
        request = self._request
        framing = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        head = response_head(
            response.code,
            response.headers,
            request.channel.gateway.date,
            framing=framing,
            close=not self._keep,
        )
        request.begun(response.code)
        request.channel.send(head)
        if request.method == b"HEAD":
            self._over = True
            request.finish_with_body(keep=self._keep)
        else:
            response.start(self)

    def write(self, data: bytes) -> bool:
        """See `tower.web.outcome.BodyStream.write`."""
        if self._over:
            return False
        if not data:
            return True
        return self._request.channel.send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self) -> None:
        """See `tower.web.outcome.BodyStream.finish`."""
        if self._over:
            return
        if self._chunked:
            self._request.channel.send(b"0\r\n\r\n")
        self._close()
        self._request.finish_with_body(keep=self._keep)

    def drained(self) -> None:
        """Tell the producer."""
        if self.on_drained is not None:
            self.on_drained()

    def abandon(self) -> None:
        """Tell the producer that the user is gone."""
        if not self._over:
            self._close()

    def tick(self, age: int) -> None:
        """A watch may be silent for as long as it likes."""

    def complete(self) -> None:
        """Nobody reads the body of such a request."""

    def _close(self) -> None:
        self._over = True
        if self.on_closed is not None:
            self.on_closed()
