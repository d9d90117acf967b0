"""In whose name a user's connection is used, and for which cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tower.http.requests import Fields
from tower.kube.canonical_head import identity_lines, write_fields
from tower.web.gateway.peer import Peer
from tower.web.gateway.request import Identity

if TYPE_CHECKING:
    from tower.web.gateway.gateway import Sessions


class UserSession:
    """What is entered in `tower.web.access.sessions.Sessions` for one connection, one thing at a time.

    It outlives the request, so that an idle connection ends too, and costs the next request nothing.

    :ivar identity: who uses the connection; None: nobody does.
    :ivar cluster: which cluster it is used for; empty for Tower itself.
    """

    __slots__ = ("_entry", "_fields", "_lines", "_peer", "_sessions", "_writer", "cluster", "identity")

    def __init__(self, sessions: Sessions, peer: Peer) -> None:
        self._sessions = sessions
        self._peer = peer
        self._entry: Any = None
        self._writer: Identity | None = None
        self.identity: Identity | None = None
        self.cluster = ""
        self._fields: Fields | None = None
        self._lines = b""

    def enter(self, identity: Identity, cluster: str, abort: Callable[[str], None]) -> None:
        """Leave, and note that *identity* uses *cluster* from now on; *abort* ends that use."""
        self.leave()
        if identity is not self._writer:
            self._writer, self._fields = identity, None
        self._entry = self._sessions.enter(identity, cluster, abort)
        self.identity, self.cluster = identity, cluster

    def leave(self) -> None:
        """Note that the connection is used no more; may be called more than once."""
        if self.identity is not None:
            entry, self._entry, self.identity = self._entry, None, None
            self._sessions.leave(entry)

    def write(self, fields: Fields) -> bytes:
        """Return what follows the request line on the way to the agent, for a request with *fields*.

        It is said in the name of whoever entered last; requests that differ only before it cost nothing.

        :raise TowerError: such a request is not sent.
        """
        if fields is not self._fields:
            assert self._writer is not None, "nobody has entered"
            identity = identity_lines(self._writer.user, self._writer.groups)
            self._lines = write_fields(fields, identity, self._peer.forwarding)
            self._fields = fields
        return self._lines
