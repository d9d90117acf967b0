"""Formats of the audit log: events of current Kubernetes, or lines of kube-apiserver 1.5.

`JSONLines` writes an ``audit.k8s.io/v1`` Event of level Metadata for each stage of a request:
``RequestReceived`` before it has any effect, ``ResponseStarted`` for long-running requests (watch, exec,
port-forward), and ``ResponseComplete`` at the end.  `LegacyLines` writes one line for the request, with
``cluster`` at its end, and one for its answer.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tower.escaping import quoted as _quoted
from tower.kube.request_info import RequestInfo, parse_request_info
from tower.web.outcome import ResponseRecord

if TYPE_CHECKING:
    from tower.web.access.audit import Entry

#: Length to which a User-Agent is truncated, characters; as in kube-apiserver.
AGENT_LIMIT = 1024

#: Annotations of events.
CLUSTER = "cluster.kubesphere.io/name"
CREDENTIAL = "cluster.kubesphere.io/credential"
ROLE = "cluster.kubesphere.io/credential-role"
MEMBER_TOKEN = "cluster.kubesphere.io/member-token"  # noqa: S105 - only whether there is one

#: Role in the logs; others have none there.
TRUSTED_CALLER = "trusted-caller"

# Longer values are not cached, which bounds the cache's memory.
_LONGEST_CACHED = 256


class Format(Protocol):
    """A format; each method returns a line with its line feed, or nothing."""

    def received(self, entry: Entry) -> bytes:
        """Return the line for a new request."""

    def answered(self, entry: Entry, answer: ResponseRecord, now: float) -> bytes:
        """Return the line for the status of the answer."""

    def ended(self, entry: Entry, answer: ResponseRecord, now: float) -> bytes:
        """Return the line for the end of the answer, or of the connection."""


class JSONLines:
    """``audit.k8s.io/v1`` events."""

    def received(self, entry: Entry) -> bytes:
        """See `Format.received`."""
        return _event(entry, "RequestReceived", "", entry.received)

    def answered(self, entry: Entry, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.answered`."""
        if not (entry.upgrades or _request_line(entry).is_long):
            return b""
        return _event(entry, "ResponseStarted", _status(answer), now)

    def ended(self, entry: Entry, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.ended`."""
        return _event(entry, "ResponseComplete", _status(answer), now)


class LegacyLines:
    """Lines of kube-apiserver 1.5."""

    def received(self, entry: Entry) -> bytes:
        """See `Format.received`."""
        user, group = entry.impersonated
        groups = ",".join(map(_quoted, entry.groups)) or "<none>"
        as_user = "<self>" if user is None else _text(user)
        as_groups = "<lookup>" if group is None else _quoted(_text(group))
        namespace = parse_request_info(entry.method, entry.relative).namespace
        return (
            f"{moment(entry.received)} AUDIT: id={_quoted(entry.id)} ip={_quoted(entry.address)} "
            f"method={_quoted(entry.method.decode('ascii'))} user={_quoted(entry.user)} "
            f"groups={_quoted(groups)} as={_quoted(as_user)} asgroups={_quoted(as_groups)} "
            f"namespace={_quoted(namespace or '<none>')} "
            f"uri={_quoted(_text(entry.uri))} cluster={_quoted(entry.cluster or '<none>')}\n"
        ).encode("utf-8", "replace")

    def answered(self, entry: Entry, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.answered`."""
        return f'{moment(now)} AUDIT: id={_quoted(entry.id)} response="{answer.code}"\n'.encode()

    def ended(self, entry: Entry, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.ended`."""
        return b""


#: The values of ``--audit-log-format``.
FORMATS: dict[str, type[Format]] = {"json": JSONLines, "legacy": LegacyLines}


class _RequestLine(NamedTuple):
    """JSON fields made from a request line.

    :ivar fields: ``requestURI`` and ``verb``.
    :ivar object: ``objectRef``, or empty.
    :ivar is_long: whether the request is long-running.
    """

    fields: str
    object: str
    is_long: bool


def _event(entry: Entry, stage: str, status: str, now: float) -> bytes:
    line = _request_line(entry)
    begin = moment(entry.received)
    return (
        '{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",'
        f'"auditID":"{entry.id}","stage":"{stage}",{line.fields}'
        f'"user":{_user(entry.user, entry.groups)},{_impersonated(entry)}'
        f"{_sender(entry.address, entry.agent)}"
        f'{line.object}{status}"requestReceivedTimestamp":"{begin}",'
        f'"stageTimestamp":"{begin if now == entry.received else moment(now)}"'
        f"{_annotations(entry.cluster, entry.credential, *_caller(entry))}}}\n"
    ).encode("utf-8", "replace")


def _request_line(entry: Entry) -> _RequestLine:
    cacheable = len(entry.uri) <= _LONGEST_CACHED
    return (_parse if cacheable else _parse.__wrapped__)(entry.method, entry.uri, entry.relative)


@lru_cache(maxsize=1024)
def _parse(method: bytes, uri: bytes, relative: bytes) -> _RequestLine:
    info = parse_request_info(method, relative)
    fields = f'"requestURI":{_quoted(_text(uri))},"verb":{_quoted(info.verb)},'
    return _RequestLine(fields, _object(info), info.is_long_running)


def _object(info: RequestInfo) -> str:
    parts = {
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name,
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }
    fields = ",".join(f'"{name}":{_quoted(value)}' for name, value in parts.items() if value)
    return f'"objectRef":{{{fields}}},' if info.is_resource else ""


@lru_cache(maxsize=1024)
def _user(user: str, groups: tuple[str, ...]) -> str:
    member_of = f',"groups":[{",".join(map(_quoted, groups))}]' if groups else ""
    return f'{{"username":{_quoted(user)}{member_of}}}'


def _sender(address: str, agent: bytes) -> str:
    shown = _agent(agent) if len(agent) <= _LONGEST_CACHED else _agent.__wrapped__(agent)
    return f'"sourceIPs":["{address}"],{shown}'


@lru_cache(maxsize=1024)
def _agent(agent: bytes) -> str:
    text = _text(agent)
    if len(text) > AGENT_LIMIT:
        text = text[:AGENT_LIMIT] + "...TRUNCATED"
    return f'"userAgent":{_quoted(text)},' if text else ""


def _impersonated(entry: Entry) -> str:
    acting = entry.acting
    if acting is None or not acting.user:
        return ""
    return f'"impersonatedUser":{_user(acting.user, acting.groups)},'


def _caller(entry: Entry) -> tuple[str, str]:
    """Return the annotations about a trusted caller."""
    acting = entry.acting
    if acting is None:
        return "", ""
    return TRUSTED_CALLER if acting.is_caller else "", "true" if acting.by_token else ""


@lru_cache(maxsize=1024)
def _annotations(cluster: str, credential: str, role: str = "", by_token: str = "") -> str:
    parts = {CLUSTER: cluster, CREDENTIAL: credential, ROLE: role, MEMBER_TOKEN: by_token}
    fields = ",".join(f'"{name}":{_quoted(value)}' for name, value in parts.items() if value)
    return f',"annotations":{{{fields}}}' if fields else ""


def _status(answer: ResponseRecord) -> str:
    if answer.message:
        details = f'"status":"Failure","message":{_quoted(answer.message)},"reason":{_quoted(answer.reason)},'
        return f'"responseStatus":{{"metadata":{{}},{details}"code":{answer.code}}},'
    if not answer.code:
        return '"responseStatus":{"metadata":{},"status":"Failure","message":"client disconnected"},'
    return f'"responseStatus":{{"metadata":{{}},"code":{answer.code}}},'


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def moment(seconds: float) -> str:
    """Return *seconds* since the epoch as RFC 3339 in UTC, with microseconds."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1_000_000):06d}Z"
