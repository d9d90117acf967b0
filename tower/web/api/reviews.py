"""Reviews of the user's own identity and rights: `kubectl auth whoami` and `kubectl auth can-i`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tower.escaping import json_text, quoted
from tower.kube.access.field_problems import INVALID, REQUIRED, FieldProblem, check_problems, field_problem
from tower.kube.access.protobuf import PROTOBUF
from tower.kube.access.rbac import Rule
from tower.kube.request_info import RequestInfo
from tower.kube.status import StatusError
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import OWN
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api import discovery
from tower.web.api.calls.call import Call, not_found
from tower.web.outcome import Outcome, Response


class ReviewsApi:
    """The resources of `authentication.k8s.io` and `authorization.k8s.io`: each is created only."""

    def __init__(self, rights: OwnRights) -> None:
        self._rights = rights

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
        call.check_write_options()
        value = await call.read(PROTOBUF)
        for key, right in (("apiVersion", found.name), ("kind", resource.kind)):
            if value.get(key, right) != right:
                raise StatusError(400, f"{key} {value[key]!r}: must be {right}")
        spec = value.get("spec") or {}
        metadata = value.get("metadata") or {}
        for key, part in (("spec", spec), ("metadata", metadata)):
            if not isinstance(part, dict):
                raise StatusError(400, f"{key}: must be an object")
        status = {
            "SelfSubjectReview": _identity,
            "SelfSubjectAccessReview": self._access,
            "SelfSubjectRulesReview": self._rules,
        }[resource.kind](call, spec, metadata)
        answer = {"kind": resource.kind, "apiVersion": found.name, "metadata": {"creationTimestamp": None}}
        return Response.of_json({**answer, "spec": spec, "status": status}, 201)

    def _access(self, call: Call, spec: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        """Return whether Tower's API supports the operation in *spec*, and the user may do it."""
        info = requested(spec)
        problems = (*_selector_problems(spec.get(_RESOURCE) or {}), *_metadata_problems(metadata))
        check_problems(_REVIEWED, "", problems)
        if info.is_resource and not _is_supported(info):
            reason = "Tower's own API does not support this; clusters have their own API"
            return {"allowed": False, "reason": reason}
        if not info.is_resource and info.verb not in ("get", "head", "*"):
            return {"allowed": False, "reason": "only get is supported on such paths"}
        decision = self._rights.authorize(Attributes(call.as_user, info, OWN))
        status: dict[str, Any] = {"allowed": decision.is_allowed}
        return {**status, "reason": decision.reason} if decision.reason else status

    def _rules(self, call: Call, spec: dict[str, Any], _metadata: dict[str, Any]) -> dict[str, Any]:
        namespace = spec.get("namespace")
        if not isinstance(namespace, str) or not namespace:
            raise StatusError(400, "no namespace on request")
        user, errors = call.as_user, list[str]()
        if self._rights.is_privileged(user):
            rules = _supported()
        else:
            rules, errors = self._rights.rbac.index.rules_for(user, namespace, OWN)
        return rules_status(rules, errors)


def _identity(call: Call, _spec: dict[str, Any], _metadata: dict[str, Any]) -> dict[str, Any]:
    info: dict[str, Any] = {"username": call.user}
    if call.uid:
        info["uid"] = call.uid
    info["groups"] = list(call.as_user.groups)
    if call.extra:
        info["extra"] = {name: list(values) for name, values in call.extra}
    return {"userInfo": info}


