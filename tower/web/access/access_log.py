"""The access log: one JSON line for each request, written when the request or its stream has ended.

Queries are not logged: that of an exec has its command.  Lines of requests without a valid credential are
limited, because any client could fill the disk with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import TypeAlias

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tower.escaping import quoted
from tower.kube.request_info import parse_request_info
from tower.kube.system_identities import ANONYMOUS_USER
from tower.store.audit_log import AuditLog
from tower.web.access.audit.formats import TRUSTED_CALLER, moment
from tower.web.access.authentication.identity import AnyIdentity, Identity
from tower.web.access.trusted_callers import Acting, acting
from tower.web.gateway.measurements import Observation
from tower.web.request_kind import request_kind

#: Longest delay of a line, s, and size of a full batch, lines.
DELAY = 0.1
MANY = 512

#: Longest path that is logged, B, and the size from which a batch is queued line by line, B.
LONGEST_PATH = 1024
LARGE = 512 * 1024

#: Lines of unauthenticated requests in one second; further ones are counted.
UNAUTHENTICATED = 10

# Longer targets are not cached, which bounds the cache's memory.
_LONGEST_CACHED = 256

# W3C Trace Context, section 3.2; later versions may have more fields.
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_PREFIX = re.compile(rb"/clusters/[^/?]+(?=[/?])")


#: The facts of one line, without the request, which ends before the line is made: begin and end, ID,
#: ``traceparent``, arguments of `_shared`, status, whether the member answered, bytes up and down, which side
#: aborted the answer.
_Entry: TypeAlias = tuple[
    float,
    float,
    str,
    bytes | None,
    tuple[str, str | None, str, str, bytes, bytes, bytes, Acting | None],
    int,
    bool,
    int,
    int,
    str,
]


class AccessLog:
    """Writes the lines; a `tower.web.gateway.measurements.RequestObserver`.

    Lines are made in batches, which takes a fraction of the time of single ones.

    :param epoch: returns the time of day, s since the epoch.
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

    def ended(self, observation: Observation) -> None:
        """Keep the facts for the next batch."""
        request = observation.request
        identity = request.identity
        now = monotonic()
        if identity is None and not self._has_room(self._clock.seconds()):
            return
        self._entries.append(
            (
                observation.began,
                now,
                request.request_id,
                request.fields.get(b"traceparent"),
                (
                    observation.address,
                    None if identity is None else _sender(identity),
                    request.cluster,
                    observation.target,
                    request.method,
                    request.target,
                    request.fields.upgrade,
                    None if identity is None else acting(identity, request.fields),
                ),
                request.code,
                request.by_member,
                observation.bytes_up,
                observation.bytes_down,
                observation.aborted,
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
        offset = self._epoch() - monotonic()
        lines = [_line(entry, offset) for entry in entries]
        if omitted:
            lines.append(f'{{"time":"{moment(self._epoch())}","omitted":{omitted}}}\n')
        data = "".join(lines).encode("utf-8", "replace")
        if len(data) <= LARGE:
            if data:
                self._log.put(data, len(lines))
            return
        for line in lines:  # so that a full queue does not lose a large batch as a whole
            self._log.put(line.encode("utf-8", "replace"), 1)


def _sender(identity: AnyIdentity) -> str:
    return identity.sender.user if isinstance(identity, Identity) else identity.user


def _line(entry: _Entry, offset: float) -> str:
    began, ended, request_id, trace, facts, code, by_member, up, down, aborted = entry
    shared = _shared if len(facts[-3]) <= _LONGEST_CACHED else _shared.__wrapped__
    end = f',"aborted":"{aborted}"' if aborted else ""
    if trace is not None:
        end += _trace(trace)
    return (
        f'{{"time":"{moment(began + offset)}","requestID":"{request_id}",{shared(*facts)}'
        f'"code":{code},"source":"{"member" if by_member else "tower"}","duration":{ended - began:.6f},'
        f'"bytesUp":{up},"bytesDown":{down}{end}}}\n'
    )


@lru_cache(maxsize=1024)
def _shared(
    address: str,
    user: str | None,
    cluster: str,
    target: str,
    method: bytes,
    path: bytes,
    upgrade: bytes,
    facts: Acting | None,
) -> str:
    """Return the keys that equal requests of one client share; *path* includes the query."""
    prefix = _PREFIX.match(path)
    info = parse_request_info(method, path[prefix.end() :] if prefix is not None else path)
    fields = {
        "address": address,
        "user": ANONYMOUS_USER if user == "" else user,
        **({} if facts is None else _caller(facts)),
        "cluster": cluster,
        "target": target,
        "method": method.decode("ascii", "replace"),
        "path": path.partition(b"?")[0][:LONGEST_PATH].decode("utf-8", "backslashreplace"),
        "verb": info.verb,
        "apiGroup": info.group,
        "resource": info.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "name": info.name,
        "kind": request_kind(method, path, upgrade),
    }
    return "".join(f'"{name}":{quoted(value)},' for name, value in fields.items() if value)


def _caller(facts: Acting) -> dict[str, str]:
    """Return the keys about the request of a trusted caller, or with the token of a member's account."""
    role, token = TRUSTED_CALLER if facts.is_caller else "", "true" if facts.by_token else ""
    return {"role": role, "impersonatedUser": facts.user, "memberToken": token}


def _trace(value: bytes) -> str:
    """Return the ID in a ``traceparent``, or nothing."""
    match = _TRACE.fullmatch(value)
    return f',"traceID":"{match[1].decode("ascii")}"' if match is not None else ""
