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


@define
class FakeChannel:
    """A user's connection, which counts its valid credentials."""

    authenticated: Any = None
    admission: Any = None
    proven: int = 0

    def prove(self) -> None:
        """Count it."""
        self.proven += 1


@define
class FakeRequest:
    """A request whose body is an empty JSON object."""

    target: bytes = b"/"
    method: bytes = b"GET"
    fields: FakeFields = field(factory=FakeFields)
    channel: FakeChannel = field(factory=FakeChannel)
    certificate: bytes | None = None
    identity: Any = None
    audited: list[str] = field(factory=list)

    @property
    def path(self) -> bytes:
        """The path."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """The query."""
        return self.target.partition(b"?")[2]

    def body(self) -> Deferred[bytes]:
        """Return the body."""
        return succeed(b"{}")

    def audit(self, cluster: str) -> None:
        """Record the call."""
        self.audited.append(cluster)
