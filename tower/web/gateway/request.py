"""One request of a user, from its head to the end of its answer."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.errors import TowerError, Unauthorized
from tower.http.requests import Fields
from tower.kube.request_info import is_discovery, parse_request_info
from tower.kube.status import StatusError, refusal_of, status_response
from tower.web.gateway.exchange import Exchange
from tower.web.gateway.local_answers import BodyDiscarding, BodyReading, StreamedAnswer, response_head
from tower.web.gateway.meter import BATCH, LONGEST_TARGET, stand_in
from tower.web.gateway.observer import Observation
from tower.web.gateway.proxy_client import relative_target
from tower.web.gateway.raw_streams import StreamOpening
from tower.web.gateway.relay import ProxyClientFactory
from tower.web.outcome import HandOver, Outcome, RawStream, Relay, Response, ResponseRecord, StreamingResponse
from tower.web.request_id import VALID_ID, new_request_id

if TYPE_CHECKING:
    from tower.web.access.audit import Entry
    from tower.web.access.authentication import AnyIdentity
    from tower.web.gateway.http_channel import HTTPChannel
    from tower.web.gateway.inflight import InFlight

#: Default limit of a body that Tower reads itself, B.
BODY_LIMIT = 1024 * 1024

#: Longest unread body that is discarded so that the connection can be kept, B.
DISCARD_LIMIT = 64 * 1024

_CLUSTER = re.compile(rb"/clusters/[^/?]+")


class Request:
    """One request.

    :ivar proxyClientFactoryClass: relays it to a cluster.
    :ivar method: as received, upper case.
    :ivar target: path and query, as received.
    :ivar minor: 1 for HTTP/1.1, 0 for HTTP/1.0.
    :ivar head: its bytes, including the empty line.
    :ivar early: the part of the body that arrived together with the head, including framing.
    :ivar identity: the user; set by the router.
    :ivar entry: of the audit log; None without an audit log or before authentication.
    :ivar observation: for the gateway's observer; None without one, and after the end.
    :ivar began: when the head was complete, monotonic, s; 0.0 without a meter, and after the end.
    :ivar answered_at: when the head of the member's answer was sent, likewise; 0.0 if it was sent whole.
    :ivar cluster: the requested cluster, empty for Tower itself and before authentication.
    :ivar code: HTTP status of the answer; 0: none was sent.
    :ivar by_member: whether the member made the answer, not Tower.
    :ivar started: whether the head of a final answer was sent.
    """

    proxyClientFactoryClass: ClassVar[type[ProxyClientFactory]] = ProxyClientFactory

    __slots__ = (
        "_counted",
        "_deciding",
        "_exchange",
        "_id",
        "_is_own_id",
        "_reads_body",
        "answered_at",
        "began",
        "by_member",
        "channel",
        "cluster",
        "code",
        "early",
        "entry",
        "fields",
        "head",
        "identity",
        "method",
        "minor",
        "observation",
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
        self.identity: AnyIdentity | None = None
        self.entry: Entry | None = None
        self.observation: Observation | None = None
        self.began = self.answered_at = 0.0
        self.cluster = ""
        self.code = 0
        self.by_member = self.started = self.over = False
        self._id = ""
        self._is_own_id = True
        self._deciding: Deferred[Outcome] | None = None
        self._exchange: Exchange | None = None
        self._counted = ""
        self._reads_body = False

    # For routers

    @property
    def path(self) -> bytes:
        """The path, as received."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """The query, as received, without the question mark."""
        return self.target.partition(b"?")[2]

    @property
    def certificate(self) -> bytes | None:
        """The client certificate that TLS verified, DER, or None."""
        return self.channel.peer.certificate

    @property
    def request_id(self) -> str:
        """The ID of this request in answers and logs: the client's ``Audit-Id`` if it is valid, or a UUID."""
        self.make_id()
        return self._id

    def make_id(self) -> None:
        """Make `request_id`, so that the request is sent to the cluster with it."""
        if self._id:
            return
        given = self.fields.get(b"audit-id")
        if given is None or VALID_ID.fullmatch(given) is None:
            self._id = new_request_id()
        else:
            self._id, self._is_own_id = given.decode("ascii"), False

    @property
    def id_line(self) -> bytes:
        """The header line that names the request to the cluster, if a log needed the ID and Tower made it."""
        return b"Audit-Id: %b\r\n" % self._id.encode("ascii") if self._id and self._is_own_id else b""

    @property
    def client(self) -> str:
        """The name of the client: its address and user."""
        user = "" if self.identity is None else self.identity.user
        return f"{self.channel.peer.address} {user}"

    @property
    def close(self) -> bool:
        """Whether the connection closes after the answer."""
        return self.fields.close or not self.minor or self.channel.gateway.stopping or self.channel.last

    @property
    def keep(self) -> bool:
        """Whether the connection is kept after an answer made by Tower.

        Only the head decides, not how much of the body has arrived: fragmentation of the user's bytes changes
        nothing.  A short unread body is discarded.  After a long one, or one that the user might not send
        after this answer (``Expect``), the connection closes.
        """
        if self.close:
            return False
        if self._reads_body:
            return not self.channel.body_pending
        return 0 <= self.fields.body <= DISCARD_LIMIT and not self.fields.expects

    def body(self, limit: int = BODY_LIMIT) -> Deferred[bytes]:
        """Return the whole body, without framing.

        :param limit: longest, including framing, B.
        :raise StatusError: through the Deferred: it is longer, or the client disconnected.
        """
        self._reads_body = True
        reading = BodyReading(self, limit)
        self._exchange = reading
        return reading.done

    def audit(self, cluster: str) -> None:
        """Begin the audit entry, after `identity` was set; *cluster* is empty for Tower's own API."""
        self.cluster = cluster
        audit = self.channel.gateway.audit
        if audit is not None:
            self.entry = audit.begin(self, cluster)

    # The answer

    def process(self) -> None:
        """Call the router, and act on its result."""
        gateway = self.channel.gateway
        gateway.requests += 1
        if gateway.meter is not None:
            self.began = monotonic()
        if gateway.observer is not None:
            self.observation = Observation(self)
        try:
            outcome = gateway.router(self)
            if type(outcome) is Relay:
                self._relay(outcome)
                return
        except Exception as e:  # noqa: BLE001 - any error becomes a Status, and other users are not affected
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
            self._log.failure(
                "request {id} failed after its client disconnected", failure, id=self.request_id
            )

    def _act(self, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, Relay):
                self._relay(outcome)
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

    def _relay(self, relay: Relay) -> None:
        inflight = self.channel.gateway.inflight
        if inflight is not None:
            self._count(inflight, relay)
        if self.observation is not None:
            self.observation.target = relay.target
            self.make_id()
        self._exchange = factory = self.proxyClientFactoryClass(self, relay)
        factory.start()

    def _count(self, inflight: InFlight, relay: Relay) -> None:
        target = relative_target(self.target, relay.prefix)
        if not (self.fields.upgrade or parse_request_info(self.method, target).is_long_running):
            inflight.enter(relay.cluster)
            self._counted = relay.cluster

    def _uncount(self) -> None:
        cluster, self._counted = self._counted, ""
        inflight = self.channel.gateway.inflight
        if cluster and inflight is not None:
            inflight.leave(cluster)

    def respond(self, response: Response) -> None:
        """Answer with *response*."""
        keep, date = self.keep, self.channel.gateway.date
        framing = b"Content-Length: %d\r\n" % len(response.body)
        head = response_head(
            response.code, response.headers, date, framing=framing, close=not keep, request_id=self.request_id
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
            raise Unauthorized(reason="the router accepted a request without an identity")
        self.channel.enter(self.identity, stream.cluster)
        if self.observation is not None:
            self.observation.target = stream.target
        self._exchange = opening = StreamOpening(self, stream)
        opening.start()

    def _hand_over(self, outcome: HandOver) -> None:
        if self.fields.body:
            raise StatusError(400, "an upgrade request must not have a body", close=True)
        channel = self.channel
        self.over = True
        self.observation = None
        self.began = 0.0
        received = self.head + channel.release()
        channel.forget()
        try:
            outcome.take(channel.connection, received)
        except Exception:  # noqa: BLE001 - this is the last owner that can close the connection
            self._log.failure("cannot hand connection of request {id} over", id=self.request_id)
            channel.connection.abort()

    # Ends

    def failed(self, failure: Failure) -> None:
        """Answer with a Status for *failure*."""
        assert failure.value is not None
        self.fail(failure.value)

    def fail(self, error: BaseException) -> None:
        """Answer with a Status for *error*; if an answer has begun, abort the connection."""
        if self.over:
            return
        refusal = refusal_of(error)
        if (meter := self.channel.gateway.meter) is not None:
            meter.refused(error)
        if not isinstance(error, TowerError):
            self._log.failure("request {id} failed", Failure(error), id=self.request_id)
        channel = self.channel
        reason = ""
        if isinstance(error, Unauthorized):
            reason = error.reason
            channel.disprove()
        self._log_refusal(refusal.code, reason or refusal.message)
        channel.gateway.failures += 1
        if self.started:
            channel.connection.abort()
            return
        self.over = True
        self._release()
        keep = self.keep and not refusal.close
        self.begun(refusal.code, refusal.reason, refusal.message)
        channel.send(
            status_response(
                refusal,
                self.request_id,
                close=not keep,
                without_body=self.method == b"HEAD",
                warn=self._warns(refusal.code),
                extra=channel.gateway.date,
            )
        )
        self.finish_with_body(keep=keep)

    def _warns(self, code: int) -> bool:
        """Return whether the client may show the message of an error answer only as a warning.

        kubectl itself shows the Status of all requests but those for discovery.
        """
        prefix = _CLUSTER.match(self.target)
        if is_discovery(self.target, prefix.end() if prefix is not None else 0):
            return True
        return code in (401, 503) and not (self.fields.get(b"user-agent") or b"").startswith(b"kubectl")

    def _log_refusal(self, code: int, text: str) -> None:
        """Log it, or count it in a summary if the connection is unauthenticated."""
        channel = self.channel
        line = "request {id} from {peer}: {code} {text}"
        fields = {"id": self.request_id, "peer": channel.peer.address, "code": code, "text": text}
        if channel.proven:
            self._log.info(line, **fields)
        else:
            channel.gateway.rejections.log(f"requests were rejected with {code}", line, **fields)

    def begun(self, code: int, reason: str = "", message: str = "") -> None:
        """Record that the head of the final answer is about to be sent.

        :param reason: of our own Status, like *message*.
        """
        self.started = True
        self.code = code
        if self.entry is not None:
            self.entry.answered(ResponseRecord(code, reason, message))

    def begun_by_member(self, code: int, *, whole: bool = False) -> None:
        """Record that the head of the member's final answer is about to be sent.

        :param whole: the body is sent with it.
        """
        self.by_member = True
        if self.began and not whole:
            self.answered_at = monotonic()
        self.begun(code)

    def finish_with_body(self, *, keep: bool) -> None:
        """End the request after its answer; the rest of its body is discarded first if *keep*."""
        if not keep or not self.channel.body_pending:
            self.finish(keep=keep)
            return
        self.over = False
        if self._counted:
            self._uncount()
        self._exchange = discarding = BodyDiscarding(self)
        discarding.start()

    def finish(self, *, keep: bool) -> None:
        """End the request after its answer."""
        self.over = True
        if self.began:
            self._measure()
        if self.entry is not None or self.observation is not None:
            self.forget()
        self._exchange = None
        if self._counted:
            self._uncount()
        self.channel.done(keep=keep)

    def switched(self, *, by_member: bool = False) -> None:
        """Record that the connection has changed its protocol."""
        if by_member:
            self.begun_by_member(101)
        else:
            self.begun(101)
        self.over = True
        self._exchange = None  # break the cycle

    def abandon(self) -> None:
        """Release everything: the client disconnected."""
        self.over = True
        self._uncount()
        self._release()
        self.forget()

    def forget(self) -> None:
        """End the audit entry and the measurements, also after a change of protocol."""
        if self.began:
            self._measure()
        if self.entry is not None:
            self.entry.ended()
        observation, self.observation = self.observation, None
        observer = self.channel.gateway.observer
        if observation is not None and observer is not None:
            observer.ended(observation)

    def _measure(self) -> None:
        """Give the facts to the meter; see `tower.web.gateway.meter.Finished`."""
        began, self.began = self.began, 0.0
        meter: Any = self.channel.gateway.meter
        finished, target, upgrade = meter.finished, self.target, self.fields.upgrade
        if len(target) > LONGEST_TARGET:
            target = stand_in(self.method, target, upgrade)
        finished.append(
            (
                self.cluster,
                self.method,
                target,
                upgrade and b"upgrade",
                self.code,
                self.by_member,
                began,
                self.answered_at,
                monotonic(),
            )
        )
        if len(finished) >= BATCH:
            meter.count()

    def _release(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
        deciding, self._deciding = self._deciding, None
        if deciding is not None:
            deciding.cancel()

    # Events of the connection

    def drained(self) -> None:
        """See `Exchange.drained`."""
        if self._exchange is not None:
            self._exchange.drained()

    def body_complete(self) -> None:
        """See `Exchange.complete`."""
        if self._exchange is not None:
            self._exchange.complete()

    def tick(self, age: int) -> None:
        """See `Exchange.tick`."""
        limit = self.channel.gateway.limits.answer
        if self._exchange is not None:
            self._exchange.tick(age)
        elif age > limit:
            self.fail(StatusError(504, f"Tower did not decide about the request within {limit:.0f} s"))
