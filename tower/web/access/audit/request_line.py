"""The parts of audit events that depend on the request line alone; they are kept for equal requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tower.escaping import quoted
from tower.kube.request_info import RequestInfo, is_ambiguous, parse_request_info

# Longer values are not kept, which bounds the memory.
LONGEST_KEPT = 256


class RequestLine(NamedTuple):
    """Verb and object of a request.

    :ivar fields: ``requestURI`` and ``verb``, in JSON.
    :ivar object: ``objectRef`` in JSON, or empty.
    :ivar is_ambiguous: whether an API server may find a different object in the path.
    """

    info: RequestInfo
    fields: str
    object: str
    is_ambiguous: bool

    @property
    def is_long(self) -> bool:
        """Whether the request is long-running."""
        return self.info.is_long_running


def request_line(method: bytes, uri: bytes, relative: bytes) -> RequestLine:
    """Return the parts of a request for *uri*, which is *relative* in its cluster."""
    return (_parse if len(uri) <= LONGEST_KEPT else _parse.__wrapped__)(method, uri, relative)


def object_reference(info: RequestInfo, metadata: Mapping[str, str]) -> str:
    """Return ``objectRef`` in JSON, or empty; *metadata* of the object completes what the request omits."""
    if not info.is_resource:
        return ""
    parts = {
        "resource": info.resource,
        "namespace": info.namespace or metadata.get("namespace", ""),
        "name": info.name or metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "apiGroup": info.group,
        "apiVersion": info.version,
        "resourceVersion": metadata.get("resourceVersion", ""),
        "subresource": info.subresource,
    }
    fields = ",".join(f'"{name}":{quoted(value)}' for name, value in parts.items() if value)
    return f'"objectRef":{{{fields}}},'


def text_of(value: bytes) -> str:
    """Return *value*, which a client chose, as text."""
    return value.decode("utf-8", "backslashreplace")


@lru_cache(maxsize=1024)
def _parse(method: bytes, uri: bytes, relative: bytes) -> RequestLine:
    info = parse_request_info(method, relative)
    fields = f'"requestURI":{quoted(text_of(uri))},"verb":{quoted(info.verb)},'
    return RequestLine(info, fields, object_reference(info, {}), is_ambiguous(relative.partition(b"?")[0]))
