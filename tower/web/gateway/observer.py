"""The hook for measurements: an observer is notified of each request's end.

A gateway without an observer pays one comparison for each request.  A connection that is handed over to an
agent's protocol, and bytes that are not an HTTP request, are not observed.
"""

from __future__ import annotations

from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from tower.kube.request_info import parse_request_info

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: Kinds of requests.
SHORT, WATCH, EXEC, PORT_FORWARD, LOGS, RAW = "short", "watch", "exec", "portforward", "logs", "raw"

#: Classes of verbs; streams are requests of a kind other than short.
READ, WRITE, STREAM = "read", "write", "stream"

_KINDS = {"exec": EXEC, "attach": EXEC, "portforward": PORT_FORWARD, "log": LOGS}


class RequestObserver(Protocol):
    """Is notified of requests; its method must be fast and must not raise."""

    def ended(self, observation: Observation) -> None:
        """Handle the end of the request, or of its stream; called exactly once for each request."""


class Observation:
    """The facts about one request that the request itself does not keep.

    :ivar address: the client's IP address.
    :ivar began: when the head was complete, monotonic, s.
    :ivar target: of the cluster: ``kubernetes``, ``kubelet/NODE`` or a name; empty for Tower itself, and if
        the request was rejected before.
    """

    __slots__ = ("_received", "_sent", "address", "began", "request", "target")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.began = monotonic()
        self.target = ""
        channel = request.channel
        self.address = channel.peer.address
        connection = channel.connection
        self._sent = connection.bytes_out
        self._received = connection.bytes_in - channel.kept - len(request.early)

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
