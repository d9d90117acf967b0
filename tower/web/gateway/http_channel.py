"""One user's connection: requests are served one at a time, and answered in order.

The connection is paused while its bytes cannot be forwarded: the body has no taker yet or the taker is full,
the user pipelines too far ahead (`tower.web.gateway.pipelining`), or pipelined requests wait for their turn
(`tower.web.gateway.round_robin`).

A connection without a valid credential has a limited lifetime, little time to read its answers, one request
per turn, and memory from a small budget that all such connections share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from tower.http.bodies import BadBody
from tower.http.requests import HEAD_LIMIT, BadHead, HeadReader, check_unfinished
from tower.kube.status import StatusError, status_response
from tower.net.pipes import AcceptedPipe, Buffer
from tower.net.tls.connection import CertificateRejected
from tower.web.gateway.pipelining import Pipelined
from tower.web.gateway.refusals import record_rejected_certificate
from tower.web.gateway.request import Request
from tower.web.gateway.request_body import BodyTaker, RequestBody
from tower.web.gateway.user_session import UserConnection

if TYPE_CHECKING:
    from tower.web.gateway.gateway import Gateway
    from tower.web.gateway.raw_streams import FramedSplice

#: Requests served in one turn of an authenticated connection; another one gets one.
TURN: Final = 8

_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")


@mypyc_attr(allow_interpreted_subclasses=True)
class HTTPChannel(UserConnection):
    """The receiver of one user's connection.

    :ivar requestFactory: makes a `Request` from a parsed head.
    :ivar full: the user accepts no more bytes for now.
    :ivar upgraded: the relay to the user, after an upgrade to a protocol with a `StopNotice`; else None.
    """

    requestFactory: ClassVar[Callable[..., Request]] = Request

    def __init__(self, gateway: Gateway, connection: AcceptedPipe) -> None:
        super().__init__(gateway, connection)
        self.full = False
        self.upgraded: FramedSplice | None = None
        self._reader = HeadReader(gateway.claims)
        self._request: Request | None = None
        self._waiting: Pipelined | None = None
        self._body: RequestBody | None = None  # while it is incomplete
        self._paused = self._serving = self._queued = self._closing = self._released = False
        self._served = False  # at least one request
        self._age = 0

    # For requests

    @property
    def request(self) -> Request | None:
        """The current request, or None."""
        return self._request

    @property
    def body_pending(self) -> bool:
        """Whether the current request's body is incomplete."""
        return self._body is not None

    @property
    def kept(self) -> int:
        """Bytes received after the current request."""
        return 0 if self._waiting is None else self._waiting.unread

    def take_body(self, taker: BodyTaker | None, *, roomy: bool = True) -> None:
        """Forward the rest of the body to *taker*; None pauses it.  *roomy*: the taker is not full yet."""
        if self._body is not None:
            self._body.give_to(taker, roomy=roomy)
        self._account()
        self._settle()

    def taker_drained(self) -> None:
        """Record that the taker of the body has room again."""
        if self._body is not None and self._body.drained():
            self._settle()

    def send(self, data: Buffer) -> bool:
        """Send *data* to the user; after False stop until `Request.drained`."""
        if self.connection.send(data):
            return True
        self.fill()
        return False

    def fill(self) -> None:
        """Record that ``connection.send`` returned False: the user accepts no more bytes for now."""
        self.full = True
        self._age = 0

    def done(self, *, keep: bool) -> None:
        """End the current request; serve the next one, or close unless *keep*."""
        self._request = None
        if self._loan.size:
            self._account()
        if not keep or self._body is not None or self.gateway.stopping:
            self.close()
            return
        self._age = 0
        if self._waiting is not None and not (self._serving or self.full):
            self._serve(*self._waiting.take())

    def release(self) -> bytes:
        """Pause and give up the connection; return the bytes after the current request."""
        self.connection.pause()
        waiting, self._waiting = self._waiting, None
        self._released = True
        self._account()
        if waiting is None:
            return b""
        data, at = waiting.take()
        return data[at:]

    def forget(self) -> None:
        """Forget the connection, which was given up with `release`."""
        request, self._request = self._request, None
        self.upgraded = None  # break the cycle
        if request is not None:
            request.forget()
        self.leave()
        self.gateway.forget(self)

    # Bytes of the user

    def received(self, data: memoryview) -> None:
        """See `tower.net.pipes.Receiver.received`."""
        if self._request is None:
            if self._waiting is None and not (self.full or self._closing):
                self._serve(bytes(data))
            elif not self._closing:
                self._continue_head(data)
        elif self._body is not None:
            self._pass_body(data)
        else:
            self._keep(data)

    def _serve(self, raw: bytes, at: int = 0) -> None:
        """Serve the requests in *raw* from index *at*, until one has no answer yet or is incomplete.

        After `TURN` of them, other connections are served first.
        """
        self._serving = True
        served = 0
        while True:
            # empty lines before a request are ignored (RFC 9112 section 2.2)
            if raw.startswith(b"\r\n", at):
                at = _EMPTY_LINES.match(raw, at).end()  # type: ignore[union-attr]
            end = raw.find(b"\r\n\r\n", at) + 4
            if end < 4 or end - at > HEAD_LIMIT:
                self._begin_head(raw[at:], end - at)
                break
            head, early = raw[at:end], b""
            try:
                method, target, minor, fields = self._reader.read(head)
                if fields.body:
                    early = self._begin_body(fields.body, raw, end)
                    end += len(early)
            except (BadHead, BadBody) as e:
                self._reject(_refusal(e))
                break
            self._waiting = Pipelined(raw, end) if end < len(raw) else None
            self._served = True
            self._age = 0
            self._request = request = self.requestFactory(self, method, target, minor, fields, head, early)
            request.process()
            if self.request is request or self._waiting is None or self._closing or self.full:
                break
            served += 1
            if served >= (TURN if self.proven else 1):
                self._queued = True
                self.gateway.round_robin.join(self)
                break
            raw, at = self._waiting.take()
        self._serving = False
        if (
            self._waiting is not None
            or self._paused
            or (self._request is not None and self._request.fields.body)
        ):
            self._keep_in_bounds()
            self._settle()

    def take_turn(self) -> None:
        """Serve more of the pipelined requests; see `tower.web.gateway.round_robin`."""
        self._queued = False
        if self._waiting is not None and not (self._request is not None or self.full or self._closing):
            self._serve(*self._waiting.take())
        else:
            self._settle()

    def _begin_head(self, raw: bytes, end: int) -> None:
        """Keep the beginning of a head, if it can become a valid one."""
        try:
            check_unfinished(raw if end < 4 else raw[:end])
        except BadHead as e:
            self._reject(_refusal(e))
        else:
            self._waiting = Pipelined(raw) if raw else None
            self._age = 0

    def _begin_body(self, body: int, raw: bytes, at: int) -> bytes:
        """Return the part of the body in *raw* from index *at*."""
        pending = RequestBody(body)
        end = pending.follow(raw, at)
        if end < 0:
            self._body = pending
            return raw[at:]
        return raw[at:end]

    def _continue_head(self, data: memoryview) -> None:
        """Append *data* to an incomplete head."""
        waiting = self._waiting
        if waiting is None or self.full or self._queued:
            self._keep(data)
            return
        try:
            is_whole = waiting.add_to_head(data)
        except BadHead as e:
            self._reject(_refusal(e))
            return
        if is_whole:
            self._waiting = None
            self._serve(*waiting.take())
        else:
            self._keep_in_bounds()

    def _pass_body(self, data: memoryview) -> None:
        """Forward the body of the current request, and keep the bytes after it."""
        body, request = self._body, self._request
        assert body is not None
        assert request is not None
        try:
            stop = body.follow(data)
        except BadBody as e:
            self._body = None
            request.fail(_refusal(e))
            return
        if stop >= 0:
            self._body = None
            if stop < len(data):
                self._keep(data[stop:])
                if request is not self._request:  # no memory was left
                    return
                data = data[:stop]
        self._age = 0
        if not body.pass_on(data) and stop < 0:
            self._settle()
        if stop >= 0 and request is self._request:
            request.body_complete()

    def _keep(self, data: memoryview) -> None:
        """Keep bytes of the next requests."""
        if self._waiting is None:
            self._waiting = Pipelined(bytes(data))
        else:
            self._waiting.add(data)
        if self._waiting.is_full:
            self._settle()
        self._keep_in_bounds()

    def _keep_in_bounds(self) -> None:
        """Give up if the budget has no memory for the kept bytes."""
        if not self._account():
            self._give_up()

    def evict(self) -> None:
        """See `tower.net.budget.MemoryHolder.evict`."""
        self._loan.evicted()
        self._give_up()

    def _give_up(self) -> None:
        """Answer 503 and close: there is not enough memory."""
        if self._closing:
            return
        text = "Tower is short of memory: retry later"
        refusal = StatusError(503, text, details={"retryAfterSeconds": 1}, close=True)
        if self._request is not None:
            self._request.fail(refusal)
        else:
            self._reject(refusal)

    def _account(self) -> bool:
        """Adjust the loan to the kept bytes; return False if the budget has not enough memory."""
        held = 0 if self._waiting is None else self._waiting.held
        if self._request is not None:
            held += len(self._request.early)
        return self._loan.cover(self, held)

    def _settle(self) -> None:
        """Pause the connection, or resume it if its bytes can be forwarded."""
        blocked = (
            self._queued
            or (self._waiting is not None and self._waiting.is_full)
            or (self._body is not None and self._body.blocked)
        )
        if blocked != self._paused and not self._closing:
            self._paused = blocked
            if blocked:
                self.connection.pause()
            else:
                self.connection.resume()

    def ended(self) -> None:
        """Close or abort: the client disconnected, which a silent watch would never notice."""
        if self._request is None:
            self.close()
        else:
            self.connection.abort()

    def drained(self) -> None:
        """See `tower.net.pipes.Receiver.drained`."""
        self.full = False
        self._age = 0
        if self._request is not None:
            self._request.drained()
        elif self._waiting is not None and not (self._serving or self._closing or self._queued):
            self._serve(*self._waiting.take())

    def closed(self, reason: Exception) -> None:
        """See `tower.net.pipes.Receiver.closed`."""
        if isinstance(reason, CertificateRejected):
            record_rejected_certificate(self, reason)
        self._closing = True
        request, self._request = self._request, None
        if request is not None:
            request.abandon()
        self._body = None  # break the cycle
        self._waiting = None
        self._account()
        self.leave()
        self.gateway.forget(self)

    # Ends

    def _reject(self, refusal: StatusError) -> None:
        """Answer an invalid request, and close."""
        self.gateway.failures += 1
        self.connection.send(status_response(refusal, close=True))
        self.close()

    def close(self) -> None:
        """Close after everything was sent."""
        self._closing = True
        self._waiting = None
        self._account()
        self._age = 0
        self.connection.close()

    def retire(self) -> None:
        """Close now if idle, else after the current answer."""
        if self._request is None and not self._released:
            self.close()

    def abort(self, reason: str, code: int = 401) -> None:
        """End the connection and its request: the credential, or the user's admission, is no longer valid."""
        self.end(StatusError(code, reason, close=True))

    def end(self, refusal: StatusError) -> None:
        """End the connection and its request; answer with *refusal* if no answer has begun."""
        if self._released:
            if self._request is not None:
                self._request.aborted("tower")
            if self.upgraded is not None and self.upgraded.notified:
                self.connection.close()  # complete if the user has read all; otherwise abort() cuts it
            self.connection.abort()
        elif self._request is None:
            self.close()
        else:
            self._request.fail(refusal)

    def tick(self) -> None:
        """Enforce the deadlines; called once a second."""
        if self._released:
            return
        self._age += 1
        self._lifetime += 1
        age, limits, request = self._age, self.gateway.limits, self._request
        if request is not None and request.place is not None:
            request.place.tick(limits.answer)
        if not self.proven:
            self._check_lifetime()
        if self.full or self._closing:
            if age > (limits.stalled if self.proven else limits.unproven_stalled):
                self.connection.abort()
        elif request is not None:
            request.tick(age)
        elif self._waiting is not None:
            if age > limits.head:
                text = f"the request head was not complete within {limits.head:.0f} s"
                self._reject(StatusError(408, text, close=True))
        elif age > (limits.idle if self._served else limits.first_byte) or (
            self.last and self._lifetime > limits.unproven
        ):
            self.close()


def _refusal(e: BadHead | BadBody) -> StatusError:
    return StatusError(e.code, str(e), close=True)
