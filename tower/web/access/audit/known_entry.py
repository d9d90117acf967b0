"""Audit entries of requests that equal an earlier one of the same user and client.

The events of such a request differ from the earlier ones only in ID, times and status, so they are joined
from parts that are built once.  All requests of a user and client share most of these parts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tower.kube.audit.policy import COMPLETE, NONE, RECEIVED, CompiledPolicy
from tower.web.access.audit.entry import Entry
from tower.web.access.audit.formats import EVENT_HEAD, annotations_of, stamp, status_of, who_of
from tower.web.access.audit.request_entry import UNANSWERED, RequestEntry
from tower.web.gateway.request import Request
from tower.web.outcome import ResponseRecord
from tower.web.request_id import ID_BEGIN, ID_END, id_line

if TYPE_CHECKING:
    from tower.web.access.audit.audit import Audit

# Between parts of all events.
_RECEIPT: Final = b'"requestReceivedTimestamp":"'
_STAMP: Final = b'","stageTimestamp":"'


class SharedParts:
    """The parts of events that depend on user, client and decisions.

    :ivar has_first: whether there is an event at the beginning.
    :ivar has_last: whether there is one at the end.
    """

    __slots__ = (
        *("_answer", "_status"),
        *("first", "first_end", "has_first", "has_last", "head", "last", "last_end", "level", "who"),
    )

    def __init__(self, level: str, omitted: frozenset[str], who: str, first_end: str, last_end: str) -> None:
        self.level = level
        self.has_first, self.has_last = (each not in omitted for each in (RECEIVED, COMPLETE))
        self.head = _encoded(f'{EVENT_HEAD}"level":"{level}","auditID":"')
        self.first, self.last = (_encoded(f'","stage":"{each}",') for each in (RECEIVED, COMPLETE))
        self.who = _encoded(who)
        self.first_end, self.last_end = (_encoded(f'"{each}}}\n') for each in (first_end, last_end))
        self._answer: ResponseRecord | None = None
        self._status = b""  # of that answer

    def status(self, entry: KnownEntry, answer: ResponseRecord) -> bytes:
        """Return ``responseStatus`` and the part after it, cached: most requests share one answer object."""
        if entry.status:
            return _encoded(status_of(entry, answer)) + _RECEIPT
        if answer is not self._answer:
            self._answer, self._status = answer, _encoded(status_of(entry, answer)) + _RECEIPT
        return self._status


_shared_parts = lru_cache(maxsize=256)(SharedParts)


class KnownRequest:
    """The common facts of equal requests.

    :param entry: of the first one, which must be plain; None: the policy records nothing of it.
    :ivar audit: writes their events.
    :ivar policy: the audit policy that decided.
    :ivar shared: the parts that other requests have, too.
    :ivar line: the part with verb and path.
    :ivar object: the part with the object; may be empty.
    """

    __slots__ = ("_entry", "audit", "line", "object", "policy", "shared")

    shared: SharedParts

    def __init__(self, audit: Audit, policy: CompiledPolicy, entry: Entry | None) -> None:
        self.audit = audit
        self.policy = policy
        self._entry = entry
        self.line = self.object = b""

    def begin(self, request: Request, now: float) -> KnownEntry | None:
        """Begin the entry of an equal request at *now*, s since the epoch; None: nothing is recorded."""
        audit = self.audit
        if not self.line:
            if self._entry is None:
                audit.levels[NONE] += 1
                return None
            self._make(self._entry)
        shared = self.shared
        audit.levels[shared.level] += 1
        request.id_line = line = id_line()
        known = KnownEntry(self, line, now, waits=shared.has_first)
        if shared.has_first:
            audit.append(known)
        return known

    def _make(self, entry: Entry) -> None:
        """Build the parts, at the first equal request: most requests have none."""
        recorded = entry.recorded
        first_end, last_end = (annotations_of(entry, each) for each in (RECEIVED, COMPLETE))
        self.shared = _shared_parts(recorded.level, recorded.omitted, who_of(entry), first_end, last_end)
        self.line, self.object = _encoded(entry.line.fields), _encoded(entry.line.object)


class KnownEntry(RequestEntry):
    """The entry of an equal request, with only the parts that differ.

    :ivar waits: whether it is in the pending batch.
    """

    __slots__ = ("_begin", "_ended", "_known", "_line", "waits")

    def __init__(self, known: KnownRequest, line: bytes, received: float, *, waits: bool) -> None:
        self._known = known
        self._line = line
        self._answer = UNANSWERED
        self.records_bodies = False
        self.received = received
        self._ended = 0.0  # s since the epoch
        self.status = ""
        self._begin = b""  # the time in events, once there is one
        self.waits = waits

    def ended(self) -> None:
        """Record that the request has ended; only the first call counts."""
        if not self._ended:
            known = self._known
            audit = known.audit
            self._ended = audit.seconds()
            if not self.waits and known.shared.has_last:
                self.waits = True
                audit.append(self)

    def add_to(self, parts: list[bytes]) -> int:
        """Add the events of the batch to *parts*; return their number."""
        self.waits = False
        known, name, begin, count = self._known, self._line[ID_BEGIN:ID_END], self._begin, 0
        shared = known.shared
        if not begin:
            begin = self._begin = stamp(self.received)
            if shared.has_first:
                count = 1
                parts += shared.head, name, shared.first, known.line, shared.who, known.object
                parts += _RECEIPT, begin, _STAMP, begin, shared.first_end
        if self._ended and shared.has_last:
            count += 1
            status, end = shared.status(self, self._answer), stamp(self._ended)
            parts += shared.head, name, shared.last, known.line, shared.who, known.object
            parts += status, begin, _STAMP, end, shared.last_end
        return count


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
