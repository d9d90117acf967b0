"""Bodies of requests and answers as JSON for audit events, and those that events do not contain."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from tower.escaping import json_text
from tower.kube.access.protobuf import PROTOBUF, read_protobuf
from tower.kube.audit.policy import AuditDecision
from tower.kube.request_info import RequestInfo
from tower.kube.status import StatusError

#: Largest decoded body, B.
DECODED_LIMIT = 1024 * 1024

#: Resources whose bodies have secrets, those of all their subresources included: only a rule that names them
#: records these.
SECRET_RESOURCES = frozenset(
    {
        ("", "secrets"),
        ("", "configmaps"),
        ("", "serviceaccounts/token"),
        ("authentication.k8s.io", "tokenreviews"),
        ("oauth.openshift.io", "oauthaccesstokens"),
        ("oauth.openshift.io", "oauthauthorizetokens"),
    }
)

#: Tower's own resources whose answers have new credentials, or whose requests may have them, also those of
#: their subresources: never recorded.
CREDENTIAL_RESOURCES = frozenset(
    {
        ("cluster.kubesphere.io", "clusters"),
        ("cluster.kubesphere.io", "jointokens"),
        ("cluster.kubesphere.io", "kubeconfigs"),
    }
)

_UNRECORDED_VERBS = ("watch", "proxy", "connect")
_STREAMS = ("attach", "exec", "log", "portforward", "proxy")
_METADATA_LIMIT = 253


@frozen
class RecordedBody:
    """One body in an event.

    :ivar text: JSON, or empty.
    :ivar omitted: why there is none, or empty.
    :ivar metadata: of the object.
    """

    text: str = ""
    omitted: str = ""
    metadata: Mapping[str, str] = MappingProxyType({})


def are_recorded(decision: AuditDecision, info: RequestInfo) -> bool:
    """Return whether there can be bodies in the events of a request."""
    if not (decision.has_request and info.is_resource) or info.verb in _UNRECORDED_VERBS:
        return False
    return info.subresource not in _STREAMS


def withheld(decision: AuditDecision, info: RequestInfo) -> str:
    """Return the resource whose secrets keep the bodies out of the events, or empty."""
    whole = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    names = {(info.group, info.resource), (info.group, whole)}
    if not names.isdisjoint(CREDENTIAL_RESOURCES):
        return whole
    if not (decision.is_explicit or names.isdisjoint(SECRET_RESOURCES)):
        return whole
    return ""


def body_of(
    payload: bytes, media: str, encoding: str, *, omits_managed_fields: bool, is_own: bool = False
) -> RecordedBody:
    """Return the body that *payload* is; kubectl sends JSON as YAML, too.

    Other YAML takes a hundred times as long to read, or far longer, so it is left out.

    :param media: its media type, with parameters.
    :param encoding: its content coding, or empty.
    :param is_own: it is for Tower's own API, which reads some kinds in protobuf.
    """
    if not payload:
        return RecordedBody()
    kind = media.partition(";")[0].strip().lower()
    is_protobuf = is_own and kind == PROTOBUF
    if not (is_protobuf or kind.endswith(("json", "yaml")) or not kind):
        return RecordedBody(omitted=f"media type {kind[:_METADATA_LIMIT]}")
    decoded = payload if encoding in ("", "identity") else _decoded(payload, encoding)
    if decoded is None:
        return RecordedBody(omitted=f"content coding {encoding[:_METADATA_LIMIT]}")
    value = _protobuf(decoded) if is_protobuf else _value(decoded)
    if value is None:
        return RecordedBody(omitted=f"not an object in {'protobuf' if is_protobuf else 'JSON'}")
    if omits_managed_fields:
        _drop_managed_fields(value)
    try:
        text = json_text(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return RecordedBody(omitted="not an object in JSON")
    return RecordedBody(text, metadata=_metadata(value))


def _decoded(payload: bytes, encoding: str) -> bytes | None:
    if encoding != "gzip":
        return None
    inflation = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        decoded = inflation.decompress(payload, DECODED_LIMIT)
    except zlib.error:
        return None
    return decoded if inflation.eof else None


def _value(data: bytes) -> Any:
    try:
        value = json.loads(data, parse_constant=_reject)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _protobuf(data: bytes) -> dict[str, Any] | None:
    try:
        return read_protobuf(data)
    except StatusError:
        return None


def _reject(constant: str) -> None:
    raise ValueError(constant)


def _drop_managed_fields(value: Any) -> None:
    """Remove the managed fields of an object, of a list's items, or of the objects in a table's rows."""
    if not isinstance(value, dict):
        return
    objects = [value]
    for key in ("items", "rows"):
        each = value.get(key)
        objects += [one.get("object", one) if key == "rows" else one for one in _objects(each)]
    for one in _objects(objects):
        metadata = one.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)


def _objects(values: Any) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _metadata(value: Any) -> dict[str, str]:
    """Return the fields of an object's metadata that its reference has."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        return {}
    keys = ("namespace", "name", "uid", "resourceVersion")
    found = {key: metadata[key] for key in keys if isinstance(metadata.get(key), str)}
    return {key: text for key, text in found.items() if text and len(text) <= _METADATA_LIMIT}
