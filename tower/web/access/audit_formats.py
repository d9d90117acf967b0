"""How a line of the audit log looks: an event of today's Kubernetes, or as kube-apiserver 1.5 had it.

`JSONLines` writes an ``audit.k8s.io/v1`` Event of level Metadata for each stage of a request:
``RequestReceived`` before anything is done, ``ResponseStarted`` for what may take for ever (watch, exec,
port-forward), ``ResponseComplete`` at the end.  `LegacyLines` writes one line for the request and one for its
answer, with ``cluster`` at the end of the first.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import NamedTuple, Protocol

from tower.escaping import quoted as _quoted
from tower.kube.request_info import RequestInfo, parse_request_info

#: Longest User-Agent that is written whole, in characters; as kube-apiserver has it.
AGENT_LIMIT = 1024

#: Annotations of events.
CLUSTER = "cluster.kubesphere.io/name"
CREDENTIAL = "cluster.kubesphere.io/credential"

# Longer ones are not remembered: the memory that takes is bounded.
_LONGEST_KNOWN = 256


class ResponseRecord(NamedTuple):
    """How a request was answered.

    :ivar code: the HTTP status; 0: not at all, as the user had gone.
    :ivar reason: of a refusal of Tower's own.
    :ivar message: its text.
    """

    code: int
    reason: str = ""
    message: str = ""


class Question(Protocol):
    """What is known of a request; see `tower.web.access.audit.Entry`."""

    id: str
    received: float
    method: bytes
    uri: bytes
    relative: bytes
    user: str
    groups: tuple[str, ...]
    credential: str
    cluster: str
    address: str
    agent: bytes
    claimed: tuple[bytes | None, bytes | None]
    upgrades: bool


class Format(Protocol):
    """Writes the lines of one request, each with its line feed; empty where the format has none."""

    def received(self, question: Question) -> bytes:
        """Return what is written before anything is done."""

    def answered(self, question: Question, answer: ResponseRecord, now: float) -> bytes:
        """Return what is written when the status is sent."""

    def ended(self, question: Question, answer: ResponseRecord, now: float) -> bytes:
        """Return what is written when the answer is complete, or the user has gone."""


class JSONLines:
    """``audit.k8s.io/v1``."""

    def received(self, question: Question) -> bytes:
        """See `Format.received`."""
        return _event(question, "RequestReceived", "", question.received)

    def answered(self, question: Question, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.answered`."""
        if not (question.upgrades or _asked(question).is_long):
            return b""
        return _event(question, "ResponseStarted", _status(answer), now)

    def ended(self, question: Question, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.ended`."""
        return _event(question, "ResponseComplete", _status(answer), now)


class LegacyLines:
    """The format of kube-apiserver 1.5."""

    def received(self, question: Question) -> bytes:
        """See `Format.received`."""
        claimed_user, claimed_groups = question.claimed
        groups = ",".join(map(_quoted, question.groups)) or "<none>"
        as_user = "<self>" if claimed_user is None else _text(claimed_user)
        as_groups = "<lookup>" if claimed_groups is None else _quoted(_text(claimed_groups))
        namespace = parse_request_info(question.method, question.relative).namespace
        return (
            f"{_moment(question.received)} AUDIT: id={_quoted(question.id)} ip={_quoted(question.address)} "
            f"method={_quoted(question.method.decode('ascii'))} user={_quoted(question.user)} "
            f"groups={_quoted(groups)} as={_quoted(as_user)} asgroups={_quoted(as_groups)} "
            f"namespace={_quoted(namespace or '<none>')} "
            f"uri={_quoted(_text(question.uri))} cluster={_quoted(question.cluster or '<none>')}\n"
        ).encode("utf-8", "replace")

    def answered(self, question: Question, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.answered`."""
        return f'{_moment(now)} AUDIT: id={_quoted(question.id)} response="{answer.code}"\n'.encode()

    def ended(self, question: Question, answer: ResponseRecord, now: float) -> bytes:
        """See `Format.ended`."""
        return b""


#: By the name that ``--audit-log-format`` has for it.
FORMATS: dict[str, type[Format]] = {"json": JSONLines, "legacy": LegacyLines}


class _Asked(NamedTuple):
    """What a request line says, as JSON.

    :ivar fields: the first fields.
    :ivar object: the field ``objectRef``, if there is an object.
    :ivar is_long: the answer may take for ever.
    """

    fields: str
    object: str
    is_long: bool


def _event(question: Question, stage: str, status: str, now: float) -> bytes:
    asked = _asked(question)
    begin = _moment(question.received)
    return (
        '{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",'
        f'"auditID":"{question.id}","stage":"{stage}",{asked.fields}'
        f'"user":{_user(question.user, question.groups)},{_sender(question.address, question.agent)}'
        f'{asked.object}{status}"requestReceivedTimestamp":"{begin}",'
        f'"stageTimestamp":"{begin if now == question.received else _moment(now)}"'
        f"{_annotations(question.cluster, question.credential)}}}\n"
    ).encode("utf-8", "replace")


def _asked(question: Question) -> _Asked:
    known = len(question.uri) <= _LONGEST_KNOWN
    return (_read if known else _read.__wrapped__)(question.method, question.uri, question.relative)


@lru_cache(maxsize=1024)
def _read(method: bytes, uri: bytes, relative: bytes) -> _Asked:
    info = parse_request_info(method, relative)
    fields = f'"requestURI":{_quoted(_text(uri))},"verb":{_quoted(info.verb)},'
    return _Asked(fields, _object(info), info.is_long_running)


def _object(info: RequestInfo) -> str:
    parts = {
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name,
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }
    said = ",".join(f'"{name}":{_quoted(value)}' for name, value in parts.items() if value)
    return f'"objectRef":{{{said}}},' if info.is_resource else ""


@lru_cache(maxsize=1024)
def _user(user: str, groups: tuple[str, ...]) -> str:
    said = f',"groups":[{",".join(map(_quoted, groups))}]' if groups else ""
    return f'{{"username":{_quoted(user)}{said}}}'


def _sender(address: str, agent: bytes) -> str:
    shown = _agent(agent) if len(agent) <= _LONGEST_KNOWN else _agent.__wrapped__(agent)
    return f'"sourceIPs":["{address}"],{shown}'


@lru_cache(maxsize=1024)
def _agent(agent: bytes) -> str:
    text = _text(agent)
    if len(text) > AGENT_LIMIT:
        text = text[:AGENT_LIMIT] + "...TRUNCATED"
    return f'"userAgent":{_quoted(text)},' if text else ""


@lru_cache(maxsize=1024)
def _annotations(cluster: str, credential: str) -> str:
    parts = {CLUSTER: cluster, CREDENTIAL: credential}
    said = ",".join(f'"{name}":{_quoted(value)}' for name, value in parts.items() if value)
    return f',"annotations":{{{said}}}' if said else ""


def _status(answer: ResponseRecord) -> str:
    if answer.message:
        told = f'"status":"Failure","message":{_quoted(answer.message)},"reason":{_quoted(answer.reason)},'
        return f'"responseStatus":{{"metadata":{{}},{told}"code":{answer.code}}},'
    if not answer.code:
        return '"responseStatus":{"metadata":{},"status":"Failure","message":"the user has gone"},'
    return f'"responseStatus":{{"metadata":{{}},"code":{answer.code}}},'


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _moment(seconds: float) -> str:
    """Return RFC 3339 in UTC, with microseconds."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1_000_000):06d}Z"


#: What a request may name as its own audit ID.
GIVEN_ID = re.compile(rb"[0-9A-Za-z-]{1,64}")
