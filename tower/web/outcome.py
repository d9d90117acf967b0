"""Results of a router: the five kinds of answer to a request.

A router is a function ``router(request: Request) -> Outcome | Deferred[Outcome]``.  It returns one of

* `Relay`: forward the request to a cluster (the hot path: keep one `Relay` per cluster and return that
  object);
* `Response`: a complete answer made by Tower (its own API, `/health`);
* `StreamingResponse`: an answer made by Tower in pieces (a watch);
* `RawStream`: a raw stream to a target of a cluster, after a 101 from Tower (``Upgrade: tower-stream``);
* `HandOver`: the connection itself with all bytes received, for another protocol (an agent's upgrade);

or raises a `tower.errors.TowerError`, preferably a `tower.kube.status.StatusError`; the user gets a
Kubernetes Status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

from tower.escaping import json_text
from tower.net.pipes import Pipe

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = (b"Content-Type", b"application/json")

#: For answers that caches must not keep.
NOT_CACHED = (b"Cache-Control", b"no-cache, private")


@dataclass(frozen=True, slots=True)
class Relay:
    """Relay the request to *cluster*, impersonating `Request.identity` unless *plain*.

    :ivar prefix: start of the request target that is removed before it is sent, without a final slash:
        ``b"/clusters/alpha"`` on the front door, ``b""`` on the cluster's own port.
    :ivar plain: do not impersonate; the target authenticates the user from the user's own header fields.
    :ivar scope: path that the answer's cookies are confined to, without a final slash; fields that affect a
        whole host are dropped.  ``b""``: the host serves this cluster only, so neither applies.
    :ivar names_client: append the client's address to ``X-Forwarded-For`` of a plain request.
    """

    cluster: str
    prefix: bytes = b""
    target: str = "kubernetes"
    plain: bool = False
    scope: bytes = b""
    names_client: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer.  The gateway adds ``Content-Length``, ``Date`` and ``Connection``."""

    code: int
    body: bytes = field(default=b"", repr=False)
    headers: Headers = (JSON_TYPE,)

    @classmethod
    def of_json(cls, value: Mapping[str, Any], code: int = 200, *headers: tuple[bytes, bytes]) -> Response:
        """Return *value* as an ``application/json`` answer with more *headers*."""
        body = json_text(value, separators=(",", ":")).encode() + b"\n"
        return cls(code, body, (JSON_TYPE, *headers))


class BodyStream(Protocol):
    """The body of a `StreamingResponse`.  After its end all methods do nothing.

    :ivar on_drained: called when there is room again after `write` returned False.
    :ivar on_closed: called once, when the client disconnects or after `finish`: stop producing.
    """

    on_drained: Callable[[], None] | None
    on_closed: Callable[[], None] | None

    def write(self, data: bytes) -> bool:
        """Send *data* at once; return False if the body has ended or must wait for `on_drained`."""

    def finish(self) -> None:
        """End the body; the connection stays open for the next request."""


@dataclass(frozen=True, slots=True)
class StreamingResponse:
    """An answer of unknown length: *start* is called with the `BodyStream` after the head was sent."""

    start: Callable[[BodyStream], None]
    code: int = 200
    headers: Headers = (JSON_TYPE,)


@dataclass(frozen=True, slots=True)
class RawStream:
    """Open *target* of *cluster*, answer 101 (``Upgrade: tower-stream``), then pass raw bytes both ways."""

    cluster: str
    target: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give the connection to another protocol.

    :ivar take: called with the paused connection and all bytes received: the raw request head and the rest.
        It sets ``connection.receiver``, processes the bytes, and resumes the connection.
    """

    take: Callable[[Pipe, bytes], None]


Outcome: TypeAlias = Relay | Response | StreamingResponse | RawStream | HandOver


class ResponseRecord(NamedTuple):
    """The status of an answer, for the audit log.

    :ivar code: the HTTP status; 0: none was sent because the client disconnected.
    :ivar reason: of Tower's own Status, like `message`; empty for other answers.
    """

    code: int
    reason: str = ""
    message: str = ""


@lru_cache(maxsize=256)
def plain_record(code: int) -> ResponseRecord:
    """Return the status of an answer that Tower did not make."""
    return ResponseRecord(code)
