"""Reviews of the user's own identity and rights: `kubectl auth whoami` and `kubectl auth can-i`.

All users of Tower's API are administrators, so they may do everything that it supports.
"""

from __future__ import annotations

from typing import Any

from tower.kube.status import StatusError
from tower.web.api import discovery
from tower.web.api.calls.call import Call, not_found
from tower.web.api.calls.media_types import PROTOBUF
from tower.web.outcome import Outcome, Response

_READ_PATHS = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi/*",
    "/readyz",
    "/version",
]


class ReviewsApi:
    """The resources of `authentication.k8s.io` and `authorization.k8s.io`: each is created only."""

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        _, group, version, *_ = call.segments
        found = discovery.group_version(group, version)
        assert found is not None
        resource = next((each for each in found.resources if (each.name,) == below), None)
        if resource is None:
            raise not_found()
        if call.method != "POST":
            raise StatusError(405, f"{call.method} is not supported on this path: use POST")
        value = await call.read(PROTOBUF)
        for key, right in (("apiVersion", found.name), ("kind", resource.kind)):
            if value.get(key, right) != right:
                raise StatusError(400, f"{key} {value[key]!r}: must be {right}")
        spec = value.get("spec") or {}
        if not isinstance(spec, dict):
            raise StatusError(422, "spec: must be an object")
        status = {
            "SelfSubjectReview": _identity,
            "SelfSubjectAccessReview": _access,
            "SelfSubjectRulesReview": _rules,
        }[resource.kind](call, spec)
        answer = {"kind": resource.kind, "apiVersion": found.name, "metadata": {"creationTimestamp": None}}
        return Response.of_json({**answer, "spec": spec, "status": status}, 201)


def _identity(call: Call, _spec: dict[str, Any]) -> dict[str, Any]:
    return {"userInfo": {"username": call.user, "groups": list(call.groups)}}


def _access(_call: Call, spec: dict[str, Any]) -> dict[str, Any]:
    """Return whether Tower's API supports the operation in *spec*."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(resource, dict) == isinstance(path, dict):
        raise StatusError(
            422, "spec: exactly one of resourceAttributes and nonResourceAttributes is required"
        )
    if isinstance(path, dict):
        return _verdict(path.get("verb") in ("get", "head", "*"), "only get is supported on such paths")
    assert isinstance(resource, dict)
    group, verb = resource.get("group", ""), resource.get("verb", "")
    name = "/".join(part for part in (resource.get("resource"), resource.get("subresource")) if part)
    is_allowed = any(
        (verb == "*" or verb in each.verbs)
        for found in discovery.GROUP_VERSIONS
        if group in ("*", found.group)
        for each in found.resources
        if name in ("*", each.name)
    )
    return _verdict(is_allowed, "Tower's own API does not support this; clusters have their own API")


def _verdict(is_allowed: bool, reason: str) -> dict[str, Any]:
    return {"allowed": True} if is_allowed else {"allowed": False, "reason": reason}


def _rules(_call: Call, _spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "resourceRules": [
            {"verbs": list(each.verbs), "apiGroups": [found.group], "resources": [each.name]}
            for found in discovery.GROUP_VERSIONS
            for each in found.resources
        ],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": _READ_PATHS}],
        "incomplete": False,
    }
