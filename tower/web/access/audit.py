"""The audit: who asked what of which cluster, and what became of it.

An `Entry` accompanies a request from the moment at which its user is known: a request that nobody vouches for
(401) has none, as in kube-apiserver's own chain of filters, and one that is forbidden has.  Its ID is sent
along to the cluster's API server, which writes the same one in its own audit log.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tower.web.access.audit_formats import GIVEN_ID, Format, ResponseRecord

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: Who comes to a port that asks nobody who he is; Kubernetes' names for him.
ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"

_UNANSWERED = ResponseRecord(0)


class Sink(Protocol):
    """What is needed of `tower.store.audit_log.AuditLog`."""

    def put(self, line: bytes) -> None:
        """Write a line soon."""


class Audit:
    """:param seconds: the time of day, s since the epoch."""

    def __init__(self, log: Sink, form: Format, seconds: Callable[[], float]) -> None:
        self._log = log
        self._form = form
        self.seconds = seconds
        self._series = str(uuid.uuid4())[:24]
        self._numbers = itertools.count(1)

    def begin(self, request: Request, cluster: str) -> Entry:
        """Write that somebody known asks something.

        :param request: with its identity.
        :param cluster: where it wants to go; empty for Tower's own API.
        """
        entry = Entry(self, request, cluster)
        self._log.put(self._form.received(entry))
        return entry

    def new_id(self) -> str:
        """Return what names one request among all, in the form of a UUID."""
        return f"{self._series}{next(self._numbers):012x}"

    def answered(self, entry: Entry, answer: ResponseRecord) -> None:
        """Write what has to be written when the status is sent."""
        if line := self._form.answered(entry, answer, self.seconds()):
            self._log.put(line)

    def ended(self, entry: Entry, answer: ResponseRecord) -> None:
        """Write what has to be written at the end."""
        if line := self._form.ended(entry, answer, self.seconds()):
            self._log.put(line)


class Entry:
    """One request; a `tower.web.access.audit_formats.Question`.

    :ivar header: the line with which the API server is told the ID; empty if the user did that.
    """

    __slots__ = (
        "_answer",
        "_audit",
        "_over",
        "address",
        "agent",
        "claimed",
        "cluster",
        "credential",
        "groups",
        "header",
        "id",
        "method",
        "received",
        "relative",
        "upgrades",
        "uri",
        "user",
    )

    def __init__(self, audit: Audit, request: Request, cluster: str) -> None:
        self._audit = audit
        self._answer = _UNANSWERED
        self._over = False
        identity: Any = request.identity
        fields, channel = request.fields, request.channel
        self.received = audit.seconds()
        self.method = request.method
        self.uri = self.relative = request.target
        self.cluster = cluster
        if cluster:
            prefix = b"/clusters/%b/" % cluster.encode()
            if self.uri.startswith(prefix):
                self.relative = self.uri[len(prefix) - 1 :]
        self.user = identity.user or ANONYMOUS
        self.groups: tuple[str, ...] = tuple(identity.groups) if identity.user else (UNAUTHENTICATED,)
        credential = getattr(identity, "credential", None)
        self.credential: str = "" if credential is None else credential.id
        self.address = channel.peer.address
        self.agent = fields.get(b"user-agent") or b""
        self.claimed = (
            (fields.get(b"impersonate-user"), fields.get(b"impersonate-group"))
            if fields.foreign
            else (None, None)
        )
        self.upgrades = bool(fields.upgrade)
        given = fields.get(b"audit-id")
        if given is not None and GIVEN_ID.fullmatch(given):
            self.id, self.header = given.decode("ascii"), b""
        else:
            self.id = audit.new_id()
            self.header = b"Audit-Id: %b\r\n" % self.id.encode()

    def answered(self, answer: ResponseRecord) -> None:
        """Note that the status is sent; only the first time counts."""
        if self._answer is _UNANSWERED:
            self._answer = answer
            self._audit.answered(self, answer)

    def ended(self) -> None:
        """Note that the answer is complete, or that its user has gone; only the first time counts."""
        if not self._over:
            self._over = True
            self._audit.ended(self, self._answer)