def requested(spec: dict[str, Any]) -> RequestInfo:
    """Return the operation that the *spec* of an access review names.

    :raise StatusError: it is invalid.
    """
    for key in (_RESOURCE, _PATH):
        if not isinstance(spec.get(key), dict | None):
            raise StatusError(400, f"spec.{key}: must be an object")
    resource, path = spec.get(_RESOURCE), spec.get(_PATH)
    check_problems(_REVIEWED, "", _attribute_problems(resource, path))
    given: dict[str, Any] = resource or path or {}
    if wrong := [key for key, part in given.items() if key in _TEXTS and not isinstance(part, str | None)]:
        raise StatusError(400, f"spec: {wrong[0]}: must be a string")
    texts = {key: given.get(key) or "" for key in _TEXTS}
    if path is not None:
        return RequestInfo(texts["verb"], texts["path"])
    return RequestInfo(
        texts["verb"],
        "",
        texts["group"],
        texts["version"],
        texts["namespace"],
        texts["resource"],
        texts["subresource"],
        texts["name"],
        is_resource=True,
    )


_TEXTS = ("verb", "path", "group", "version", "namespace", "resource", "subresource", "name")

_RESOURCE, _PATH = "resourceAttributes", "nonResourceAttributes"

# The kind in kube-apiserver's errors about access reviews.
_REVIEWED = ".authorization.k8s.io"


def _attribute_problems(resource: Any, path: Any) -> Iterator[FieldProblem]:
    if resource is None and path is None:
        text = f"exactly one of {_PATH} or {_RESOURCE} must be specified"
        yield field_problem(f"spec.{_RESOURCE}", INVALID, text, "null")
    elif resource is not None and path is not None:
        given = {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
        text = f"cannot be specified in combination with {_RESOURCE}"
        yield field_problem(f"spec.{_PATH}", INVALID, text, json_text(given, separators=(",", ":")))


def _selector_problems(resource: dict[str, Any]) -> Iterator[FieldProblem]:
    for name in ("fieldSelector", "labelSelector"):
        selector, field = resource.get(name), f"spec.{_RESOURCE}.{name}"
        if selector is None:
            continue
        raw = selector.get("rawSelector") if isinstance(selector, dict) else selector
        if not isinstance(selector, dict) or not isinstance(raw, str | None):
            raise StatusError(400, f"{field}: must be an object; its rawSelector is a string")
        if raw and selector.get("requirements"):
            text = "may not specified at the same time as requirements"
            yield field_problem(f"{field}.rawSelector", INVALID, text, quoted(raw))
        elif not raw and not selector.get("requirements"):
            text = f"when {field} is specified, requirements or rawSelector is required"
            yield field_problem(f"{field}.requirements", REQUIRED, text)


def _metadata_problems(metadata: dict[str, Any]) -> Iterator[FieldProblem]:
    given = {key: part for key, part in metadata.items() if part and key not in _DROPPED}
    if given:
        yield field_problem("metadata", INVALID, "must be empty", json_text(given, separators=(",", ":")))


#: Metadata that an access review may have, as in kube-apiserver.
_DROPPED = ("managedFields", "namespace")


def _supported() -> list[Rule]:
    """Return a rule for each resource of the API, and one for other paths."""
    rules = [
        Rule(each.verbs, (found.group,), (each.name,))
        for found in discovery.GROUP_VERSIONS
        for each in found.resources
    ]
    return [*rules, Rule(("get",), urls=("*",))]


def _is_supported(info: RequestInfo) -> bool:
    name = "/".join(part for part in (info.resource, info.subresource) if part)
    return any(
        info.verb in ("*", *each.verbs, *_FURTHER_VERBS)
        for found in discovery.GROUP_VERSIONS
        if info.group in ("*", found.group)
        for each in found.resources
        if name in ("*", each.name)
    ) or (info.verb == "impersonate")


#: Verbs of rights that no request has.
_FURTHER_VERBS = ("bind", "escalate")


def rules_status(rules: Iterable[Rule], errors: Iterable[str]) -> dict[str, Any]:
    """Return the status of a rules review."""
    found = [rule.as_object() for rule in rules]
    status: dict[str, Any] = {
        "resourceRules": [each for each in found if "nonResourceURLs" not in each],
        "nonResourceRules": [each for each in found if "nonResourceURLs" in each],
        "incomplete": False,
    }
    if text := ", ".join(errors):
        status["evaluationError"] = text
    return status
