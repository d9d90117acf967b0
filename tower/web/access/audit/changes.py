"""Events of changed records: access policies, roles and bindings, credentials, login sessions, join tokens,
clusters, agents' keys.

Each committed change is an event with the user whose request made it, or the proxy itself, and with digests
of the old and the new record, which prove the content later; the content itself may be secret.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.escaping import quoted
from tower.kube.access.rbac import GROUP as RBAC_GROUP
from tower.kube.audit.policy import COMPLETE, METADATA, NONE
from tower.kube.request_info import RequestInfo
from tower.kube.system_identities import all_groups
from tower.store import IStore
from tower.store.kinds import (
    ACCESS_POLICIES,
    AGENT_KEYS,
    CLUSTERS,
    CREDENTIALS,
    HOST_KEYS,
    JOIN_TOKENS,
    LOGIN_SESSIONS,
    MEMBER_ACCESS,
    RBAC_OBJECTS,
    REVOKED_KEYS,
    V1_TOKENS,
)
from tower.store.records import Event, Value, encode
from tower.store.store import Committed
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.formats import EVENT_HEAD, GROUP, impersonated_by, moment, user_of
from tower.web.access.audit.request_line import object_reference, text_of
from tower.web.access.authentication.identity import Identity
from tower.web.access.trusted_callers import acting
from tower.web.gateway.request import Request
from tower.web.request_id import new_request_id

#: The request that is being answered, as the author of changes.
AUTHOR: ContextVar[Request | None] = ContextVar("AUTHOR", default=None)

T = TypeVar("T")


def by_author(request: Request, answering: Coroutine[Deferred[T], Any, T]) -> Deferred[T]:
    """Return the result of *answering*; *request* is the author of its changes."""
    context = copy_context()
    context.run(AUTHOR.set, request)
    return context.run(Deferred.fromCoroutine, answering)


#: Author of changes without a request.
PROXY_USER = "tower:proxy"

#: Annotations: digests of the record before and after the change.
OLD_DIGEST = f"{GROUP}/old-digest"
NEW_DIGEST = f"{GROUP}/new-digest"

#: Annotation: ID of the request.
REQUEST = f"{GROUP}/request-id"

_VERSION = "v1alpha1"
_KINDS = frozenset(
    {
        ACCESS_POLICIES,
        AGENT_KEYS,
        CLUSTERS,
        CREDENTIALS,
        HOST_KEYS,
        JOIN_TOKENS,
        LOGIN_SESSIONS,
        MEMBER_ACCESS,
        RBAC_OBJECTS,
        REVOKED_KEYS,
        V1_TOKENS,
    }
)

# Keys of values with the state of a cluster, an agent or a session.
_STATES = frozenset({"conditions", "agent"})
_SESSION_STATES = frozenset({"confirmed", "sealed"})


class ChangeRecorder:
    """Writes an event to *audit* for each committed change in *store*."""

    _log = Logger()

    def __init__(self, audit: Audit, store: IStore) -> None:
        self._audit, self._store = audit, store

    def observe(self) -> Committed:
        """Return the function that writes the events of a transaction; the current author is its author."""
        return partial(self._committed, AUTHOR.get())

    def _committed(self, author: Request | None, events: Sequence[Event]) -> None:
        """Write the events of a transaction that is not in the snapshot yet."""
        changes: dict[tuple[str, str], Value | None] = {}
        for event in events:
            record = event.record
            if record.kind in _KINDS:
                changes[record.kind, record.name] = None if event.type == "DELETED" else record.value
        for (kind, name), new in changes.items():
            with self._log.failuresHandled(
                "cannot write the audit event of {kind} {name}", kind=kind, name=name
            ):
                before = self._store.get(kind, name)
                self._changed(author, kind, name, None if before is None else before.value, new)

    def _changed(
        self, author: Request | None, kind: str, name: str, old: Value | None, new: Value | None
    ) -> None:
        digests = {OLD_DIGEST: _digest(kind, old), NEW_DIGEST: _digest(kind, new)}
        if digests[OLD_DIGEST] == digests[NEW_DIGEST]:
            return
        verb = "create" if old is None else "delete" if new is None else "update"
        info = change_of(verb, kind, name)
        identity = None if author is None else author.identity
        sender = identity.sender if isinstance(identity, Identity) else identity
        user: str = PROXY_USER if sender is None else sender.user
        groups = () if sender is None else all_groups(user, sender.groups)
        decision = self._audit.policy.decide(user, groups, info)
        if decision.level == NONE or COMPLETE in decision.omitted:
            return
        cluster = (new or old or {}).get("cluster", name if kind == CLUSTERS else "")
        request = "" if author is None else author.request_id
        annotations = {f"{GROUP}/name": cluster, REQUEST: request, **digests}
        now = moment(self._audit.seconds())
        uid, extra = getattr(sender, "uid", ""), getattr(sender, "extra", ())
        uri = info.path if author is None else text_of(author.target)
        more = ""
        if author is not None and identity is not None:
            more = impersonated_by(acting(identity, author.fields))
            more += f'"sourceIPs":["{author.channel.peer.address}"],'
        self._audit.put(change_event(info, uri, user_of(user, groups, uid, extra), annotations, now, more))


def change_event(
    info: RequestInfo, uri: str, user: str, annotations: Mapping[str, str], now: str, more: str = ""
) -> bytes:
    """Return the event of a change.

    :param info: the change, as a request for the object.
    :param user: the author, in JSON; *more* fields of the event, too, each with a comma at its end.
    :param annotations: those with a text are written.
    :param now: time of the change.
    """
    fields = ",".join(f'"{key}":{quoted(text)}' for key, text in annotations.items() if text)
    return (
        f'{EVENT_HEAD}"level":"{METADATA}",'
        f'"auditID":"{new_request_id()}",'
        f'"stage":"{COMPLETE}","requestURI":{quoted(uri)},'
        f'"verb":"{info.verb}","user":{user},{more}'
        f'{object_reference(info, {})}"responseStatus":{{"metadata":{{}},"code":200}},'
        f'"requestReceivedTimestamp":"{now}","stageTimestamp":"{now}","annotations":{{{fields}}}}}\n'
    ).encode("utf-8", "replace")


def change_of(verb: str, kind: str, name: str) -> RequestInfo:
    """Return the change of a record, as a request for the object that it is."""
    group, version, namespace = GROUP, _VERSION, ""
    if kind == RBAC_OBJECTS:
        group, version = RBAC_GROUP, "v1"
        kind, _, path = name.partition("/")
        namespace, _, name = path.rpartition("/")
    inside = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{group}/{version}/{inside}{kind}/{name}"
    return RequestInfo(verb, path, group, version, namespace, kind, "", name, is_resource=True)


def _digest(kind: str, value: Value | None) -> str:
    if value is None:
        return ""
    states = _SESSION_STATES if kind == LOGIN_SESSIONS else _STATES
    kept: dict[str, Any] = {key: each for key, each in value.items() if key not in states}
    return f"sha256:{sha256(encode(kept).encode()).hexdigest()}"
