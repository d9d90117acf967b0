"""Verb and resource of a request to a Kubernetes API server, by the rules of kube-apiserver's RequestInfo."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

_VERBS = {
    b"POST": "create",
    b"GET": "get",
    b"HEAD": "get",
    b"PUT": "update",
    b"PATCH": "patch",
    b"DELETE": "delete",
}
_SPECIAL_VERBS = ("watch", "proxy")
_DISCOVERY = re.compile(
    rb"/(?:api(?:/[^/?]+)?|apis(?:/[^/?]+){0,2}|openapi(?:/[^?]*)?|swagger-2\.0\.0\.pb-v1|version)/?(?:\?|\Z)"
)
_LONG_SUBRESOURCES = ("attach", "exec", "proxy", "log", "portforward")


class RequestInfo(NamedTuple):
    """Verb and object of a request.

    :ivar verb: ``get``, ``list``, ``watch``, ``create``, ...; without a resource, the method in lower case.
    :ivar path: decoded.
    :ivar group: of the API; empty for the core group.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""

    @property
    def is_resource(self) -> bool:
        """Whether the request concerns an API object; otherwise only `verb` and `path` are set."""
        return bool(self.resource)

    @property
    def is_long_running(self) -> bool:
        """Whether the answer may legitimately take for ever, or never begin."""
        if not self.is_resource:
            return False
        return self.verb in _SPECIAL_VERBS or self.subresource in _LONG_SUBRESOURCES


def parse_request_info(method: bytes, target: bytes) -> RequestInfo:
    """Return verb and object of a request with *method* and *target*, the API server's path and query."""
    raw_path, _, query = target.partition(b"?")
    path = unquote(raw_path.decode("ascii", "replace"))
    plain = RequestInfo(method.decode("ascii", "replace").lower(), path)
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return plain
    if parts[0] == "api":
        group, version, parts = "", parts[1], parts[2:]
    elif len(parts) < 4:
        return plain
    else:
        group, version, parts = parts[1], parts[2], parts[3:]
    verb = _VERBS.get(method, "")
    if parts[0] in _SPECIAL_VERBS:
        if len(parts) < 2:
            return plain
        verb, parts = parts[0], parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in ("status", "finalize"):
            parts = parts[2:]
    resource = parts[0]
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 and verb != "proxy" else ""
    if not name and verb == "get":
        verb = "watch" if _is_watch(query) else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(verb, path, group, version, namespace, resource, subresource, name)


def is_discovery(target: bytes, start: int = 0) -> bool:
    """Return whether a request for *target*, from index *start* on, is for discovery, OpenAPI or the version.

    Clients do not show the text of a Status that answers such a request.
    """
    return _DISCOVERY.match(target, start) is not None


def _is_watch(query: bytes) -> bool:
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name == b"watch":
            return value not in (b"", b"0", b"false")
    return False
