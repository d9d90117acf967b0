"""The resource `accessreviews`: whether access policies admit a user to a cluster, and why."""

from __future__ import annotations

from math import inf
from typing import Any

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Clusters
from tower.clusters.policies.access_levels import ALL_LEVELS, METHODS, levels_of_target
from tower.clusters.policies.policy_index import PolicyIndex
from tower.errors import Forbidden, Invalid
from tower.kube.request_info import RequestInfo
from tower.kube.timestamps import timestamp
from tower.options.values import format_duration
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_entry import Asked, ClusterEntry, grounds
from tower.web.access.authorization.decision import Decision
from tower.web.access.authorization.mode_filter import ModeAuthorization, user_of
from tower.web.access.authorization.requested import asked_about
from tower.web.api.calls.call import Call
from tower.web.api.objects import read_spec
from tower.web.outcome import Outcome, Response

_FIELDS = {
    "user",
    "groups",
    "claims",
    "cluster",
    "target",
    "verb",
    "group",
    "resource",
    "namespace",
    "name",
    "path",
}


@frozen(eq=False, repr=False)
class AccessReviewsApi:
    """The resource; it is only created.

    :param rules: of ``--authorization-mode``; None: they allow all requests.
    """

    _clusters: Clusters
    _index: PolicyIndex
    _clock: IReactorTime
    _rules: ModeAuthorization | None = None

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        spec = await read_spec(call, below, "AccessReview", _FIELDS)
        groups = _texts(spec, "groups")
        claims = spec.get("claims") or {}
        if not isinstance(claims, dict) or not all(isinstance(each, list) for each in claims.values()):
            raise Invalid("spec.claims: must be an object with lists of strings")
        extra = tuple((name, tuple(map(str, values))) for name, values in claims.items())
        user = Identity(_text(spec, "user", required=True), groups, extra=extra, method="review")
        cluster = self._clusters.require(_text(spec, "cluster", required=True))
        (asked, info), now = _asked(spec), self._clock.seconds()
        found = grounds(self._index, user, cluster, asked, now)
        status: dict[str, Any] = {
            "allowed": False,
            "policies": [policy.name for policy in found.permitting],
            "concerned": [
                {
                    "name": policy.name,
                    "access": policy.spec.access,
                    "targets": list(policy.spec.targets),
                    "open": policy in found.open,
                    **({"timeWindow": str(policy.spec.window)} if policy.spec.window else {}),
                    **({"ttl": format_duration(policy.spec.ttl)} if policy.spec.ttl else {}),
                }
                for policy in found.policies
            ],
        }
        if found.until < inf:
            status["until"] = timestamp(found.until)
        try:
            entered = ClusterEntry(self._index, self._clock.seconds).admit(user, cluster, cluster.name, asked)
        except Forbidden as e:
            status["reason"] = str(e)
        else:
            assert entered.entry is not None
            status |= {
                "allowed": True,
                "policies": list(entered.entry.policies),
                "user": entered.in_member.name,
                "groups": list(entered.in_member.groups),
            }
            if reason := await self._forbidden(user, info, cluster.name):
                status |= {"allowed": False, "reason": reason}
        answer = {"apiVersion": API_VERSION, "kind": "AccessReview", "metadata": {"creationTimestamp": None}}
        return Response.of_json({**answer, "spec": spec, "status": status}, 201)

    async def _forbidden(self, user: Identity, info: RequestInfo | None, cluster: str) -> str:
        """Return why the modes of authorization do not allow a request; empty: they do, or it has no verb."""
        if self._rules is None or info is None:
            return ""
        attributes = Attributes(user_of(user), info, cluster)
        answer = self._rules.decide(attributes)
        decision = answer if isinstance(answer, Decision) else await answer
        refusal = self._rules.refusal(decision, attributes)
        return "" if refusal is None else refusal.message


def _asked(spec: dict[str, Any]) -> tuple[Asked, RequestInfo | None]:
    """Return what the review is about: any request, unless it has a verb; and the one to the API server."""
    target, verb = _text(spec, "target") or KUBERNETES, _text(spec, "verb").lower()
    resource, path = _text(spec, "resource"), _text(spec, "path")
    if not verb:
        if resource or path:
            raise Invalid("spec.verb: required with resource or path, such as get")
        return Asked(ALL_LEVELS, target), None
    method = METHODS.get(verb)
    if target != KUBERNETES:
        if resource:
            raise Invalid("spec.resource: only the target kubernetes has resources: use path")
        levels = levels_of_target(target, method or b"POST", path.encode(), upgrade=False)
        return Asked(levels, target, lambda: f"{verb} {path}"), None
    name, _, subresource = resource.partition("/")
    info = RequestInfo(
        verb,
        path,
        _text(spec, "group"),
        "v1",
        _text(spec, "namespace"),
        name,
        subresource,
        _text(spec, "name"),
        is_resource=bool(resource),
    )
    return asked_about(info), info


def _text(spec: dict[str, Any], key: str, *, required: bool = False) -> str:
    value = spec.get(key) or ""
    if not isinstance(value, str) or (required and not value):
        raise Invalid(f"spec.{key}: {value!r}: must be a string{', and is required' if required else ''}")
    return value


def _texts(spec: dict[str, Any], key: str) -> tuple[str, ...]:
    value = spec.get(key) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Invalid(f"spec.{key}: must be a list of strings")
    return tuple(value)
