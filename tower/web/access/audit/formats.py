"""Formats of the audit log: events of current Kubernetes, or lines of kube-apiserver 1.5.

`event_of` makes an ``audit.k8s.io/v1`` Event of a stage of a request: ``RequestReceived`` before it has any
effect, ``ResponseStarted`` for long-running requests (watch, exec, port-forward), and ``ResponseComplete`` at
the end, which has the bodies.  `legacy_line` makes one line for the request, with ``cluster`` at its end, and
one for its answer.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tower.escaping import json_text, quoted
from tower.kube.audit.bodies import RecordedBody
from tower.kube.audit.policy import COMPLETE, RECEIVED
from tower.kube.system_identities import all_groups
from tower.web.access.audit.request_line import LONGEST_KEPT, object_reference, text_of
from tower.web.access.authentication.identity import Extra
from tower.web.access.trusted_callers import Acting
from tower.web.outcome import ResponseRecord

if TYPE_CHECKING:
    from tower.web.access.audit.entry import Entry
    from tower.web.access.audit.request_entry import RequestEntry

#: The values of ``--audit-log-format``.
LEGACY: Final = "legacy"
JSON: Final = "json"
FORMATS: Final = (LEGACY, JSON)

#: Length to which a User-Agent is truncated, characters; as in kube-apiserver.
AGENT_LIMIT: Final = 1024

#: Annotations of events.
GROUP: Final = "cluster.kubesphere.io"
CLUSTER: Final = f"{GROUP}/name"
CREDENTIAL: Final = f"{GROUP}/credential"
ROLE: Final = f"{GROUP}/credential-role"
MEMBER_TOKEN: Final = f"{GROUP}/member-token"
POLICIES: Final = f"{GROUP}/access-policies"
DECISION: Final = "authorization.k8s.io/decision"
REASON: Final = "authorization.k8s.io/reason"
MEMBER_USER: Final = f"{GROUP}/member-user"
MEMBER_GROUPS: Final = f"{GROUP}/member-groups"
BYTES_RECEIVED: Final = f"{GROUP}/bytes-received"
BYTES_SENT: Final = f"{GROUP}/bytes-sent"
REQUEST_BODY: Final = f"{GROUP}/request-body"
ANSWER_BODY: Final = f"{GROUP}/response-body"
TRUNCATED: Final = "audit.k8s.io/truncated"

#: Role in the logs; others have none there.
TRUSTED_CALLER: Final = "trusted-caller"

#: The beginning of each event.
EVENT_HEAD: Final = '{"kind":"Event","apiVersion":"audit.k8s.io/v1",'

# Formatting of numbers takes longer than finding their text.
_MICROSECONDS: Final = [b"%03dZ" % number for number in range(1000)]

_NO_BODY: Final = RecordedBody()


def event_of(entry: Entry, stage: str, answer: ResponseRecord, now: float, *, truncated: bool = False) -> str:
    """Return the event of a *stage*, with its line feed.

    :param truncated: leave the bodies out, and annotate it.
    """
    line = entry.line
    begin = moment(entry.received)
    recorded = entry.recorded
    head = entry.head or head_of(entry)
    reference, status, bodies, more = line.object, "", "", ""
    if stage != RECEIVED:
        status = status_of(entry, answer)
        if stage == COMPLETE and (recorded.has_request or entry.upgrades):
            reference, bodies, more = _end(entry, answer, truncated=truncated)
    return (
        f'{EVENT_HEAD}"level":"{recorded.level}",'
        f'"auditID":"{entry.id}","stage":"{stage}",{head}'
        f'{reference}{status}{bodies}"requestReceivedTimestamp":"{begin}",'
        f'"stageTimestamp":"{begin if now == entry.received else moment(now)}"'
        f"{annotations_of(entry, stage, more)}}}\n"
    )


def head_of(entry: Entry) -> str:
    """Return the fields of the events that do not change, and keep them."""
    head = entry.head = f"{entry.line.fields}{who_of(entry)}"
    return head


def who_of(entry: Entry) -> str:
    """Return the fields of the events that depend on user and client."""
    user = user_of(entry.user, entry.groups, entry.uid, entry.extra)
    return f'"user":{user},{impersonated_by(entry.acting)}{_sender(entry.address, entry.agent)}'


def legacy_line(entry: Entry, stage: str, answer: ResponseRecord, now: float) -> bytes:
    """Return the line of kube-apiserver 1.5 for a *stage*, or nothing."""
    if stage != RECEIVED:
        if stage != COMPLETE or not answer.code:
            return b""
        return f'{moment(now)} AUDIT: id={quoted(entry.id)} response="{answer.code}"\n'.encode()
    user, group = entry.impersonated
    groups = ",".join(map(quoted, entry.groups)) or "<none>"
    as_user = "<self>" if user is None else text_of(user)
    as_groups = "<lookup>" if group is None else quoted(text_of(group))
    return (
        f"{moment(entry.received)} AUDIT: id={quoted(entry.id)} ip={quoted(entry.address)} "
        f"method={quoted(entry.method.decode('ascii'))} user={quoted(entry.user)} "
        f"groups={quoted(groups)} as={quoted(as_user)} asgroups={quoted(as_groups)} "
        f"namespace={quoted(entry.line.info.namespace or '<none>')} "
        f"uri={quoted(text_of(entry.uri))} cluster={quoted(entry.cluster or '<none>')}\n"
    ).encode("utf-8", "replace")


def _end(entry: Entry, answer: ResponseRecord, *, truncated: bool) -> tuple[str, str, str]:
    """Return what only the last event has: ``objectRef``, bodies, and annotations as JSON fields."""
    notes: dict[str, str] = {}
    sent = entry.transferred
    if sent is not None:
        notes[BYTES_RECEIVED], notes[BYTES_SENT] = map(str, sent)
    if entry.withheld:
        notes[REQUEST_BODY] = notes[ANSWER_BODY] = f"withheld: {entry.withheld}"
        if not entry.recorded.has_response:
            del notes[ANSWER_BODY]
    asked = entry.request_body() if entry.records_bodies else _NO_BODY
    found = entry.answer_body() if entry.records_bodies else _NO_BODY
    for key, body in ((REQUEST_BODY, asked), (ANSWER_BODY, found)):
        if body.omitted:
            notes[key] = f"omitted: {body.omitted}"
    bodies = ""
    if truncated:
        notes[TRUNCATED] = "true"
    else:
        own = _own_status(answer) if entry.recorded.has_response and answer.message else ""
        if asked.text:
            bodies = f'"requestObject":{asked.text},'
        if found.text or own:
            bodies += f'"responseObject":{found.text or own},'
    reference = entry.line.object
    if asked.metadata:
        reference = object_reference(entry.line.info, asked.metadata)
    return reference, bodies, ",".join(f'"{key}":{quoted(value)}' for key, value in notes.items())


def _own_status(answer: ResponseRecord) -> str:
    return json_text(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": answer.message,
            "reason": answer.reason,
            "code": answer.code,
        },
        separators=(",", ":"),
    )


@lru_cache(maxsize=1024)
def user_of(user: str, groups: tuple[str, ...], uid: str = "", extra: Extra = ()) -> str:
    """Return a user as in events, in JSON."""
    identified = f',"uid":{quoted(uid)}' if uid else ""
    member_of = f',"groups":[{",".join(map(quoted, groups))}]' if groups else ""
    more = ",".join(f"{quoted(key)}:[{','.join(map(quoted, values))}]" for key, values in extra)
    known = f',"extra":{{{more}}}' if more else ""
    return f'{{"username":{quoted(user)}{identified}{member_of}{known}}}'


def _sender(address: str, agent: bytes) -> str:
    shown = _agent(agent) if len(agent) <= LONGEST_KEPT else _agent.__wrapped__(agent)
    return f'"sourceIPs":["{address}"],{shown}'


@lru_cache(maxsize=1024)
def _agent(agent: bytes) -> str:
    text = text_of(agent)
    if len(text) > AGENT_LIMIT:
        text = text[:AGENT_LIMIT] + "...TRUNCATED"
    return f'"userAgent":{quoted(text)},' if text else ""


def impersonated_by(acting: Acting | None) -> str:
    """Return ``impersonatedUser`` with its comma, in JSON; empty: there is none."""
    if acting is None or not acting.user:
        return ""
    groups = all_groups(acting.user, acting.groups)
    return f'"impersonatedUser":{user_of(acting.user, groups, acting.uid, acting.extra)},'


def _caller(entry: Entry) -> tuple[str, str]:
    """Return the annotations about a trusted caller."""
    acting = entry.acting
    if acting is None:
        return "", ""
    return TRUSTED_CALLER if acting.is_caller else "", "true" if acting.by_token else ""


def annotations_of(entry: Entry, stage: str, more: str = "") -> str:
    """Return the annotations of the event of a *stage*; *more* are further ones as JSON fields."""
    member, user, groups = entry.member, "", ""
    if member is not None:
        user, groups = member.name, ",".join(member.groups)
    role, by_token = _caller(entry)
    decision, reason = (entry.decision, entry.reason) if stage != RECEIVED else ("", "")
    fields = _annotation_fields(
        entry.cluster,
        entry.credential,
        role,
        by_token,
        entry.policies,
        user,
        groups,
        decision,
        reason,
    )
    if more:
        fields = f"{fields},{more}" if fields else more
    return f',"annotations":{{{fields}}}' if fields else ""


@lru_cache(maxsize=1024)
def _annotation_fields(
    cluster: str,
    credential: str,
    role: str,
    by_token: str,
    policies: str,
    user: str,
    groups: str,
    decision: str,
    reason: str,
) -> str:
    parts = {
        CLUSTER: cluster,
        CREDENTIAL: credential,
        ROLE: role,
        MEMBER_TOKEN: by_token,
        POLICIES: policies,
        MEMBER_USER: user,
        MEMBER_GROUPS: groups,
        DECISION: decision,
        REASON: reason,
    }
    return ",".join(f'"{name}":{quoted(value)}' for name, value in parts.items() if value)


def status_of(entry: RequestEntry, answer: ResponseRecord) -> str:
    """Return ``responseStatus``."""
    if answer.message:
        details = f'"status":"Failure","message":{quoted(answer.message)},"reason":{quoted(answer.reason)},'
        return f'"responseStatus":{{"metadata":{{}},{details}"code":{answer.code}}},'
    if entry.status:
        return f'"responseStatus":{entry.status},'
    if not answer.code:
        return '"responseStatus":{"metadata":{},"status":"Failure","message":"client disconnected"},'
    return f'"responseStatus":{{"metadata":{{}},"code":{answer.code}}},'


def moment(seconds: float) -> str:
    """Return *seconds* since the epoch as RFC 3339 in UTC, with microseconds."""
    return stamp(seconds).decode("ascii")


def stamp(seconds: float) -> bytes:
    """Return the same as `moment`, for joining with other bytes."""
    milliseconds, microseconds = divmod(int(seconds * 1_000_000), 1000)
    return _millisecond(milliseconds) + _MICROSECONDS[microseconds]


@lru_cache(maxsize=8)
def _millisecond(milliseconds: int) -> bytes:
    """Return the beginning of a moment, which many events of a batch share."""
    seconds, rest = divmod(milliseconds, 1000)
    return b"%b%03d" % (_second(seconds), rest)


@lru_cache(maxsize=4)
def _second(seconds: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(seconds)).encode("ascii")
