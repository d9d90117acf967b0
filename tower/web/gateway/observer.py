"""The hook for measurements: an observer is notified of each request's begin, status and end.

A gateway without an observer pays one comparison for each request.  A connection that is handed over to an
agent's protocol, and bytes that are not an HTTP request, are not observed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from tower.kube.request_info import parse_request_info
from tower.tunnels.targets import KUBERNETES

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: Values of `Observation.kind`.
SHORT, WATCH, EXEC, PORT_FORWARD, LOGS, RAW = "short", "watch", "exec", "portforward", "logs", "raw"

#: Values of `Observation.verb_class`.
READ, WRITE, STREAM = "read", "write", "stream"

_READS = frozenset((b"GET", b"HEAD", b"OPTIONS"))
_KINDS = {"exec": EXEC, "attach": EXEC, "portforward": PORT_FORWARD, "log": LOGS}

# Longer targets are not cached, which bounds the cache's memory.
_LONGEST_CACHED = 256


class RequestObserver(Protocol):
    """Is notified of requests; its methods must be fast and must not raise."""

    def seconds(self) -> float:
        """Return monotonic time, s."""

    def begun(self, observation: Observation) -> None:
        """Handle that the request passed the filters; not called for a request that was rejected before."""

    def answered(self, observation: Observation) -> None:
        """Handle that the head of the final answer is about to be sent; not called if there is none."""

    def ended(self, observation: Observation) -> None:
        """Handle the end of the request, or of its stream; called exactly once for each request."""


class Observation:
    """The facts about one request.

    :ivar address: the client's IP address.
    :ivar began: when the head was complete, s of `RequestObserver.seconds`.
    :ivar answered_at: when the head of the answer was sent; 0.0: it was not.
    :ivar cluster: the requested cluster, empty for Tower itself; set after authentication.  A request that
        was rejected may name a cluster that does not exist.
    :ivar target: of the cluster: ``kubernetes``, ``kubelet/NODE`` or a name; empty for Tower itself and
        before `RequestObserver.begun`.
    :ivar kind: one of the constants above; empty before `RequestObserver.begun`.
    :ivar code: HTTP status of the answer; 0: none was sent because the client disconnected.
    :ivar by_member: whether the member made the answer, not Tower.
    """

    __slots__ = (
        *("_observer", "_received", "_sent", "address", "answered_at", "began", "by_member"),
        *("cluster", "code", "kind", "request", "target"),
    )

    def __init__(self, observer: RequestObserver, request: Request) -> None:
        self._observer = observer
        self.request = request
        self.began = observer.seconds()
        self.answered_at = 0.0
        self.cluster = self.target = self.kind = ""
        self.code = 0
        self.by_member = False
        channel = request.channel
        self.address = channel.peer.address
        self._sent = channel.connection.bytes_out
        self._received = channel.connection.bytes_in - channel.kept - len(request.early)

    # For the request

    def relayed(self, target: str, prefix: bytes) -> None:
        """Record that the request goes to *target* of its cluster; *prefix* is that of its path."""
        request = self.request
        self.target = target
        path, upgrades = request.target[len(prefix) :], bool(request.fields.upgrade)
        if target != KUBERNETES:
            self.kind = RAW if upgrades else SHORT
        elif len(path) <= _LONGEST_CACHED:
            self.kind = kind_of(request.method, path, upgrades)
        else:
            self.kind = kind_of.__wrapped__(request.method, path, upgrades)
        self._observer.begun(self)

    def answered_by_tower(self, *, streaming: bool) -> None:
        """Record that the request is answered by Tower's own API; *streaming*: with a watch."""
        self.kind = WATCH if streaming else SHORT
        self._observer.begun(self)

    def answered(self, code: int) -> None:
        """Record the status of the answer."""
        self.code = code
        self.answered_at = self._observer.seconds()
        self._observer.answered(self)

    def ended(self) -> None:
        """Record the end."""
        self._observer.ended(self)

    # For observers

    @property
    def verb_class(self) -> str:
        """Class of the request's verb: one of the constants above."""
        if self.kind not in (SHORT, ""):
            return STREAM
        return READ if self.request.method in _READS else WRITE

    @property
    def bytes_up(self) -> int:
        """Bytes received from the user for this request: head, body, and raw bytes after an upgrade."""
        request = self.request
        size = len(request.head)
        if request.fields.body or request.fields.upgrade:
            channel = request.channel
            size += channel.connection.bytes_in - channel.kept - self._received
        return size

    @property
    def bytes_down(self) -> int:
        """Bytes sent to the user, heads included."""
        return self.request.channel.connection.bytes_out - self._sent


@lru_cache(maxsize=1024)
def kind_of(method: bytes, target: bytes, upgrades: bool) -> str:
    """Return the kind of a request to a cluster's API server; *target* is the server's path and query."""
    info = parse_request_info(method, target)
    if kind := _KINDS.get(info.subresource):
        return kind
    if info.verb == "watch":
        return WATCH
    return RAW if upgrades or info.is_long_running else SHORT
