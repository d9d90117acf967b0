"""What a router may answer to a request: the five ways a request can go on.

A router is a function ``router(request: Request) -> Outcome | Deferred[Outcome]``.  It returns one of

* `Relay`: on to a cluster (the hot path; keep one `Relay` per cluster and return that same object);
* `Response`: a whole answer made here (Tower's own API, `/health`);
* `StreamingResponse`: an answer made here, piece by piece (a watch);
* `RawStream`: one raw stream to a target of a cluster, after our own 101 (``Upgrade: tower-stream``);
* `HandOver`: the connection itself, with every byte that came, to somebody else (an agent's upgrade);

or raises a `tower.errors.TowerError` (best `tower.kube.status.StatusError`), which becomes a Kubernetes Status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tower.escaping import json_text
from tower.net.pipes import Pipe

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Relay:
    """Relay the request to *cluster*, with `Request.identity` impersonated unless *plain*.

    :ivar cluster: the cluster's name.
    :ivar prefix: what the target begins with and the cluster shall not see, without a final slash:
        ``b"/clusters/alpha"`` on the front door, ``b""`` on the cluster's own port.
    :ivar target: the tunnel's target.
    :ivar plain: the user's header goes on as it came: the target asks by itself who somebody is.
    :ivar scope: where the answer's cookies may go, a path without a final slash, and where other fields that
        act on a whole host are dropped; ``b""`` where the host is the cluster's own.
    """

    cluster: str
    prefix: bytes = b""
    target: str = "kubernetes"
    plain: bool = False
    scope: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer.  ``Content-Length``, ``Date`` and ``Connection`` are added by the gateway."""

    code: int
    body: bytes = field(default=b"", repr=False)
    headers: Headers = ((b"Content-Type", b"application/json"),)

    @classmethod
    def of_json(cls, value: Mapping[str, Any], code: int = 200) -> Response:
        """Return *value* as an ``application/json`` answer."""
        return cls(code, json_text(value, separators=(",", ":")).encode() + b"\n")


class BodyStream(Protocol):
    """Where a `StreamingResponse` writes; once it is over everything here does nothing.

    :ivar on_drained: called when `write` had returned False and there is room again.
    :ivar on_closed: called once when the user has gone or `finish` is through: stop producing.
    """

    on_drained: Callable[[], None] | None
    on_closed: Callable[[], None] | None

    def write(self, data: bytes) -> bool:
        """Send *data* at once; False means: write no more until `on_drained`, or at all once it is over."""

    def finish(self) -> None:
        """End the body in order; the connection lives on for the next request."""


@dataclass(frozen=True, slots=True)
class StreamingResponse:
    """An answer of unknown length: *start* is called with the `BodyStream` once the head was sent."""

    start: Callable[[BodyStream], None]
    code: int = 200
    headers: Headers = ((b"Content-Type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class RawStream:
    """Open *target* of *cluster*, answer 101 (``Upgrade: tower-stream``), then pass raw bytes both ways."""

    cluster: str
    target: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give the connection away.

    :ivar take: called with the connection (paused) and all bytes so far: the raw request head and what
        followed it.  It sets ``connection.receiver``, uses the bytes, and resumes.
    """

    take: Callable[[Pipe, bytes], None]


Outcome: TypeAlias = Relay | Response | StreamingResponse | RawStream | HandOver
