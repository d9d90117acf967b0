"""The audit of all requests: decides on each one's level, makes its events and writes them.

Events are made in batches if no request waits for them: made one by one, between other work, each takes three
times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.kube.audit.policy import COMPLETE, DEFAULT_POLICY, LEVELS, NONE, RECEIVED, STARTED, CompiledPolicy
from tower.kube.status import StatusError
from tower.kube.system_identities import ANONYMOUS_USER, UNAUTHENTICATED_GROUP, all_groups
from tower.web.access.audit.body_record import BodyMemory
from tower.web.access.audit.destinations import BATCH, STRICT, Destination
from tower.web.access.audit.entry import Entry
from tower.web.access.audit.formats import JSON, legacy_line
from tower.web.access.audit.known_entry import KnownEntry, KnownRequest
from tower.web.access.audit.request_entry import UNANSWERED, RequestEntry
from tower.web.access.audit.request_line import request_line
from tower.web.gateway.request import Request
from tower.web.outcome import ResponseRecord

#: Memory for copies of bodies, B; one user gets at most 7/12 of it, all together 7/8.
MEMORY: Final = 16 * 1024 * 1024

#: Longest delay before an event is built, s, and size of a batch; most requests begin and end in one batch.
DELAY: Final = 0.1
MANY: Final = 256

#: Number of requests whose events are joined at once: they should fit into the processor's caches.
JOINED: Final = 32


class PendingEvent(NamedTuple):
    """An event that is not built yet: the stage of an entry, and the data for it."""

    entry: Entry
    stage: str
    answer: ResponseRecord
    now: float

    def add_to(self, parts: list[bytes]) -> int:
        """Add the event to *parts*; return 1."""
        parts.append(self.entry.event(self.stage, self.answer, self.now))
        return 1


class Audit:
    """Writes audit events to *destinations*; *seconds* returns the time, s since the epoch.

    :param clock: for batches; None: each event is made at once.
    :ivar policy: decides what is recorded; may be replaced.
    :ivar blocks: whether requests wait until their first event is stored.
    :ivar memory: for copies of bodies.
    :ivar events: number of events so far.
    :ivar levels: number of requests by level.
    :ivar rejected: number of requests that failed because no event was stored.
    """

    _log: ClassVar[Logger] = Logger()

    def __init__(
        self,
        destinations: Sequence[Destination],
        seconds: Callable[[], float],
        policy: CompiledPolicy | None = None,
        clock: IReactorTime | None = None,
    ) -> None:
        self.destinations = tuple(destinations)
        self.seconds = seconds
        self.policy = CompiledPolicy(DEFAULT_POLICY) if policy is None else policy
        self.memory = BodyMemory(MEMORY)
        self.events = self.rejected = 0
        self.levels = dict.fromkeys(LEVELS, 0)
        self._blocking = tuple(each for each in destinations if each.mode != BATCH)
        self.blocks = bool(self._blocking)
        self._json = tuple(each for each in destinations if each.form == JSON)
        self._legacy = tuple(each for each in destinations if each.form != JSON)
        is_plain = not (self.blocks or self._legacy or any(each.limit for each in destinations))
        self._clock = clock if is_plain else None
        self._pending: list[PendingEvent | KnownEntry] = []
        self._due: IDelayedCall | None = None

    def use(self, policy: CompiledPolicy) -> None:
        """Decide on new requests by *policy*."""
        self.policy = policy

    def begin(self, request: Request, cluster: str) -> Entry | None:
        """Begin the entry of an authenticated request to *cluster* (empty: Tower's own API), and write it.

        Return None if the policy records nothing of the request.
        """
        identity = request.identity
        assert identity is not None, "the router has not authenticated the request"
        uri = relative = request.target
        if cluster:
            prefix = b"/clusters/%b/" % cluster.encode()
            if uri.startswith(prefix):
                relative = uri[len(prefix) - 1 :]
        line = request_line(request.method, uri, relative)
        user = identity.user
        groups = all_groups(user, identity.groups) if user else (UNAUTHENTICATED_GROUP,)
        recorded = self.policy.decide(user or ANONYMOUS_USER, groups, line.info)
        self.levels[recorded.level] += 1
        if recorded.level == NONE:
            return None
        entry = Entry(self, request, cluster, groups, line, recorded)
        if RECEIVED not in recorded.omitted:
            if self._legacy:
                self._put_legacy(legacy_line(entry, RECEIVED, UNANSWERED, entry.received))
            self.add(entry, RECEIVED, UNANSWERED, entry.received)
        return entry

    def known(self, entry: RequestEntry | None) -> KnownRequest | None:
        """Return the facts of a request that equal ones need, if their events can be made in batches.

        :param entry: of the request; None: the policy records nothing of it.
        """
        if self._clock is None:
            return None
        if entry is not None and not (isinstance(entry, Entry) and entry.is_plain and not entry.line.is_long):
            return None
        return KnownRequest(self, self.policy, entry)

    def stored(self, entry: Entry) -> Deferred[None] | None:
        """Return a Deferred that fires when the first event of *entry* is stored; None: nothing to wait for.

        :raise StatusError: through the Deferred: it is not stored, and a destination requires it.
        """
        if not self._blocking or RECEIVED in entry.recorded.omitted:
            return None
        waiting = [each.backend.flush() for each in self._blocking]
        return gatherResults(waiting, consumeErrors=True).addCallbacks(self._stored, _canceled)

    def _stored(self, results: list[bool]) -> None:
        for destination, is_stored in zip(self._blocking, results, strict=True):
            if not is_stored and destination.mode == STRICT:
                self.rejected += 1
                raise StatusError(
                    500,
                    "Internal error occurred: failed to store audit event: an administrator can see the "
                    f"reason in Tower's log (--audit-{destination.name}-mode {STRICT})",
                )

    def answered(self, entry: Entry, answer: ResponseRecord) -> None:
        """Write that the status was sent: to the log of 1.5, and for long-running requests."""
        omitted = entry.recorded.omitted
        if self._legacy and COMPLETE not in omitted:
            line = legacy_line(entry, COMPLETE, answer, self.seconds())
            self._put_legacy(line)
        if (entry.upgrades or entry.line.is_long) and STARTED not in omitted:
            self.add(entry, STARTED, answer, self.seconds())

    def ended(self, entry: Entry, answer: ResponseRecord) -> None:
        """Write that the request has ended."""
        if COMPLETE not in entry.recorded.omitted:
            self.add(entry, COMPLETE, answer, self.seconds())

    def put(self, event: bytes) -> None:
        """Write an event that does not belong to a request."""
        self.write()
        self.events += 1
        for destination in self._json:
            destination.backend.put(event)

    def add(self, entry: Entry, stage: str, answer: ResponseRecord, now: float) -> None:
        """Write the event of a *stage*, or keep it for the next batch."""
        if self._clock is None or not entry.is_plain:
            self.write()
            self._write_event(entry, stage, answer, now)
        else:
            self.append(PendingEvent(entry, stage, answer, now))

    def append(self, event: PendingEvent | KnownEntry) -> None:
        """Keep the event of a plain entry, or those of a known entry, for the next batch.  Needs a clock."""
        pending = self._pending
        pending.append(event)
        if len(pending) >= MANY:
            self.write()
        elif self._due is None and self._clock is not None:
            self._due = self._clock.callLater(DELAY, self._in_time)

    def _in_time(self) -> None:
        self._due = None
        self.write()
        for destination in self._json:
            destination.backend.hasten()

    def write(self) -> None:
        """Write the batch now."""
        pending = self._pending
        if not pending:
            return
        self._pending = []
        for begin in range(0, len(pending), JOINED):
            parts: list[bytes] = []
            count = 0
            for each in pending[begin : begin + JOINED]:
                mark = len(parts)
                try:
                    count += each.add_to(parts)
                except Exception:  # noqa: BLE001 - a bug; the other events are written nevertheless
                    del parts[mark:]
                    self._log.failure("cannot make an audit event")
            events = b"".join(parts)
            self.events += count
            for destination in self._json:
                destination.backend.put(events, count)

    def _put_legacy(self, line: bytes) -> None:
        if not line:
            return
        if not self._json:
            self.events += 1
        for destination in self._legacy:
            destination.backend.put(line)

    def _write_event(self, entry: Entry, stage: str, answer: ResponseRecord, now: float) -> None:
        if not self._json:
            return
        self.events += 1
        event = entry.event(stage, answer, now)
        for destination in self._json:
            if destination.limit and len(event) > destination.limit:
                self._write_truncated(destination, entry, stage, answer, now)
            else:
                destination.backend.put(event)

    def _write_truncated(
        self, destination: Destination, entry: Entry, stage: str, answer: ResponseRecord, now: float
    ) -> None:
        """Write the event without bodies, or count that it is too large even so."""
        if entry.recorded.has_request and stage == COMPLETE:
            event = entry.event(stage, answer, now, truncated=True)
            if len(event) <= destination.limit:
                destination.backend.put(event)
                return
        destination.oversized += 1


def _canceled(_: Failure) -> None:
    raise CancelledError  # backends never fail, so the request was canceled
