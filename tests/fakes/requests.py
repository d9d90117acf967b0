"""Requests of users, as routers, filters and the API read them.

Requests and connections are of subclasses of the real classes: compiled modules accept no others.
"""

from __future__ import annotations

from typing import Any, cast

from attrs import define
from twisted.internet.defer import Deferred, succeed

from tower.http.requests import BEARER_PROTOCOL, Fields
from tower.web.access.audit.request_entry import RequestEntry
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.request import BODY_LIMIT, Request
from tower.web.gateway.user_session import UserSession
from tower.web.peer import Peer

#: The value of Sec-WebSocket-Protocol with an empty token, which Authorization cannot carry.
EMPTY_TOKEN = BEARER_PROTOCOL + b", v4.channel.k8s.io"


def fields_with(
    bearer: bytes | None = None, *, foreign: bytes = b"", upgrade: bytes = b"", **lines: bytes
) -> Fields:
    """Return the header fields of a request.

    :param bearer: the token in Authorization.
    :param foreign: the name of a field that claims an identity.
    :param upgrade: the requested protocol.
    :param lines: the values of other fields; ``_`` in their names is ``-`` in the fields'.
    """
    pairs = [(name.replace("_", "-").encode(), value) for name, value in lines.items()]
    if bearer is not None:
        pairs.append((b"Authorization", b"Bearer " + bearer))
    if foreign:
        pairs.append((foreign, b"root"))
    if upgrade:
        pairs += [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade)]
    return Fields(b"".join(b"%b: %b\r\n" % pair for pair in pairs) + b"\r\n")


@define(eq=False)
class FakeGateway:
    """A gateway without an audit and limits."""

    audit: Any = None
    inflight: Any = None


class FakePeer(Peer):
    """The client's end of a connection."""

    def __init__(self, channel: HTTPChannel, address: str, certificates: tuple[bytes, ...]) -> None:
        super().__init__(cast(Any, None), channel)
        self.address = address
        self.certificate = certificates[0] if certificates else None
        self._certificates = certificates

    def chain(self) -> tuple[bytes, ...]:
        """Return the certificates that the client sent."""
        return self._certificates


class FakeChannel(HTTPChannel):
    """A user's connection, which counts its valid credentials and records its end.

    :param certificates: of the client, its own first.
    :ivar proofs: how often a valid credential was presented.
    :ivar ends: reasons and codes.
    """

    def __init__(self, address: str = "192.0.2.7", certificates: tuple[bytes, ...] = ()) -> None:
        """Set what routers and filters read; the base would need a gateway and a connection."""
        self.gateway: Any = FakeGateway()
        self.peer = FakePeer(self, address, certificates)
        self.session = UserSession(cast(Any, None), self.peer)
        self.authenticated = self.claimed = self.acting = self.admission = self.ruled = None
        self.proven = self.last = False
        self.proofs = 0
        self.ends: list[tuple[str, int]] = []

    def prove(self) -> None:
        """Count it."""
        self.proven = True
        self.proofs += 1

    def abort(self, reason: str, code: int = 401) -> None:
        """Record it."""
        self.ends.append((reason, code))


class FakeRequest(Request):
    """A request; its body is by default an empty JSON object.

    :param raw: the body.
    :ivar audited: the clusters of all calls of `audit`.
    """

    def __init__(
        self,
        target: bytes = b"/",
        method: bytes = b"GET",
        fields: Fields | None = None,
        channel: HTTPChannel | None = None,
        *,
        identity: Any = None,
        destination: Any = None,
        entry: RequestEntry | None = None,
        raw: bytes = b"{}",
    ) -> None:
        super().__init__(channel or FakeChannel(), method, target, 1, fields or fields_with(), b"", b"")
        self.identity = identity
        self.destination = destination
        self.entry = entry
        self.raw = raw
        self.audited: list[str] = []

    def body(self, limit: int = BODY_LIMIT) -> Deferred[bytes]:
        """Return the body."""
        return succeed(self.raw)

    def peek_body(self, limit: int) -> Deferred[bytes]:
        """Return the body."""
        return succeed(self.raw)

    def audit(self, cluster: str) -> Deferred[None] | None:
        """Record the call."""
        self.audited.append(cluster)
        return None
