"""One request of a user, from its head to the end of its answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.errors import TowerError, Unauthorized
from tower.http.requests import Fields
from tower.kube.request_info import parse_request_info
from tower.kube.status import StatusError, refusal_of, status_response
from tower.web.access.audit_formats import ResponseRecord
from tower.web.gateway.local_answers import BodyDiscarding, BodyReading, StreamedAnswer, response_head
from tower.web.gateway.raw_streams import StreamOpening
from tower.web.gateway.relay import ProxyClientFactory, relative_target
from tower.web.outcome import HandOver, Outcome, RawStream, Relay, Response, StreamingResponse

if TYPE_CHECKING:
    from tower.web.access.audit import Entry
    from tower.web.gateway.http_channel import HTTPChannel
    from tower.web.gateway.inflight import InFlight

#: Longest body that is read here, B, unless the router says otherwise.
BODY_LIMIT = 1024 * 1024

#: Longest body that is read and discarded behind an answer that did not wait for it, B.
DISCARD_LIMIT = 64 * 1024


class Identity(Protocol):
    """What is needed of `tower.web.access.authentication.Identity`."""

    @property
    def user(self) -> str:
        """The name."""

    @property
    def groups(self) -> Sequence[str]:
        """The groups."""

    def spent(self, bearer: bytes) -> bool:
        """Whether a bearer token is for Tower, which then passes it on to nobody."""


class Exchange(Protocol):
    """Whatever is making the answer to a request."""

    def drained(self) -> None:
        """The user takes bytes again."""

    def abandon(self) -> None:
        """The user is gone, or the request is answered by somebody else: let go of everything."""

    def complete(self) -> None:
        """The request's body is through."""

    def tick(self, age: int) -> None:
        """Keep the deadlines; *age* is s since the request came or a part of its body did."""


