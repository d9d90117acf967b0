"""A request as it was received, and the facts about its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from tower.http.requests import Fields
from tower.web.request_id import VALID_ID, id_in, id_line

if TYPE_CHECKING:
    from tower.web.access.authentication.identity import AnyIdentity
    from tower.web.gateway.http_channel import HTTPChannel
    from tower.web.outcome import RawStream, Relay

#: Longest unread body that is discarded so that the connection can be kept, B.
DISCARD_LIMIT: Final = 64 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class ReceivedRequest:
    """The base of `tower.web.gateway.request.Request`, which sets the attributes.

    :ivar method: as received, upper case.
    :ivar target: path and query, as received.
    :ivar minor: 1 for HTTP/1.1, 0 for HTTP/1.0.
    :ivar head: its bytes, including the empty line.
    :ivar early: the part of the body that arrived together with the head, including framing.
    :ivar id_line: the header line with the request's ID for the cluster; empty: no log needs an ID, or the
        client sent its own.
    :ivar identity: the user; set by the router.
    :ivar destination: where the router is about to send the request; None: not known yet.
    """

    __slots__ = (
        "_id",
        "_reads_body",
        "channel",
        "destination",
        "early",
        "fields",
        "head",
        "id_line",
        "identity",
        "method",
        "minor",
        "target",
    )

    channel: HTTPChannel
    method: bytes
    target: bytes
    minor: int
    fields: Fields
    head: bytes
    early: bytes
    identity: AnyIdentity | None
    destination: Relay | RawStream | None
    id_line: bytes
    _id: str
    _reads_body: bool

    @property
    def path(self) -> bytes:
        """The path, as received."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """The query, as received, without the question mark."""
        return self.target.partition(b"?")[2]

    @property
    def certificate(self) -> bytes | None:
        """The client certificate that TLS verified, DER, or None."""
        return self.channel.peer.certificate

    def certificate_chain(self) -> tuple[bytes, ...]:
        """Return the certificates that the client sent, its own first, DER; a resumed session has none."""
        return self.channel.peer.chain()

    @property
    def request_id(self) -> str:
        """The ID of this request in answers and logs: the client's ``Audit-Id`` if it is valid, or a UUID."""
        self.make_id()
        if not self._id:
            self._id = id_in(self.id_line)
        return self._id

    def make_id(self) -> None:
        """Make `request_id`, so that the request is sent to the cluster with it."""
        if self._id or self.id_line:
            return
        given = self.fields.get(b"audit-id")
        if given is None or VALID_ID.fullmatch(given) is None:
            self.id_line = id_line()
        else:
            self._id = given.decode("ascii")

    @property
    def client(self) -> str:
        """The name of the client: its address and user."""
        user = "" if self.identity is None else self.identity.user
        return f"{self.channel.peer.address} {user}"

    @property
    def close(self) -> bool:
        """Whether the connection closes after the answer."""
        return self.fields.close or not self.minor or self.channel.gateway.stopping or self.channel.last

    @property
    def keep(self) -> bool:
        """Whether the connection is kept after an answer made by Tower.

        Only the head decides, not how much of the body has arrived: fragmentation of the user's bytes changes
        nothing.  A short unread body is discarded.  After a long one, or one that the user might not send
        after this answer (``Expect``), the connection closes.
        """
        if self.close:
            return False
        if self._reads_body:
            return not self.channel.body_pending
        return 0 <= self.fields.body <= DISCARD_LIMIT and not self.fields.expects
