"""The access log: one JSON line for each request, written when the request or its stream has ended.

Queries are not logged: that of an exec has its command.  Lines of requests without a valid credential are
limited, because any client could fill the disk with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tower.escaping import quoted
from tower.kube.request_info import parse_request_info
from tower.store.audit_log import AuditLog
from tower.web.access.audit import ANONYMOUS_USER
from tower.web.access.audit_formats import moment
from tower.web.gateway.observer import SHORT, Observation

#: Longest delay of a line, s, and size of a full batch, lines.
DELAY = 0.1
MANY = 512

#: Lines of unauthenticated requests in one second; further ones are counted.
UNAUTHENTICATED = 10

# Longer targets are not cached, which bounds the cache's memory.
_LONGEST_CACHED = 256

# W3C Trace Context, section 3.2; later versions may have more fields.
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_PREFIX = re.compile(rb"/clusters/[^/?]+(?=[/?])")


class _Entry(NamedTuple):
    """The facts of one line; it does not refer to the request, which ends before the line is made."""

    began: float
    ended: float
    id: str
    trace: bytes | None
    origin: tuple[str, str | None, str, str, str]
    method: bytes
    target: bytes
    code: int
    by_member: bool
    bytes_up: int
    bytes_down: int


class AccessLog:
    """Writes the lines; a `tower.web.gateway.observer.RequestObserver`.

    Lines are made in batches, which takes a fraction of the time of single ones.

    :param clock: monotonic.
    :param epoch: returns the time of day, s since the epoch.
    :ivar seconds: see `RequestObserver.seconds`.
    """

    def __init__(self, clock: IReactorTime, log: AuditLog, epoch: Callable[[], float]) -> None:
        self._clock = clock
        self._log = log
        self._epoch = epoch
        self._entries: list[_Entry] = []
        self._due: IDelayedCall | None = None
        self._unauthenticated = 0
        self._omitted = 0
        self._second = 0.0
        self.seconds: Callable[[], float] = clock.seconds

    def begun(self, observation: Observation) -> None:
        """Give the request its ID, so that it is sent to the cluster."""
        observation.request.make_id()

    def answered(self, observation: Observation) -> None:
        """See `RequestObserver.answered`."""

    def ended(self, observation: Observation) -> None:
        """Keep the facts for the next batch."""
        request, now = observation.request, self.seconds()
        identity = request.identity
        if identity is None and not self._has_room(now):
            return
        user = None if identity is None else identity.user
        self._entries.append(
            _Entry(
                observation.began,
                now,
                request.request_id,
                request.fields.get(b"traceparent"),
                (observation.address, user, observation.cluster, observation.target, observation.kind),
                request.method,
                request.target,
                observation.code,
                observation.by_member,
                observation.bytes_up,
                observation.bytes_down,
            )
        )
        if len(self._entries) >= MANY:
            self.write()
        elif self._due is None:
            self._due = self._clock.callLater(DELAY, self.write)

    def _has_room(self, now: float) -> bool:
        """Return whether the line of an unauthenticated request may be written; count it otherwise."""
        if now - self._second >= 1.0:
            self._second, self._unauthenticated = now, 0
        self._unauthenticated += 1
        if self._unauthenticated <= UNAUTHENTICATED:
            return True
        self._omitted += 1
        if self._due is None:
            self._due = self._clock.callLater(DELAY, self.write)
        return False

    def write(self) -> None:
        """Write the batch now."""
        due, self._due = self._due, None
        if due is not None and due.active():
            due.cancel()
        entries, self._entries = self._entries, []
        omitted, self._omitted = self._omitted, 0
        offset = self._epoch() - self.seconds()
        lines = [_line(entry, offset) for entry in entries]
        if omitted:
            lines.append(f'{{"time":"{moment(self._epoch())}","omitted":{omitted}}}\n')
        if lines:
            self._log.put("".join(lines).encode("utf-8", "replace"), len(lines))


def _line(entry: _Entry, offset: float) -> str:
    began, target = entry.began, entry.target
    describe = _described if len(target) <= _LONGEST_CACHED else _described.__wrapped__
    trace = "" if entry.trace is None else _trace(entry.trace)
    return (
        f'{{"time":"{moment(began + offset)}","requestID":"{entry.id}",{_origin(*entry.origin)}'
        f'{describe(entry.method, target)}"code":{entry.code},'
        f'"source":"{"member" if entry.by_member else "tower"}","duration":{entry.ended - began:.6f},'
        f'"bytesUp":{entry.bytes_up},"bytesDown":{entry.bytes_down}{trace}}}\n'
    )


@lru_cache(maxsize=1024)
def _origin(address: str, user: str | None, cluster: str, target: str, kind: str) -> str:
    """Return the keys that most requests of a connection share."""
    fields = {
        "address": address,
        "user": ANONYMOUS_USER if user == "" else user,
        "cluster": cluster,
        "target": target,
        "kind": kind or SHORT,
    }
    return "".join(f'"{name}":{quoted(value)},' for name, value in fields.items() if value)


@lru_cache(maxsize=1024)
def _described(method: bytes, target: bytes) -> str:
    """Return the keys about the request line; *target* is path and query."""
    prefix = _PREFIX.match(target)
    info = parse_request_info(method, target[prefix.end() :] if prefix is not None else target)
    fields = {
        "method": method.decode("ascii", "replace"),
        "path": target.partition(b"?")[0].decode("utf-8", "backslashreplace"),
        "verb": info.verb,
        "apiGroup": info.group,
        "resource": info.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "name": info.name,
    }
    return "".join(f'"{name}":{quoted(value)},' for name, value in fields.items() if value)


def _trace(value: bytes) -> str:
    """Return the ID in a ``traceparent``, or nothing."""
    match = _TRACE.fullmatch(value)
    return f',"traceID":"{match[1].decode("ascii")}"' if match is not None else ""