class Request:
    """One request.

    :ivar proxyClientFactoryClass: relays it to a cluster.
    :ivar method: as it came, upper case.
    :ivar target: path and query, as they came.
    :ivar minor: 1 for HTTP/1.1, 0 for HTTP/1.0.
    :ivar head: its bytes, the empty line included.
    :ivar early: what came of the body together with the head, framing included.
    :ivar identity: who asks; left here by the router.
    :ivar entry: of the audit log; None where nobody keeps one, or nobody is known.
    :ivar started: whether the head of a final answer was sent.
    """

    proxyClientFactoryClass: ClassVar[type[ProxyClientFactory]] = ProxyClientFactory

    __slots__ = (
        "_counted",
        "_deciding",
        "_exchange",
        "_id",
        "_reads_body",
        "channel",
        "early",
        "entry",
        "fields",
        "head",
        "identity",
        "method",
        "minor",
        "over",
        "started",
        "target",
    )

    _log = Logger()

    def __init__(
        self,
        channel: HTTPChannel,
        method: bytes,
        target: bytes,
        minor: int,
        fields: Fields,
        head: bytes,
        early: bytes,
    ) -> None:
        self.channel = channel
        self.method = method
        self.target = target
        self.minor = minor
        self.fields = fields
        self.head = head
        self.early = early
        self.identity: Identity | None = None
        self.entry: Entry | None = None
        self.started = False
        self.over = False
        self._id = ""
        self._deciding: Deferred[Outcome] | None = None
        self._exchange: Exchange | None = None
        self._counted = ""
        self._reads_body = False

    # What a router wants to know

    @property
    def path(self) -> bytes:
        """The path, as it came."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """The query, as it came, without the question mark."""
        return self.target.partition(b"?")[2]

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the user showed and proved, DER, or None."""
        return self.channel.peer.certificate

    @property
    def request_id(self) -> str:
        """Names this request in answers and in the log."""
        if not self._id:
            self._id = secrets.token_hex(6)
        return self._id

    @property
    def close(self) -> bool:
        """Whether the connection closes after the answer."""
        return self.fields.close or not self.minor or self.channel.gateway.stopping or self.channel.last

    @property
    def keep(self) -> bool:
        """Whether the connection is kept after an answer that is made here.

        The head decides, never how much of the body has come already: where the user's bytes are cut changes
        nothing.  A body that is not read here is discarded if it is short; behind any other, and behind one
        that the user may not send after this answer (``Expect``), the connection closes.
        """
        if self.close:
            return False
        if self._reads_body:
            return not self.channel.body_pending
        return 0 <= self.fields.body <= DISCARD_LIMIT and not self.fields.expects

    def body(self, limit: int = BODY_LIMIT) -> Deferred[bytes]:
        """Return the whole body, without framing.

        :param limit: longest, framing included, B.
        :raise Refusal: through the Deferred: it is longer, or the user is gone.
        """
        self._reads_body = True
        reading = BodyReading(self, limit)
        self._exchange = reading
        return reading.done

    def audit(self, cluster: str) -> None:
        """Write down that it was asked, now that `identity` is known, and later what became of it.

        :param cluster: where it wants to go; empty for Tower's own API.
        """
        audit = self.channel.gateway.audit
        if audit is not None:
            self.entry = entry = audit.begin(self, cluster)
            self._id = entry.id

    # What becomes of it

    def process(self) -> None:
        """Have the router decide, and act on that."""
        gateway = self.channel.gateway
        gateway.requests += 1
        try:
            outcome = gateway.router(self)
            if type(outcome) is Relay:
                if gateway.inflight is not None:
                    self._count(gateway.inflight, outcome)
                self._exchange = factory = self.proxyClientFactoryClass(self, outcome)
                factory.start()
                return
        except Exception as e:  # noqa: BLE001 - whatever it is, the user gets a Status and the others go on
            self.fail(e)
            return
        if isinstance(outcome, Deferred):
            self._deciding = outcome
            outcome.addCallbacks(self._decided, self._undecided)
        else:
            self._act(outcome)

    def _decided(self, outcome: Outcome) -> None:
        self._deciding = None
        if not self.over:
            self._act(outcome)

    def _undecided(self, failure: Failure) -> None:
        self._deciding = None
        if not self.over:
            self.failed(failure)
        elif not failure.check(CancelledError, TowerError):
            self._log.failure("request {id} failed after its user had gone", failure, id=self.request_id)

    def _act(self, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, Relay):
                if (inflight := self.channel.gateway.inflight) is not None:
                    self._count(inflight, outcome)
                self._exchange = factory = self.proxyClientFactoryClass(self, outcome)
                factory.start()
            elif isinstance(outcome, Response):
                self.respond(outcome)
            elif isinstance(outcome, StreamingResponse):
                self._stream(outcome)
            elif isinstance(outcome, RawStream):
                self._open_stream(outcome)
            else:
                self._hand_over(outcome)
        except Exception as e:  # noqa: BLE001 - as in process
            self.fail(e)

    def _count(self, inflight: InFlight, relay: Relay) -> None:
        target = relative_target(self.target, relay.prefix)
        if not (self.fields.upgrade or parse_request_info(self.method, target).is_long_running):
            inflight.enter(relay.cluster)
            self._counted = relay.cluster

    def _count_no_more(self) -> None:
        cluster, self._counted = self._counted, ""
        inflight = self.channel.gateway.inflight
        if cluster and inflight is not None:
            inflight.leave(cluster)

    def respond(self, response: Response) -> None:
        """Answer with *response*."""
        keep = self.keep
        framing = b"Content-Length: %d\r\n" % len(response.body)
        head = response_head(
            response.code, response.headers, self.channel.gateway.date, framing=framing, close=not keep
        )
        self.begun(response.code)
        self.channel.send(head if self.method == b"HEAD" else head + response.body)
        self.finish_with_body(keep=keep)

    def _stream(self, response: StreamingResponse) -> None:
        if self.identity is not None:
            self.channel.enter(self.identity, "")
        self._exchange = answer = StreamedAnswer(self)
        answer.begin(response)

    def _open_stream(self, stream: RawStream) -> None:
        if self.identity is None:
            raise Unauthorized(reason="the router let a request pass that nobody vouches for")
        self.channel.enter(self.identity, stream.cluster)
        self._exchange = opening = StreamOpening(self, stream)
        opening.start()

    def _hand_over(self, outcome: HandOver) -> None:
        if self.fields.body:
            raise StatusError(400, "a request that changes the protocol has no body", close=True)
        channel = self.channel
        self.over = True
        received = self.head + channel.release()
        channel.forget()
        try:
            outcome.take(channel.connection, received)
        except Exception:  # noqa: BLE001 - nobody else would let go of the connection
            self._log.failure("cannot hand connection of request {id} over", id=self.request_id)
            channel.connection.abort()

    # Ends

    def failed(self, failure: Failure) -> None:
        """Answer with a Status for *failure*."""
        assert failure.value is not None
        self.fail(failure.value)

    def fail(self, error: BaseException) -> None:
        """Answer with a Status for *error*; if an answer has begun, all that is left is to cut it."""
        if self.over:
            return
        refusal = refusal_of(error)
        if not isinstance(error, TowerError):
            self._log.failure("request {id} failed", Failure(error), id=self.request_id)
        channel = self.channel
        reason = ""
        if isinstance(error, Unauthorized):
            reason = getattr(error, "reason", "")
            channel.disprove()
        self._log_refusal(refusal.code, reason or refusal.message)
        channel.gateway.failures += 1
        if self.started:
            channel.connection.abort()
            return
        self.over = True
        self._let_go()
        keep = self.keep and not refusal.close
        self.begun(refusal.code, refusal.reason, refusal.message)
        channel.send(
            status_response(
                refusal,
                self.request_id,
                close=not keep,
                without_body=self.method == b"HEAD",
                extra=channel.gateway.date,
            )
        )
        self.finish_with_body(keep=keep)

    def _log_refusal(self, code: int, text: str) -> None:
        """Log it; what strangers cause is summed up."""
        channel = self.channel
        line = "request {id} from {peer}: {code} {text}"
        fields = {"id": self.request_id, "peer": channel.peer.address, "code": code, "text": text}
        if channel.proven:
            self._log.info(line, **fields)
        else:
            channel.gateway.rejections.log(f"requests were rejected with {code}", line, **fields)

    def begun(self, code: int, reason: str = "", message: str = "") -> None:
        """Note that the head of the final answer is sent; *reason* and *message* are of a refusal."""
        self.started = True
        if self.entry is not None:
            self.entry.answered(ResponseRecord(code, reason, message))

    def finish_with_body(self, *, keep: bool) -> None:
        """Note that the answer is complete; what is still to come of the body is discarded first."""
        if not keep or not self.channel.body_pending:
            self.finish(keep=keep)
            return
        self.over = False
        if self._counted:
            self._count_no_more()
        self._exchange = discarding = BodyDiscarding(self)
        discarding.start()

    def finish(self, *, keep: bool) -> None:
        """Note that the answer is complete."""
        self.over = True
        if self.entry is not None:
            self.entry.ended()
        self._exchange = None
        if self._counted:
            self._count_no_more()
        self.channel.done(keep=keep)

    def switched(self) -> None:
        """Note that the connection is HTTP no more."""
        self.begun(101)
        self.over = True
        self._exchange = None  # or each would keep the other

    def abandon(self) -> None:
        """Let go: the user is gone."""
        self.over = True
        self._count_no_more()
        self._let_go()
        self.forget()

    def forget(self) -> None:
        """Note that nothing more comes of it, also where it has changed the protocol."""
        if self.entry is not None:
            self.entry.ended()

    def _let_go(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
        deciding, self._deciding = self._deciding, None
        if deciding is not None:
            deciding.cancel()

    # What happens meanwhile

    def drained(self) -> None:
        """Note that the user takes bytes again."""
        if self._exchange is not None:
            self._exchange.drained()

    def body_complete(self) -> None:
        """Note that the whole body is through."""
        if self._exchange is not None:
            self._exchange.complete()

    def tick(self, age: int) -> None:
        """Keep the deadlines."""
        if self._exchange is not None:
            self._exchange.tick(age)
        elif age > self.channel.gateway.limits.answer:
            self.fail(StatusError(504, "Tower took too long to decide about the request"))
