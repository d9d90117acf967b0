"""The user of a connection: address, credential, session, and the memory that the connection may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from mypy_extensions import mypyc_attr

from tower.http.requests import Fields
from tower.kube.canonical_head import (
    identity_lines,
    write_acting_fields,
    write_fields,
    write_trusted_fields,
)
from tower.net.connection_slots import prove
from tower.net.pipes import AcceptedPipe
from tower.web.gateway.memory_loan import Loan
from tower.web.peer import Peer

if TYPE_CHECKING:
    from tower.web.access.admission_cache import CachedAdmission
    from tower.web.access.authentication.identity import AnyIdentity, Identity
    from tower.web.access.sessions import Abort, Session, Sessions
    from tower.web.gateway.gateway import Gateway

#: An unauthenticated connection closes after its first answer in this last part of its lifetime, s.
NOTICE: Final = 10


class Claimed:
    """The result of an authentication that depends on header fields.

    :ivar onward: *fields* without those that a front proxy has set.
    """

    __slots__ = ("fields", "identity", "onward")

    def __init__(self, fields: Fields, onward: Fields, identity: Identity) -> None:
        self.fields = fields
        self.onward = onward
        self.identity = identity


class RuleSource(Protocol):
    """Source of decisions on requests, each of which counts until `generation` changes."""

    generation: int


class Ruled(Protocol):
    """The last decision of the rules on a request of a connection.

    :ivar attributes: of that request.
    :ivar rules: the source of the decision.
    :ivar is_kept: whether it counts until the generation of *rules* changes.
    """

    attributes: Any
    is_kept: bool

    @property
    def rules(self) -> RuleSource:
        """See the class."""


class UserSession:
    """The current entry of one connection in `tower.web.access.sessions.Sessions`.

    It outlives the request: so a revocation also ends an idle connection, and the next request costs nothing.

    `identity` is None without a session; `cluster` is empty for Tower itself.
    """

    __slots__ = ("_entry", "_fields", "_lines", "_peer", "_sessions", "_writer", "cluster", "identity")

    def __init__(self, sessions: Sessions, peer: Peer) -> None:
        self._sessions = sessions
        self._peer = peer
        self._entry: Session | None = None
        self._writer: AnyIdentity | None = None
        self.identity: AnyIdentity | None = None
        self.cluster = ""
        self._fields: Fields | None = None
        self._lines = b""

    def enter(self, identity: AnyIdentity, cluster: str, abort: Abort) -> None:
        """Replace the session by one of *identity* with *cluster*; *abort* ends it."""
        self.leave()
        if identity is not self._writer:
            self._writer, self._fields = identity, None
        self._entry = self._sessions.enter(identity, cluster, abort)
        self.identity, self.cluster = identity, cluster

    def leave(self) -> None:
        """End the session, if there is one."""
        entry, self._entry, self.identity = self._entry, None, None
        if entry is not None:
            self._sessions.leave(entry)

    def write(self, fields: Fields) -> bytes:
        """Return the header lines for the agent, for a request of the last identity with *fields*.

        They are kept for the next request with the same fields.

        :raise TowerError: the request must not be sent.
        """
        if fields is not self._fields:
            assert self._writer is not None, "there was no session"
            writer, forwarding = self._writer, self._peer.forwarding
            token = writer.member_token(fields.bearer)
            known = writer.in_member
            identity = (
                b"" if token is not None else identity_lines(known.name, known.groups, known.uid, known.extra)
            )
            if writer.is_trusted_caller:
                self._lines = write_trusted_fields(fields, identity, forwarding, token)
            elif writer.is_acting:
                self._lines = write_acting_fields(fields, identity, forwarding)
            else:
                self._lines = write_fields(fields, identity, forwarding)
            self._fields = fields
        return self._lines


@mypyc_attr(allow_interpreted_subclasses=True)
class UserConnection:
    """The user-related state of a connection; base of the HTTP channel.

    :ivar authenticated: bearer token and identity of the last authentication, or None.
    :ivar claimed: same, of a request with fields that claim an identity; or None.
    :ivar acting: the last identity that acted as another one, the fields, and the other one; or None.
    :ivar admission: the last request that passed all filters at once, or None.
    :ivar ruled: the last decision of the rules, or None.
    :ivar proven: a valid credential was presented, or the port requires none.
    :ivar last: the connection closes after the next answer, because of its age.
    """

    def __init__(self, gateway: Gateway, connection: AcceptedPipe) -> None:
        self.gateway = gateway
        self.connection = connection
        self.peer = Peer(connection, self)
        self.session = UserSession(gateway.sessions, self.peer)
        self.authenticated: tuple[bytes | None, Identity] | None = None
        self.claimed: Claimed | None = None
        self.acting: tuple[Identity, Fields, Identity] | None = None
        self.admission: CachedAdmission | None = None
        self.ruled: Ruled | None = None
        self.proven = self.last = False
        self._lifetime = 0  # s
        self._loan = Loan(gateway.budget, gateway.unproven)

    def enter(self, identity: AnyIdentity, cluster: str) -> None:
        """End this connection when *identity* or *cluster* (empty: Tower itself) is revoked or removed."""
        session = self.session
        if identity is not session.identity or cluster != session.cluster:
            self.prove()
            session.enter(identity, cluster, self.abort)

    def prove(self) -> None:
        """Record that a valid credential was presented, or that none is required."""
        if not self.proven:
            self._loan.repay(self)
            self.proven, self.last = True, False
        if self.authenticated is not None or self.claimed is not None:  # None: without authentication
            prove(self.connection)

    def leave(self) -> None:
        """End the session: the connection is closed, or forwarded without requests."""
        self.peer.channel = None  # break the cycle
        self.session.leave()

    def disprove(self) -> None:
        """Record that the credential has become invalid: the connection is unauthenticated again."""
        self.authenticated = self.claimed = None
        if self.proven:
            self._loan.repay(self)
            self.proven = False
            self._check_lifetime()

    def _check_lifetime(self) -> None:
        """Close after the next answer, if the end of the lifetime is near."""
        self.last = self._lifetime > self.gateway.limits.unproven - NOTICE

    def abort(self, reason: str, code: int = 401) -> None:
        """End the connection and its request: the credential, or the user's admission, is no longer valid."""
        raise NotImplementedError

    def evict(self) -> None:
        """See `tower.net.budget.MemoryHolder.evict`."""
        raise NotImplementedError
