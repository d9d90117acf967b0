"""One user's connection: requests come in, one at a time goes on, answers leave in the same order.

The connection is paused whenever its bytes have nowhere to go: while a body's taker is full, while nobody
takes the body yet, while a user pipelines too far ahead (`tower.web.gateway.pipelining`), and while pipelined requests
wait for their turn (`tower.web.gateway.round_robin`).

Until its user shows a valid credential a connection is a stranger's: it has an age, little time to take its
answers, one request a turn, and its memory comes from a small budget that strangers share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from tower.http.bodies import BadBody
from tower.http.requests import HEAD_LIMIT, BadHead, HeadReader, check_unfinished
from tower.kube.status import StatusError, status_response
from tower.net.connection_slots import prove
from tower.net.pipes import Buffer
from tower.web.access.admission_cache import CachedAdmission
from tower.web.gateway.memory_loan import Loan
from tower.web.gateway.peer import Peer, UserConnection
from tower.web.gateway.pipelining import Pipelined
from tower.web.gateway.request import Identity, Request
from tower.web.gateway.request_body import BodyTaker, RequestBody
from tower.web.gateway.user_session import UserSession

if TYPE_CHECKING:
    from tower.web.gateway.gateway import Gateway

#: Requests that are served in one turn of a connection whose user is known; a stranger has one.
TURN = 8

#: A stranger's connection closes after the first answer of these last seconds of its life, s.
NOTICE = 10

_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_SHORT_OF_MEMORY = "Tower is short of memory for now"


class HTTPChannel:
    """The receiver of one user's connection.

    :ivar requestFactory: makes a `Request` of what a head says.
    :ivar authenticated: the chain's own; see `tower.web.gateway.gateway`.
    :ivar standing: the router's own: the way that this connection was let into last.
    :ivar peer: the user's end of it.
    :ivar session: in whose name it is used, and for which cluster; see `enter`.
    :ivar full: the user takes no more bytes for now.
    :ivar proven: the user has shown a valid credential, or was let in where none is asked for.
    :ivar last: the connection closes after the next answer, because of its age.
    """

    requestFactory: ClassVar[Callable[..., Request]] = Request

    def __init__(self, gateway: Gateway, connection: UserConnection) -> None:
        self.gateway = gateway
        self.connection = connection
        self.peer = Peer(connection)
        self.session = UserSession(gateway.sessions, self.peer)
        self.authenticated: Any = None
        self.standing: CachedAdmission | None = None
        self.full = False
        self.proven = self.last = False
        self._reader = HeadReader()
        self._request: Request | None = None
        self._waiting: Pipelined | None = None
        self._body: RequestBody | None = None  # while some of it has not come yet
        self._paused = self._serving = self._queued = self._closing = self._released = False
        self._served = False  # anything yet
        self._age = self._lifetime = 0
        self._loan = Loan(gateway.budget, gateway.strangers)

    # What a request asks its connection

    @property
    def body_pending(self) -> bool:
        """Whether some of the current request's body has not come yet."""
        return self._body is not None

    def enter(self, identity: Identity, cluster: str) -> None:
        """Have this connection end when *identity* or *cluster* ("" is Tower itself) does."""
        session = self.session
        if identity is not session.identity or cluster != session.cluster:
            self.prove()
            session.enter(identity, cluster, self.abort)

    def prove(self) -> None:
        """Note that the user has shown a valid credential: this is no stranger's connection any more."""
        if not self.proven:
            self._loan.repay(self)
            self.proven, self.last = True, False
        if self.authenticated is not None:  # not so at a port that is open to everybody
            prove(self.connection)

    def disprove(self) -> None:
        """Note that the credential shown is not valid any more: whoever has no other is a stranger."""
        self.authenticated = None
        if self.proven:
            self._loan.repay(self)
            self.proven = False
            self._grow_old()

    def _grow_old(self) -> None:
        """Have the next answer be the last one, if it is time."""
        self.last = self._lifetime > self.gateway.limits.stranger - NOTICE

    def take_body(self, taker: BodyTaker | None, *, roomy: bool = True) -> None:
        """Give what is still to come of the body to *taker*, which returns False when it is full.

        :param taker: None: nobody takes it for now.
        :param roomy: False: it is full already.
        """
        if self._body is not None:
            self._body.give_to(taker, roomy=roomy)
        self._account()
        self._settle()

    def taker_drained(self) -> None:
        """Note that the taker of the body has room again."""
        if self._body is not None and self._body.drained():
            self._settle()

    def send(self, data: Buffer) -> bool:
        """Send *data* to the user; after False stop until `Request.drained`."""
        if self.connection.send(data):
            return True
        self.fill()
        return False

    def fill(self) -> None:
        """Note that the user takes no more for now: `send` of the connection returned False."""
        self.full = True
        self._age = 0

    def done(self, *, keep: bool) -> None:
        """Note that the current request is answered; go on with the next, or close unless *keep*."""
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
        """Give up the connection, paused; return what came behind the current request."""
        self.connection.pause()
        waiting, self._waiting = self._waiting, None
        self._released = True
        self._account()
        if waiting is None:
            return b""
        data, at = waiting.take()
        return data[at:]

    def forget(self) -> None:
        """Note that the connection, given up before, is nobody's concern here any more."""
        request, self._request = self._request, None
        if request is not None:
            request.forget()
        self.session.leave()
        self.gateway.forget(self)

    # What comes from the user

    def received(self, data: memoryview) -> None:
        """See `tower.net.pipes.Receiver.received`."""
        if self._request is None:
            if self._waiting is None and not (self.full or self._closing):
                self._serve(bytes(data))
            elif not self._closing:
                self._go_on_with_head(data)
        elif self._body is not None:
            self._pass_body(data)
        else:
            self._keep(data)

    def _serve(self, raw: bytes, at: int = 0) -> None:
        """Serve the requests in *raw* from *at* on, until one takes its time or more bytes are needed.

        Of many, others have their turn after a few.
        """
        self._serving = True
        served = 0
        while True:
            # empty lines before a request are forgiven (RFC 9112 section 2.2)
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
            if self._request is request or self._waiting is None or self._closing or self.full:
                break
            served += 1
            if served >= (TURN if self.proven else 1):
                self._queued = True
                self.gateway.turns.join(self)
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
        """Serve some more of the requests that wait here; see `tower.web.gateway.round_robin`."""
        self._queued = False
        if self._waiting is not None and not (self._request is not None or self.full or self._closing):
            self._serve(*self._waiting.take())
        else:
            self._settle()

    def _begin_head(self, raw: bytes, end: int) -> None:
        """Keep the beginning of a head, if it can become a good one."""
        try:
            check_unfinished(raw if end < 4 else raw[:end])
        except BadHead as e:
            self._reject(_refusal(e))
        else:
            self._waiting = Pipelined(raw) if raw else None
            self._age = 0

    def _begin_body(self, body: int, raw: bytes, at: int) -> bytes:
        """Return what in *raw* from *at* on belongs to the body."""
        pending = RequestBody(body)
        end = pending.follow(raw, at)
        if end < 0:
            self._body = pending
            return raw[at:]
        return raw[at:end]

    def _go_on_with_head(self, data: memoryview) -> None:
        """Add to a head that came in pieces."""
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
        """Pass on what belongs to the body of the current request, and keep what comes behind it."""
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
                if request is not self._request:  # no memory was left for it
                    return
                data = data[:stop]
        self._age = 0
        if not body.pass_on(data) and stop < 0:
            self._settle()
        if stop >= 0 and request is self._request:
            request.body_complete()

    def _keep(self, data: memoryview) -> None:
        """Keep what came too early."""
        if self._waiting is None:
            self._waiting = Pipelined(bytes(data))
        else:
            self._waiting.add(data)
        if self._waiting.too_much:
            self._settle()
        self._keep_in_bounds()

    def _keep_in_bounds(self) -> None:
        """Give up rather than keep what the budget has no room for."""
        if not self._account():
            self._give_up()

    def evict(self) -> None:
        """See `tower.net.budget.MemoryHolder.evict`."""
        self._loan.called_in()
        self._give_up()

    def _give_up(self) -> None:
        """Answer 503 and close, for want of memory."""
        if self._closing:
            return
        refusal = StatusError(503, _SHORT_OF_MEMORY, details={"retryAfterSeconds": 1}, close=True)
        if self._request is not None:
            self._request.fail(refusal)
        else:
            self._reject(refusal)

    def _account(self) -> bool:
        """Borrow for what is kept here, or give back; return False when so much is not left."""
        held = 0 if self._waiting is None else self._waiting.held
        if self._request is not None:
            held += len(self._request.early)
        return self._loan.cover(self, held)

    def _settle(self) -> None:
        """Read from the user exactly when there is somewhere to put it."""
        blocked = (
            self._queued
            or (self._waiting is not None and self._waiting.too_much)
            or (self._body is not None and self._body.blocked)
        )
        if blocked != self._paused and not self._closing:
            self._paused = blocked
            if blocked:
                self.connection.pause()
            else:
                self.connection.resume()

    def ended(self) -> None:
        """End with the user: whoever has gone away says no more, and a silent watch would never notice."""
        request = self._request
        if request is None:
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
        self._closing = True
        request, self._request = self._request, None
        if request is not None:
            request.abandon()
        self._body = None  # its taker leads back here
        self._waiting = None
        self._account()
        self.session.leave()
        self.gateway.forget(self)

    # Ends

    def _reject(self, refusal: StatusError) -> None:
        """Answer bytes that are no request, and close."""
        self.gateway.failures += 1
        self.connection.send(status_response(refusal, close=True))
        self.close()

    def close(self) -> None:
        """Close when everything is sent."""
        self._closing = True
        self._waiting = None
        self._account()
        self._age = 0
        self.connection.close()

    def retire(self) -> None:
        """Close now if idle, else after the current answer."""
        if self._request is None and not self._released:
            self.close()

    def abort(self, reason: str) -> None:
        """End everything on this connection because who is behind it may not go on."""
        self.end(StatusError(401, reason, close=True))

    def end(self, refusal: StatusError) -> None:
        """End everything on this connection; say *refusal* if it can still be said."""
        if self._released:
            self.connection.abort()
        elif self._request is None:
            self.close()
        else:
            self._request.fail(refusal)

    def tick(self) -> None:
        """Keep the deadlines; called once a second."""
        if self._released:
            return
        self._age += 1
        self._lifetime += 1
        age, limits = self._age, self.gateway.limits
        if not self.proven:
            self._grow_old()
        if self.full or self._closing:
            if age > (limits.stalled if self.proven else limits.stranger_stalled):
                self.connection.abort()
        elif self._request is not None:
            self._request.tick(age)
        elif self._waiting is not None:
            if age > limits.head:
                self._reject(StatusError(408, "the head of the request came too slowly", close=True))
        elif age > (limits.idle if self._served else limits.first_byte) or (
            self.last and self._lifetime > limits.stranger
        ):
            self.close()


def _refusal(e: BadHead | BadBody) -> StatusError:
    return StatusError(e.code, str(e), close=True)
