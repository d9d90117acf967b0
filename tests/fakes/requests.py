"""Requests of users, as routers, filters and the API read them."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed


@define
class FakeFields:
    """Header fields: those that Tower parses, and other lines by name."""

    bearer: bytes | None = None
    foreign: bytes = b""
    upgrade: bytes = b""
    lines: dict[bytes, bytes] = field(factory=dict)

    def get(self, name: bytes) -> bytes | None:
        """Return one line's value."""
        return self.lines.get(name)


@define(eq=False)
class FakeGateway:
    """A gateway without an audit and limits."""

    audit: Any = None
    inflight: Any = None


@define(eq=False)
class FakePeer:
    """The client's end of a connection."""

    address: str = "192.0.2.7"


@define(eq=False)
class FakeChannel:
    """A user's connection, which counts its valid credentials."""

    authenticated: Any = None
    claimed: Any = None
    acting: Any = None
    admission: Any = None
    ruled: Any = None
    gateway: FakeGateway = field(factory=FakeGateway)
    peer: FakePeer = field(factory=FakePeer)
    proven: int = 0

    def prove(self) -> None:
        """Count it."""
        self.proven += 1


@define
class FakeRequest:
    """A request; its body is by default an empty JSON object."""

    target: bytes = b"/"
    method: bytes = b"GET"
    fields: FakeFields = field(factory=FakeFields)
    channel: FakeChannel = field(factory=FakeChannel)
    certificate: bytes | None = None
    identity: Any = None
    destination: Any = None
    entry: Any = None
    cluster: str = ""
    audited: list[str] = field(factory=list)
    raw: bytes = b"{}"

    @property
    def path(self) -> bytes:
        """The path."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """The query."""
        return self.target.partition(b"?")[2]

    def certificate_chain(self) -> tuple[bytes, ...]:
        """Return the certificates that the client sent."""
        return () if self.certificate is None else (self.certificate,)

    def body(self) -> Deferred[bytes]:
        """Return the body."""
        return succeed(self.raw)

    def peek_body(self, limit: int) -> Deferred[bytes]:
        """Return the body."""
        return succeed(self.raw)

    def audit(self, cluster: str) -> None:
        """Record the call."""
        self.audited.append(cluster)
