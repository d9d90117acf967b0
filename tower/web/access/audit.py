"""The audit log: each request's user, cluster and result.

An `Entry` accompanies a request from the moment its user is authenticated.  As in kube-apiserver, a request
that fails authentication (401) has no entry, and a forbidden one has.  The entry's ID is sent to the
cluster's API server, which writes the same ID to its own audit log.
"""

from __future__ import annotations

from collections.abc import Callable

from tower.store.audit_log import AuditLog
from tower.web.access.audit_formats import Format
from tower.web.access.trusted_callers import acting
from tower.web.gateway.request import Request
from tower.web.outcome import ResponseRecord

#: Kubernetes' names for the user and the group of a client on a port without authentication.
ANONYMOUS_USER = "system:anonymous"
UNAUTHENTICATED_GROUP = "system:unauthenticated"

_UNANSWERED = ResponseRecord(0)


class Audit:
    """Writes audit entries; *seconds* returns the time, s since the epoch."""

    def __init__(self, log: AuditLog, form: Format, seconds: Callable[[], float]) -> None:
        self._log = log
        self._form = form
        self.seconds = seconds

    def begin(self, request: Request, cluster: str) -> Entry:
        """Begin the entry of an authenticated request to *cluster* (empty: Tower's own API), and write it."""
        entry = Entry(self, request, cluster)
        self._log.put(self._form.received(entry))
        return entry

    def answered(self, entry: Entry, answer: ResponseRecord) -> None:
        """Write that the status was sent, if the format has a line for it."""
        if line := self._form.answered(entry, answer, self.seconds()):
            self._log.put(line)

    def ended(self, entry: Entry, answer: ResponseRecord) -> None:
        """Write that the request has ended, if the format has a line for it."""
        if line := self._form.ended(entry, answer, self.seconds()):
            self._log.put(line)


class Entry:
    """The audit entry of one request.

    :ivar id: the request's ID.
    :ivar received: s since the epoch.
    :ivar uri: path and query of the request.
    :ivar relative: the same below the cluster's prefix.
    :ivar credential: ID of the credential, or empty.
    :ivar cluster: empty for Tower's own API.
    :ivar address: the client's IP address.
    :ivar impersonated: requested user and group, None each if not requested.
    :ivar acting: the facts about a trusted caller's request; None: the user is another.
    :ivar upgrades: whether the request changes the protocol.
    """

    __slots__ = (
        "_answer",
        "_audit",
        "_over",
        "acting",
        "address",
        "agent",
        "cluster",
        "credential",
        "groups",
        "id",
        "impersonated",
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
        identity = request.identity
        assert identity is not None, "the router has not authenticated the request"
        fields, channel = request.fields, request.channel
        self.received = audit.seconds()
        self.method = request.method
        self.uri = self.relative = request.target
        self.cluster = cluster
        if cluster:
            prefix = b"/clusters/%b/" % cluster.encode()
            if self.uri.startswith(prefix):
                self.relative = self.uri[len(prefix) - 1 :]
        self.user = identity.user or ANONYMOUS_USER
        self.groups: tuple[str, ...] = identity.groups if identity.user else (UNAUTHENTICATED_GROUP,)
        self.credential = identity.session
        self.address = channel.peer.address
        self.agent = fields.get(b"user-agent") or b""
        self.impersonated = (
            (fields.get(b"impersonate-user"), fields.get(b"impersonate-group"))
            if fields.foreign
            else (None, None)
        )
        self.acting = acting(identity, fields)
        self.upgrades = bool(fields.upgrade)
        self.id = request.request_id

    def answered(self, answer: ResponseRecord) -> None:
        """Record that the status was sent; only the first call counts."""
        if self._answer is _UNANSWERED:
            self._answer = answer
            self._audit.answered(self, answer)

    def ended(self) -> None:
        """Record that the request has ended; only the first call counts."""
        if not self._over:
            self._over = True
            self._audit.ended(self, self._answer)
