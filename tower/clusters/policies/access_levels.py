"""Levels of access: classes of requests that access policies permit.

* ``read-only``: get, list and watch, without connections into pods, services and nodes;
* ``edit``: also changes inside namespaces, and connections into pods and services, but no changes of roles,
  quotas and namespaces, and no tokens of service accounts;
* ``no-exec``: everything but connections into pods, services and nodes, and debug containers;
* ``full``: everything.

Reviews of a user's own identity and rights have every level.  A set of levels is a number with a bit for
each, so that a request is compared with a policy by one operation.  Sans-IO.
"""

from __future__ import annotations

from functools import lru_cache

from tower.kube.request_info import RequestInfo, is_ambiguous, parse_request_info

FULL, EDIT, NO_EXEC, READ_ONLY = 1, 2, 4, 8

#: All levels.
ALL_LEVELS = FULL | EDIT | NO_EXEC | READ_ONLY

#: Levels by their names in policies.
LEVELS = {"full": FULL, "edit": EDIT, "no-exec": NO_EXEC, "read-only": READ_ONLY}

#: Kubernetes' verbs with the methods of their requests.
METHODS = {
    "get": b"GET",
    "list": b"GET",
    "watch": b"GET",
    "create": b"POST",
    "update": b"PUT",
    "patch": b"PATCH",
    "delete": b"DELETE",
    "deletecollection": b"DELETE",
}

#: Longest target that is cached, B.
_LONGEST_CACHED = 256

_CONNECTIONS = frozenset(("exec", "attach", "portforward", "proxy"))
_READS = frozenset(("get", "list", "watch"))

# Reviews of the user's own identity and rights, which change nothing.
_REVIEWS = frozenset(
    (
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    )
)

# Resources in namespaces that the role `edit` of Kubernetes does not change either.
_NOT_EDITED = frozenset(
    (
        ("", "bindings"),
        ("", "limitranges"),
        ("", "namespaces"),
        ("", "resourcequotas"),
    )
)
_RBAC = "rbac.authorization.k8s.io"
_EDITS = frozenset(("create", "update", "patch", "delete", "deletecollection"))

# Paths of kubelets that only show something.
_KUBELET_READS = frozenset(
    (
        b"configz",
        b"containerLogs",
        b"healthz",
        b"logs",
        b"metrics",
        b"pods",
        b"runningpods",
        b"spec",
        b"stats",
    )
)


def levels_of(method: bytes, target: bytes, *, upgrade: bool = False) -> int:
    """Return the levels that permit a request to an API server; *target* is the server's path and query.

    :param upgrade: whether it requests another protocol.
    """
    parse = _levels if len(target) <= _LONGEST_CACHED else _levels.__wrapped__
    return parse(method, target, upgrade)


def levels_of_target(name: str, method: bytes, path: bytes, *, upgrade: bool) -> int:
    """Return the levels that permit an HTTP request to another target, such as ``kubelet``.

    :param path: as the target sees it, with or without a query.
    """
    reads = method in (b"GET", b"HEAD", b"OPTIONS") and not upgrade and not is_ambiguous(path)
    if name == "kubelet":
        first = path.partition(b"?")[0].lstrip(b"/").partition(b"/")[0]
        return ALL_LEVELS if reads and first in _KUBELET_READS else FULL
    return ALL_LEVELS if reads else ALL_LEVELS & ~READ_ONLY


#: The levels that permit a raw stream: its bytes are not interpreted.
STREAM_LEVELS = ALL_LEVELS & ~READ_ONLY


@lru_cache(maxsize=4096)
def _levels(method: bytes, target: bytes, upgrade: bool) -> int:
    if is_ambiguous(target.partition(b"?")[0]):
        return FULL
    return levels_of_info(parse_request_info(method, target), method, upgrade=upgrade)


def levels_of_info(info: RequestInfo, method: bytes, *, upgrade: bool = False) -> int:
    """Return the levels that permit a request with this verb and object."""
    is_read = method in (b"GET", b"HEAD", b"OPTIONS")
    if not info.is_resource:
        if upgrade:
            return FULL
        return ALL_LEVELS if is_read else FULL | NO_EXEC
    connects = info.subresource in _CONNECTIONS or info.verb == "proxy"
    if connects or (upgrade and not (info.verb == "watch" or info.subresource == "log")):
        inside = info.namespace and info.verb != "proxy" and info.resource != "namespaces"
        return FULL | EDIT if inside else FULL
    if is_read:
        return ALL_LEVELS if info.verb in _READS or method == b"OPTIONS" else FULL
    if info.verb == "create" and (info.group, info.resource) in _REVIEWS and not info.subresource:
        return ALL_LEVELS
    levels = FULL | NO_EXEC
    if info.subresource == "ephemeralcontainers":
        levels &= ~NO_EXEC
    if _is_edit(info):
        levels |= EDIT
    return levels


def _is_edit(info: RequestInfo) -> bool:
    """Return whether a change is inside a namespace and one of the level ``edit``."""
    if not info.namespace or info.group == _RBAC or info.verb not in _EDITS:
        return False
    if (info.group, info.resource) in _NOT_EDITED:
        return False
    return (info.resource, info.subresource) != ("serviceaccounts", "token")
