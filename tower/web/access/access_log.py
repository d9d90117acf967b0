"""The access log: one JSON line for each request, written when the request or its stream has ended.

Queries are not logged: that of an exec has its command.  Lines of requests without a valid credential are
limited, because any client could fill the disk with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from tower.escaping import quoted
from tower.http.requests import Fields
from tower.kube.request_info import parse_request_info
from tower.store.audit_log import AuditLog
from tower.web.access.audit import ANONYMOUS_USER
from tower.web.access.audit_formats import moment
from tower.web.gateway.observer import Observation

#: Lines of unauthenticated requests in one second; further ones are counted.
UNAUTHENTICATED = 10

# Longer targets are not cached, which bounds the cache's memory.
_LONGEST_CACHED = 256

# W3C Trace Context, section 3.2; later versions may have more fields.
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_PREFIX = re.compile(rb"/clusters/[^/?]+(?=[/?])")


class AccessLog:
    """Writes the lines; a `tower.web.gateway.observer.RequestObserver`.

    :param seconds: returns monotonic time, s.
    :param epoch: returns the time of day, s since the epoch.
    """

    def __init__(self, log: AuditLog, seconds: Callable[[], float], epoch: Callable[[], float]) -> None:
        self._log = log
        self._epoch = epoch
        self._second = 0
        self._unauthenticated = 0
        #: See `RequestObserver.seconds`.
        self.seconds = seconds

    def begun(self, observation: Observation) -> None:
        """Give the request its ID, so that it is sent to the cluster."""
        observation.request.make_id()

    def answered(self, observation: Observation) -> None:
        """See `RequestObserver.answered`."""

    def ended(self, observation: Observation) -> None:
        """Write the line."""
        request, now = observation.request, self._epoch()
        identity = request.identity
        if identity is None and not self._has_room(int(now)):
            return
        duration = self.seconds() - observation.began
        user = "" if identity is None else f'"user":{_name(identity.user or ANONYMOUS_USER)},'
        method, target = request.method, request.target
        place = _place(observation.cluster, observation.target)
        describe = _described if len(target) <= _LONGEST_CACHED else _described.__wrapped__
        self._log.put(
            (
                f'{{"time":"{moment(now - duration)}","requestID":"{request.request_id}",'
                f'"address":"{observation.address}",{user}{place}'
                f'{describe(method, target)}"kind":"{observation.kind or "short"}","code":{observation.code},'
                f'"source":"{"member" if observation.by_member else "tower"}","duration":{duration:.6f},'
                f'"bytesUp":{observation.bytes_up},"bytesDown":{observation.bytes_down}{_trace(request.fields)}}}\n'
            ).encode("utf-8", "replace")
        )

    def _has_room(self, second: int) -> bool:
        """Return whether the line of an unauthenticated request may be written; count it otherwise."""
        if second != self._second:
            omitted, since = self._unauthenticated - UNAUTHENTICATED, self._second
            self._second, self._unauthenticated = second, 0
            if omitted > 0:
                self._log.put(f'{{"time":"{moment(since)}","omitted":{omitted}}}\n'.encode())
        self._unauthenticated += 1
        return self._unauthenticated <= UNAUTHENTICATED


@lru_cache(maxsize=1024)
def _name(user: str) -> str:
    return quoted(user)


@lru_cache(maxsize=1024)
def _place(cluster: str, target: str) -> str:
    fields = {"cluster": cluster, "target": target}
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


def _trace(fields: Fields) -> str:
    """Return the ID of the client's trace, or nothing."""
    value = fields.get(b"traceparent")
    match = _TRACE.fullmatch(value) if value is not None else None
    return f',"traceID":"{match[1].decode("ascii")}"' if match is not None else ""
