"""The levels of access that permit a request, by its destination."""

from __future__ import annotations

from functools import partial

from tower.clusters.policies.access_levels import (
    FULL,
    METHODS,
    STREAM_LEVELS,
    levels_of,
    levels_of_info,
    levels_of_target,
)
from tower.escaping import escaped, shortened
from tower.kube.request_info import RequestInfo, parse_request_info
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authorization.cluster_entry import Asked
from tower.web.gateway.request import Request
from tower.web.outcome import RawStream, Relay

#: Longest verb and object in an error, characters.
_SHOWN = 100


def asked_of(request: Request) -> Asked:
    """Return what a request wants to do at the destination that its router has set."""
    destination = request.destination
    if isinstance(destination, RawStream):
        return Asked(STREAM_LEVELS, destination.target)
    if destination is None:
        return Asked(FULL, "")  # the router will refuse it
    target = destination.target.partition("/")[0]
    return Asked(requested_levels(request, destination), target, partial(_action, request, destination))


def asked_about(info: RequestInfo) -> Asked:
    """Return what a request to the API server with this verb and object wants to do."""
    method = METHODS.get(info.verb)
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    action = f"{info.verb} {resource or info.path}"
    if method is None and info.is_resource:
        return Asked(FULL, KUBERNETES, lambda: action)  # a right without a request, such as impersonate
    levels = levels_of_info(info, method or info.verb.upper().encode())
    return Asked(levels, KUBERNETES, lambda: action)


def asked_by(method: bytes, target: bytes) -> Asked:
    """Return what a request to the API server wants to do; *target* is its path and query."""
    return Asked(levels_of(method, target), KUBERNETES, partial(_action_of, method, target))


def _action(request: Request, relay: Relay) -> str:
    """Return verb and object of *request*, for errors."""
    is_api = relay.target == KUBERNETES
    return _action_of(request.method, request.target[len(relay.prefix) :], is_api=is_api)


def _action_of(method: bytes, target: bytes, *, is_api: bool = True) -> str:
    info = parse_request_info(method, target)
    if not (is_api and info.is_resource):
        return shortened(escaped(f"{method.decode('ascii', 'replace')} {info.path}"), _SHOWN)
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    return shortened(escaped(f"{info.verb} {resource}"), _SHOWN)


def requested_levels(request: Request, relay: Relay) -> int:
    """Return the levels that permit *request*, which *relay* sends."""
    path, upgrade = request.target[len(relay.prefix) :], bool(request.fields.upgrade)
    if relay.target == KUBERNETES:
        return levels_of(request.method, path, upgrade=upgrade)
    return levels_of_target(relay.target.partition("/")[0], request.method, path, upgrade=upgrade)
