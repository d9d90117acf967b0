"""The audit entry of one request.

It accompanies the request from the moment its user is authenticated.  As in kube-apiserver, a request that
fails authentication (401) has no entry, and a forbidden one has.  The entry's ID is sent to the cluster's API
server, which writes the same ID to its own audit log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.http.bodies import UNTIL_CLOSE
from tower.http.requests import Fields
from tower.kube.audit.bodies import RecordedBody, are_recorded, body_of, withheld
from tower.kube.audit.policy import AuditDecision
from tower.kube.system_identities import ANONYMOUS_USER
from tower.net.pipes import AcceptedPipe
from tower.web.access.audit.body_record import BodyRecord
from tower.web.access.audit.formats import event_of
from tower.web.access.audit.request_entry import UNANSWERED, RequestEntry
from tower.web.access.audit.request_line import LONGEST_KEPT, RequestLine
from tower.web.access.authentication.identity import Extra, Identity, UserInfo
from tower.web.access.trusted_callers import acted_by_right, acting
from tower.web.gateway.request import Request
from tower.web.outcome import ResponseRecord

if TYPE_CHECKING:
    from tower.web.access.audit.audit import Audit

#: In place of a resource, see `Entry.withheld`.
AMBIGUOUS = "ambiguous path"

_SWITCHED = 101


class Entry(RequestEntry):
    """The audit entry of one request.

    :ivar id: the request's ID.
    :ivar uri: path and query of the request.
    :ivar cluster: empty for Tower's own API.
    :ivar line: verb and object of the request, parsed.
    :ivar credential: ID of the credential, or empty.
    :ivar address: the client's IP address.
    :ivar impersonated: requested user and group, None each if not requested.
    :ivar acting: the facts about a request that acts as another user; None: it does not.
    :ivar upgrades: whether the request changes the protocol.
    :ivar policies: names of the access policies that admitted the user, with commas; empty: none did.
    :ivar member: the admitted user as the member knows it, or None.
    :ivar decision: of the modes of authorization, ``allow`` or ``forbid``; empty: none.
    :ivar reason: for the decision; may be empty.
    :ivar recorded: decision of the audit policy.
    :ivar is_plain: whether the events are short and have no bodies and sizes, so that they may be made later.
    :ivar withheld: the resource whose secrets keep its bodies out of the events, or `AMBIGUOUS`, or empty.
    :ivar request_record: copy of the request's body, or None.
    :ivar answer_record: copy of the answer's body, or None.
    :ivar head: fields of events that do not change, in JSON; empty: not made yet.
    """

    __slots__ = (
        *("_audit", "_connection", "_over", "_received_before", "_sent_before", "is_plain"),
        *("acting", "address", "agent", "answer_record", "cluster", "credential", "decision", "extra"),
        *("groups", "head", "id", "impersonated", "line", "member", "method", "policies", "reason"),
        *("recorded", "request_record", "uid"),
        *("upgrades", "uri", "user", "withheld"),
    )

    _connection: AcceptedPipe

    def __init__(
        self,
        audit: Audit,
        request: Request,
        cluster: str,
        groups: tuple[str, ...],
        line: RequestLine,
        recorded: AuditDecision,
    ) -> None:
        self._audit = audit
        self._answer = UNANSWERED
        self._over = False
        identity, fields, channel = request.identity, request.fields, request.channel
        assert identity is not None, "the router has not authenticated the request"
        self.received = audit.seconds()
        self.method, self.uri = request.method, request.target
        self.cluster = cluster
        self.user, self.groups = identity.user or ANONYMOUS_USER, groups
        self.uid = ""
        self.extra: Extra = ()
        self.line = line
        self.credential = identity.session
        self.address = channel.peer.address
        self.agent = fields.get(b"user-agent") or b""
        self.impersonated = (
            (fields.get(b"impersonate-user"), fields.get(b"impersonate-group"))
            if fields.foreign
            else (None, None)
        )
        self.acting = acting(identity, fields)
        self.upgrades = bool(fields.upgrade)
        if self.upgrades:
            connection = self._connection = channel.connection
            self._sent_before = connection.bytes_out
            received = len(request.head) + len(request.early) + channel.kept
            self._received_before = connection.bytes_in - received
        self.id = request.request_id
        self.policies = self.decision = self.reason = self.status = self.head = self.withheld = ""
        self.member: UserInfo | None = None
        if isinstance(identity, Identity):
            self.uid, self.extra = identity.uid, identity.extra
            if identity.entry is not None:
                self.policies, self.member = ",".join(identity.entry.policies), identity.member
        self.recorded = recorded
        self.request_record: BodyRecord | None = None
        self.answer_record: BodyRecord | None = None
        self.records_bodies = recorded.has_request and are_recorded(recorded, self.line.info)
        if self.records_bodies:
            self.withheld = AMBIGUOUS if line.is_ambiguous else withheld(recorded, line.info)
            self.records_bodies = not self.withheld
        self.is_plain = not (recorded.has_request or self.upgrades) and len(self.uri) <= LONGEST_KEPT

    def event(self, stage: str, answer: ResponseRecord, now: float, *, truncated: bool = False) -> bytes:
        """Return the event of a *stage*; see `event_of`."""
        return event_of(self, stage, answer, now, truncated=truncated).encode("utf-8", "replace")

    def admitted(self, identity: Identity) -> None:
        """Record how access policies admitted the user."""
        if identity.entry is not None:
            self._audit.write()  # earlier events of it do not show this
            self.policies, self.member = ",".join(identity.entry.policies), identity.member

    def acts_as(self, identity: Identity) -> None:
        """Record that the request acts as *identity*."""
        self._audit.write()
        self.acting, self.head = acted_by_right(identity), ""

    def decided(self, decision: str, reason: str) -> None:
        """Record the decision of the modes of authorization."""
        self.decision, self.reason = decision, reason

    def answered(self, answer: ResponseRecord) -> None:
        """Record that the status was sent; only the first call counts."""
        if self._answer is UNANSWERED:
            self._answer = answer
            self._audit.answered(self, answer)

    def ended(self) -> None:
        """Record that the request has ended; only the first call counts."""
        if not self._over:
            self._over = True
            self._audit.ended(self, self._answer)
            for record in (self.request_record, self.answer_record):
                if record is not None:
                    record.release()

    # Bodies

    def record_request(self, fields: Fields) -> BodyRecord | None:
        """Begin to copy the body of the request; return the copy, or None if there is no body."""
        if self.request_record is not None:
            self.request_record.release()  # the request is sent again
        if not fields.body:
            return None
        media, encoding = fields.get(b"content-type"), fields.get(b"content-encoding")
        self.request_record = self._copy(fields.body, media, encoding)
        return self.request_record

    def record_request_body(self, fields: Fields, body: bytes) -> None:
        """Copy the whole body of a request that Tower answers itself; it has no framing."""
        record = self.request_record = self._copy(
            UNTIL_CLOSE, fields.get(b"content-type"), fields.get(b"content-encoding")
        )
        record.add(body)

    def record_answer(self, framing: int, media: bytes | None, encoding: bytes | None) -> BodyRecord | None:
        """Begin to copy the body of the answer."""
        if self.recorded.has_response:
            self.answer_record = self._copy(framing, media, encoding)
        return self.answer_record

    def _copy(self, framing: int, media: bytes | None, encoding: bytes | None) -> BodyRecord:
        """Return a copy of a body, in the memory of the user that the limits of requests count."""
        user = self.user if self.user != ANONYMOUS_USER else f"at {self.address}"
        if self.acting is not None and self.acting.is_caller and self.acting.user:
            user = self.acting.user
        return BodyRecord(self._audit.memory, user, framing, media, encoding)

    def request_body(self) -> RecordedBody:
        """Return the body of the request for an event."""
        return self._body(self.request_record)

    def answer_body(self) -> RecordedBody:
        """Return the body of the answer for an event."""
        return self._body(self.answer_record)

    def _body(self, record: BodyRecord | None) -> RecordedBody:
        if record is None or not record.size:
            return RecordedBody()
        payload = record.payload()
        if payload is None:
            return RecordedBody(omitted=f"{record.size} B")
        return body_of(
            payload,
            record.media,
            record.encoding,
            omits_managed_fields=self.recorded.omits_managed_fields,
            is_own=not self.cluster,
        )

    # Streams

    @property
    def transferred(self) -> tuple[int, int] | None:
        """Bytes received from the user and sent to it, heads included; None: the protocol did not change."""
        if not self.upgrades or self._answer.code != _SWITCHED:
            return None
        connection = self._connection
        return connection.bytes_in - self._received_before, connection.bytes_out - self._sent_before
