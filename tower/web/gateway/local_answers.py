"""Requests that Tower answers itself: reading their bodies, and answers written in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from tower.http.bodies import CHUNKED, ChunkedBody
from tower.kube.status import StatusError, request_id_lines, status_line
from tower.net.pipes import Buffer
from tower.web.gateway.exchange import Exchange
from tower.web.gateway.refusals import request_timeout
from tower.web.outcome import Headers, StreamingResponse

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def response_head(
    code: int, headers: Headers, common: bytes, *, framing: bytes, close: bool, request_id: str
) -> bytes:
    """Return the head of an answer; *framing* is the line that defines the body's end, or nothing.

    :param common: the lines that all answers have.
    """
    lines = [status_line(code), *(b"%b: %b\r\n" % header for header in headers), common, framing]
    lines.append(request_id_lines(request_id))
    lines.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(lines)


class BodyReading(Exchange):
    """Reads the body of one request into memory; `done` fires with it, or fails with a `StatusError`.

    :ivar raw: the whole body, with framing.
    """

    raw = b""

    def __init__(self, request: Request, limit: int) -> None:
        self.done: Deferred[bytes] = Deferred()
        self._request = request
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []
        channel = request.channel
        self._take(request.early)
        if request.fields.body > limit:
            self._too_long()
        elif not channel.body_pending:
            self.complete()
        elif not self.done.called:
            if request.fields.expects and not request.early:
                channel.send(_CONTINUE)
                if request.over:  # the client disconnected meanwhile
                    self.abandon()
                    return
            channel.take_body(self._take)

    def _take(self, data: Buffer) -> bool:
        self._size += len(data)
        if self._size > self._limit:
            self._too_long()
        else:
            self._pieces.append(bytes(data))
        return True

    def _too_long(self) -> None:
        self._pieces.clear()
        self._fail(StatusError(413, f"the request body is longer than {self._limit} B", close=True))

    def complete(self) -> None:
        """See `tower.web.gateway.exchange.Exchange.complete`."""
        if self.done.called:
            return
        self.raw = body = b"".join(self._pieces)
        self._pieces.clear()
        if self._request.fields.body == CHUNKED:
            payload: list[bytes] = []
            ChunkedBody(payload).feed(body)
            body = b"".join(payload)
        self.done.callback(body)

    def abandon(self) -> None:
        """Fail, if the body is still incomplete."""
        self._fail(StatusError(400, "client disconnected"))

    def tick(self, age: int) -> None:
        """Enforce the deadline of the body, and then of the router."""
        limits = self._request.channel.gateway.limits
        if not self.done.called:
            if age > limits.body:
                text = f"the request body was not complete within {limits.body:.0f} s"
                self._fail(StatusError(408, text, close=True))
        elif age > limits.answer:
            self._request.fail(request_timeout("Tower", limits.answer))

    def _fail(self, refusal: StatusError) -> None:
        if not self.done.called:
            self.done.errback(refusal)


class BodyDiscarding(Exchange):
    """Discards the rest of a request's body after its answer, so that the connection can be kept."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._seconds = 0

    def start(self) -> None:
        """Receive the rest of the body."""
        self._request.channel.take_body(self._drop)

    def _drop(self, data: Buffer) -> bool:
        return True

    def complete(self) -> None:
        """Continue with the next request."""
        self._request.finish(keep=True)

    def tick(self, age: int) -> None:
        """Close the connection if the body takes longer than a head may."""
        self._seconds += 1
        if self._seconds > self._request.channel.gateway.limits.head:
            self._request.finish(keep=False)


class StreamedAnswer(Exchange):
    """Writes one answer of unknown length, without a deadline; a `tower.web.outcome.BodyStream`."""

    def __init__(self, request: Request) -> None:
        self.on_drained: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self._request = request
        self._chunked = request.minor == 1
        self._over = False
        self._keep = self._chunked and request.keep

    def begin(self, response: StreamingResponse) -> None:
        """Send the head and start the producer."""
        request = self._request
        framing = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        common, close = request.common_lines, not self._keep
        head = response_head(
            response.code,
            response.headers,
            common,
            framing=framing,
            close=close,
            request_id=request.request_id,
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

    def conclude(self) -> None:
        """End the answer here."""
        self.finish()

    def drained(self) -> None:
        """Notify the producer."""
        if self.on_drained is not None:
            self.on_drained()

    def abandon(self) -> None:
        """Stop the producer."""
        if not self._over:
            self._close()

    def _close(self) -> None:
        self._over = True
        if self.on_closed is not None:
            self.on_closed()
