"""Verb and resource of a request to a Kubernetes API server, by the rules of kube-apiserver's RequestInfo."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

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
_AMBIGUOUS = re.compile(rb"(?i:%2f|%2e|%5c|%23|%25|%00)|[\\#]|//|/\.{1,2}(?:/|\Z)")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_TERMS = re.compile(r"(?:[^\\,]|\\.|\\\Z)+", re.DOTALL)
_OPERATOR = re.compile(r"!=|==|=")
_VALUE = re.compile(r"(?:[^\\,=]|\\[\\,=])*")
_ESCAPED = re.compile(r"\\([\\,=])")
_MOST_PAIRS = 10_000

#: Longest target that is cached, B, and number of the cached ones.
_LONGEST_CACHED = 256
_CACHED = 4096

_PROFILES = "/debug/pprof/"
_LONG_SUBRESOURCES = ("attach", "exec", "proxy", "log", "portforward")


class RequestInfo(NamedTuple):
    """Verb and object of a request.

    :ivar verb: ``get``, ``list``, ``watch``, ``create``, ...; without a resource, the method in lower case.
    :ivar path: decoded.
    :ivar group: of the API; empty for the core group.
    :ivar is_resource: whether the request concerns an API object; otherwise only `verb` and `path` are set.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    is_resource: bool = False

    @property
    def is_long_running(self) -> bool:
        """Whether the answer may legitimately take for ever, or never begin."""
        if not self.is_resource:
            return self.path.startswith(_PROFILES)
        return self.verb in _SPECIAL_VERBS or self.subresource in _LONG_SUBRESOURCES


def parse_request_info(method: bytes, target: bytes) -> RequestInfo:
    """Return verb and object of a request with *method* and *target*, the API server's path and query."""
    parse = _parsed if len(target) <= _LONGEST_CACHED else _parsed.__wrapped__
    return parse(method, target)


@lru_cache(maxsize=_CACHED)
def _parsed(method: bytes, target: bytes) -> RequestInfo:
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
        verb, name = _of_list(query) if query else ("list", "")
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(verb, path, group, version, namespace, resource, subresource, name, is_resource=True)


def is_ambiguous(path: bytes) -> bool:
    """Return whether an API server, or a proxy before it, might parse *path* differently."""
    return _AMBIGUOUS.search(path) is not None


def is_discovery(target: bytes, start: int = 0) -> bool:
    """Return whether a request for *target*, from index *start* on, is for discovery, OpenAPI or the version.

    Clients do not show the text of a Status that answers such a request.
    """
    return _DISCOVERY.match(target, start) is not None


def _of_list(query: bytes) -> tuple[str, str]:
    """Return the verb of a list or watch with this query, and the only name that it selects, or empty."""
    verb, selector = "", None
    pairs = query.split(b"&")
    if len(pairs) > _MOST_PAIRS:
        return "list", ""  # Go reads none of so many
    for pair in pairs:
        if b";" in pair or _BAD_ESCAPE.search(pair):
            continue  # Go omits such pairs
        raw_key, _, raw_value = pair.partition(b"=")
        key = unquote_plus(raw_key.decode("ascii", "replace"))
        if key == "watch" and not verb:
            value = unquote_plus(raw_value.decode("ascii", "replace"))
            verb = "list" if value == "0" or value.lower() == "false" else "watch"
        elif key == "fieldSelector" and selector is None:
            selector = unquote_plus(raw_value.decode("ascii", "replace"))
    return verb or "list", _selected_name(selector) if selector else ""


def _selected_name(selector: str) -> str:
    """Return the name that a field selector requires, or empty."""
    found = None
    for term in sorted(_TERMS.findall(selector)):
        if not term:
            continue
        split = _OPERATOR.search(term)
        if split is None or not _VALUE.fullmatch(value := term[split.end() :]):
            return ""
        if found is None and term[: split.start()] == "metadata.name" and split[0] != "!=":
            found = _ESCAPED.sub(r"\1", value)
    return "" if found in (None, ".", "..") or "/" in found or "%" in found else found
