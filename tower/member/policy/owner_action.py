"""Kinds of requests to the API server, as the owner's rules distinguish them.  Sans-IO."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from tower.clusters.policies.access_levels import ALL_LEVELS, FULL, READ_ONLY, levels_of
from tower.escaping import shortened
from tower.kube.request_info import is_discovery, parse_request_info

#: Longest target that is cached, B.
_LONGEST_CACHED = 256

#: Longest verb and object in an error, characters.
_SHOWN = 100

# Checks of the API server; the discovery of its types is as harmless.
_HEALTH = re.compile(rb"/(?:healthz|livez|readyz)(?:/[^?]*)?(?:\?|\Z)")
_READS = (b"GET", b"HEAD")


class OwnerAction(NamedTuple):
    """A kind of request.

    :ivar levels: the levels of access that permit it; see `tower.clusters.policies.access_levels`.
    :ivar namespace: that it concerns; empty: none, several, or unknown.
    :ivar is_general: it concerns no object: discovery, health, and reviews of the user's own identity and
        rights.  Rules for some namespaces permit it too.
    :ivar changed: namespace in which it may change something; unlike `namespace` also that of an ambiguous
        path, as the API server decodes it, and of a change of the namespace itself.
    """

    levels: int
    namespace: str = ""
    is_general: bool = False
    changed: str = ""

    @property
    def is_read(self) -> bool:
        """Whether it neither changes anything nor connects to a pod, service or node."""
        return bool(self.levels & READ_ONLY)


def action_of(method: bytes, target: bytes, *, upgrade: bool) -> OwnerAction:
    """Return what a request does; *target* is the API server's path and query."""
    parse = _action if len(target) <= _LONGEST_CACHED else _action.__wrapped__
    return parse(method, target, upgrade)


@lru_cache(maxsize=4096)
def _action(method: bytes, target: bytes, upgrade: bool) -> OwnerAction:
    levels = levels_of(method, target, upgrade=upgrade)
    info = parse_request_info(method, target)
    if not info.is_resource:
        is_shown = is_discovery(target) or _HEALTH.match(target) is not None
        return OwnerAction(levels, is_general=is_shown and levels == ALL_LEVELS and method in _READS)
    is_read = bool(levels & READ_ONLY)
    if is_read and info.verb == "create":  # a review of the user's own rights
        return OwnerAction(levels, is_general=True)
    # An ambiguous path, or a change of the namespace itself, which a rule for its objects does not permit.
    changed = "" if is_read else info.namespace
    if levels == FULL or (info.resource == "namespaces" and not is_read):
        return OwnerAction(levels, changed=changed)
    return OwnerAction(levels, info.namespace, changed=changed)


def described(method: bytes, target: bytes) -> str:
    """Return verb, object and namespace of a request, for errors."""
    info = parse_request_info(method, target)
    if not info.is_resource:
        return shortened(f"{method.decode('ascii', 'replace')} {info.path}", _SHOWN)
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if info.group:
        resource = f"{resource}.{info.group}"
    where = f' in namespace "{info.namespace}"' if info.namespace else ""
    return shortened(f"{info.verb} {resource}{where}", _SHOWN)
