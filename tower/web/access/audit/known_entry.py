"""Audit entries of requests that equal an earlier one of the same connection.

Their events differ from those of the earlier one by ID, times and status only, so they are joined from parts
that are made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.kube.audit.policy import COMPLETE, NONE, RECEIVED, CompiledPolicy
from tower.web.access.audit.entry import UNANSWERED, Entry
from tower.web.access.audit.formats import EVENT_HEAD, annotations_of, head_of, moment, status_of
from tower.web.gateway.request import Request
from tower.web.outcome import ResponseRecord

if TYPE_CHECKING:
    from tower.web.access.audit.audit import Audit

#: Between parts of an event.
RECEIPT = '"requestReceivedTimestamp":"'
STAMP = '","stageTimestamp":"'


class KnownRequest:
    """The common facts of equal requests.

    :param entry: of the first one, which must be plain; None: the policy records nothing of it.
    :ivar policy: the audit policy that decided.
    """

    __slots__ = ("_audit", "_entry", "_parts", "policy")

    def __init__(self, audit: Audit, policy: CompiledPolicy, entry: Entry | None) -> None:
        self._audit = audit
        self.policy = policy
        self._entry = entry
        self._parts: EventParts | None = None

    def begin(self, request: Request, now: float) -> Entry | None:
        """Begin the entry of an equal request at *now*, s since the epoch; None: nothing is recorded."""
        audit, entry = self._audit, self._entry
        if entry is None:
            audit.levels[NONE] += 1
            return None
        parts = self._parts
        if parts is None:
            parts = self._parts = EventParts(audit, entry)
        audit.levels[parts.level] += 1
        known = KnownEntry(parts, request.name(), now)
        if parts.has_first:
            audit.append((known, RECEIVED, UNANSWERED, now))
        return known


class EventParts:
    """The common parts of the events.

    :ivar audit: writes them.
    :ivar has_first: whether there is an event at the beginning.
    :ivar has_last: whether there is one at the end.
    """

    __slots__ = (
        *("_end", "_first", "_head", "_last", "_status", "_tail"),
        *("audit", "has_first", "has_last", "level"),
    )

    def __init__(self, audit: Audit, entry: Entry) -> None:
        self.audit = audit
        recorded = entry.recorded
        self.level = recorded.level
        self.has_first, self.has_last = (each not in recorded.omitted for each in (RECEIVED, COMPLETE))
        common = f"{entry.head or head_of(entry)}{entry.line.object}"
        self._head = f'{EVENT_HEAD}"level":"{self.level}","auditID":"'
        self._first = f'","stage":"{RECEIVED}",{common}{RECEIPT}'
        self._last = f'","stage":"{COMPLETE}",{common}'
        self._tail, self._end = (f'"{annotations_of(entry, each)}}}\n' for each in (RECEIVED, COMPLETE))
        self._status: tuple[ResponseRecord | None, str] = None, ""  # the last one

    def first(self, entry: KnownEntry) -> tuple[str, ...]:
        """Return the first event of *entry*."""
        begin = entry.begin = moment(entry.received)
        return self._head, entry.id, self._first, begin, STAMP, begin, self._tail

    def last(self, entry: KnownEntry, answer: ResponseRecord, now: float) -> tuple[str, ...]:
        """Return the last event of *entry*."""
        known, status = self._status
        if entry.status:
            status = status_of(entry, answer)
        elif answer is not known:
            status = status_of(entry, answer)
            self._status = answer, status
        begin = entry.begin or moment(entry.received)
        return self._head, entry.id, self._last, status, RECEIPT, begin, STAMP, moment(now), self._end


class KnownEntry(Entry):
    """The entry of an equal request: it has only what differs.

    :ivar begin: `received` as in events; empty: not made yet.
    """

    __slots__ = ("_parts", "begin")

    is_plain = True
    records_bodies = False

    def __init__(self, parts: EventParts, identifier: str, received: float) -> None:
        self._parts = parts
        self._answer = UNANSWERED
        self._over = False
        self.id = identifier
        self.received = received
        self.status = self.begin = ""

    def event(
        self, stage: str, answer: ResponseRecord, now: float, *, truncated: bool = False
    ) -> tuple[str, ...]:
        """Return the event of a *stage*, in parts."""
        parts = self._parts
        return parts.first(self) if stage == RECEIVED else parts.last(self, answer, now)

    def answered(self, answer: ResponseRecord) -> None:
        """Record that the status was sent; only the first call counts."""
        if self._answer is UNANSWERED:
            self._answer = answer

    def ended(self) -> None:
        """Record that the request has ended; only the first call counts."""
        if not self._over:
            self._over = True
            parts = self._parts
            if parts.has_last:
                audit = parts.audit
                audit.append((self, COMPLETE, self._answer, audit.seconds()))
