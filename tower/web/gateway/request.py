"""One request of a user, from its head to the end of its answer."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.http.requests import Fields
from tower.kube.status import refusal_of
from tower.tunnels.targets import KUBERNETES
from tower.web.gateway.exchange import Exchange
from tower.web.gateway.inflight import leave_place, take_place
from tower.web.gateway.local_answers import BodyDiscarding, BodyReading
from tower.web.gateway.measurements import ABORTED, Observation, measure
from tower.web.gateway.outcomes import carry_out, carry_out_later
from tower.web.gateway.received_request import ReceivedRequest
from tower.web.gateway.recording import RecordingFactory
from tower.web.gateway.refusals import record_refusal, refusal_answer, request_timeout
from tower.web.gateway.relay import ProxyClientFactory
from tower.web.outcome import Outcome, Relay, ResponseRecord, plain_record

if TYPE_CHECKING:
    from tower.web.access.audit.request_entry import RequestEntry
    from tower.web.gateway.http_channel import HTTPChannel
    from tower.web.limits.admissions import Place

#: Default limit of a body that Tower reads itself, B.
BODY_LIMIT: Final = 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Request(ReceivedRequest):
    """One request and its answer.

    :ivar proxyClientFactoryClass: relays it to a cluster.
    :ivar log: for events of requests.
    :ivar entry: of the audit log; None without an audit log, before authentication, and if its policy records
        nothing.
    :ivar observation: for the gateway's observer; None without one, and after the end.
    :ivar began: when the head was complete, monotonic, s; 0.0 without a meter, and after the end.
    :ivar answered_at: when the head of the member's answer was sent, likewise; 0.0 if it was sent whole.
    :ivar deciding: the router's decision, until it is made.
    :ivar exchange: makes the answer; None before and after that.
    :ivar cluster: the requested cluster, empty for Tower itself and before authentication.
    :ivar place: among the requests in flight; None: it has none, or there is no limit.
    :ivar code: HTTP status of the answer; 0: none was sent.
    :ivar by_member: whether the member made the answer, not Tower.
    :ivar started: whether the head of a final answer was sent.
    """

    proxyClientFactoryClass: ClassVar[type[ProxyClientFactory]] = ProxyClientFactory

    __slots__ = (
        "answered_at",
        "began",
        "by_member",
        "cluster",
        "code",
        "deciding",
        "entry",
        "exchange",
        "observation",
        "over",
        "place",
        "started",
    )

    log: ClassVar[Logger] = Logger()

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
        self.identity = None
        self.destination = None
        self.entry: RequestEntry | None = None
        self.observation: Observation | None = None
        self.began = self.answered_at = 0.0
        self.cluster = ""
        self.code = 0
        self.by_member = self.started = self.over = False
        self._id = ""
        self.id_line = b""
        self.deciding: Deferred[Outcome] | None = None
        self.exchange: Exchange | None = None
        self.place: Place | None = None
        self._reads_body = False

    @property
    def common_lines(self) -> bytes:
        """The header lines that Tower's own answers have in common."""
        return self.channel.gateway.date

    # For routers

    def body(self, limit: int = BODY_LIMIT) -> Deferred[bytes]:
        """Return the whole body, without framing.

        :param limit: longest, including framing, B.
        :raise StatusError: through the Deferred: it is longer, or the client disconnected.
        """
        self._reads_body = True
        reading = BodyReading(self, limit)
        self.exchange = reading
        if self.entry is not None and self.entry.records_bodies:
            reading.done.addCallback(self._record_body)
        return reading.done

    def peek_body(self, limit: int) -> Deferred[bytes]:
        """Return the whole body, as `body` does, for a request that may still be relayed."""
        reading = BodyReading(self, limit)
        self.exchange = reading

        def read(body: bytes) -> bytes:
            self.early, self.exchange = reading.raw, None
            return body

        return reading.done.addCallback(read)

    def _record_body(self, body: bytes) -> bytes:
        if self.entry is not None:
            self.entry.record_request_body(self.fields, body)
        return body

    def audit(self, cluster: str) -> Deferred[None] | None:
        """Begin the audit entry, after `identity` was set; *cluster* is empty for Tower's own API.

        Return a Deferred if the request must wait until the log has stored it; it may fail.
        """
        self.cluster = cluster
        audit = self.channel.gateway.audit
        if audit is None or self.entry is not None:
            return None
        entry = self.entry = audit.begin(self, cluster)
        return audit.stored(entry) if entry is not None and audit.blocks else None

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
                self.relay(outcome)
                return
        except Exception as e:  # noqa: BLE001 - any error becomes a Status, and other users are not affected
            self.fail(e)
            return
        if isinstance(outcome, Deferred):
            carry_out_later(self, outcome)
        else:
            carry_out(self, outcome)

    def relay(self, relay: Relay) -> None:
        """Send it to a cluster, once the limits of requests in flight admit it."""
        inflight = self.channel.gateway.inflight
        if inflight is None or not take_place(self, relay, inflight):
            self.send(relay)

    def send(self, relay: Relay) -> None:
        """Send it to a cluster."""
        observation = self.observation
        if observation is not None:
            observation.target = relay.target
            self.make_id()
        make = self.proxyClientFactoryClass
        if self.entry is not None and self.entry.records_bodies and relay.target == KUBERNETES:
            make = RecordingFactory
        self.exchange = factory = make(self, relay)
        factory.start()

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
        record_refusal(self, error, refusal)
        channel = self.channel
        if self.started:
            self.aborted("member" if refusal.code in (502, 504) else "tower")
            channel.connection.abort()
            return
        self.over = True
        self._release()
        keep = self.keep and not refusal.close
        self.begun(refusal.code, refusal.reason, refusal.message)
        channel.send(refusal_answer(self, refusal, close=not keep))
        self.finish_with_body(keep=keep)

    def aborted(self, by: str) -> None:
        """Record which side aborts the answer: ``client``, ``member`` or ``tower``; the first call counts."""
        if self.observation is not None and not self.observation.aborted:
            self.observation.aborted = by
        if self.began and by != "client":
            measure(self, ABORTED)

    def begun(self, code: int, reason: str = "", message: str = "") -> None:
        """Record that the head of the final answer is about to be sent.

        :param reason: of our own Status, like *message*.
        """
        self.started = True
        self.code = code
        if self.entry is not None:
            self.entry.answered(ResponseRecord(code, reason, message) if message else plain_record(code))

    def begun_by_member(self, code: int, *, whole: bool = False) -> None:
        """Record that the head of the member's final answer is about to be sent.

        :param whole: the body is sent with it.
        """
        self.by_member = True
        if not whole:
            if self.began:
                self.answered_at = monotonic()
            if self.place is not None:
                self.place.answered(code)
        self.begun(code)

    def finish_with_body(self, *, keep: bool) -> None:
        """End the request after its answer; the rest of its body is discarded first if *keep*."""
        if not keep or not self.channel.body_pending:
            self.finish(keep=keep)
            return
        self.over = False
        if self.place is not None:
            leave_place(self)
        self.exchange = discarding = BodyDiscarding(self)
        discarding.start()

    def finish(self, *, keep: bool) -> None:
        """End the request after its answer."""
        self.over = True
        if self.began:
            measure(self)
        if self.entry is not None:
            self.entry.ended()
        if self.observation is not None:
            self.forget()
        self.exchange = None
        if self.place is not None:
            leave_place(self)
        self.channel.done(keep=keep)

    def switched(self, *, by_member: bool = False) -> None:
        """Record that the connection has changed its protocol."""
        if by_member:
            self.begun_by_member(101)
        else:
            self.begun(101)
            if self.place is not None:
                self.place.answered(101)
        self.over = True
        self.exchange = None  # break the cycle

    def handed_over(self) -> None:
        """Record that the connection has another owner: it is not measured."""
        self.over = True
        self.observation = None
        self.began = 0.0

    def abandon(self) -> None:
        """Release everything: the client disconnected."""
        self.over = True
        if not isinstance(self.exchange, BodyDiscarding):  # the answer is complete
            self.aborted("client")
        self._release()
        self.forget()

    def forget(self) -> None:
        """End the audit entry and the measurements, also after a change of protocol."""
        leave_place(self)
        if self.began:
            measure(self)
        if self.entry is not None:
            self.entry.ended()
        observation, self.observation = self.observation, None
        observer = self.channel.gateway.observer
        if observation is not None and observer is not None:
            observer.ended(observation)

    def _release(self) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()
        deciding, self.deciding = self.deciding, None
        if deciding is not None:
            deciding.cancel()

    # Events of the connection

    def drained(self) -> None:
        """See `Exchange.drained`."""
        if self.exchange is not None:
            self.exchange.drained()

    def body_complete(self) -> None:
        """See `Exchange.complete`."""
        if self.exchange is not None:
            self.exchange.complete()

    def tick(self, age: int) -> None:
        """See `Exchange.tick`."""
        limit = self.channel.gateway.limits.answer
        if self.exchange is not None:
            self.exchange.tick(age)
        elif age > limit:
            self.fail(request_timeout("Tower", limit))
