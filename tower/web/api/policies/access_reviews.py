"""The resource `accessreviews`: whether access policies admit a user to a cluster, and why."""

from __future__ import annotations

from math import inf
from typing import Any

from attrs import evolve, frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster, Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.policies.access_levels import ALL_LEVELS, METHODS, levels_of_target
from tower.clusters.policies.access_policy import AccessPolicy
from tower.clusters.policies.policy_index import PolicyIndex
from tower.clusters.policies.spec_fields import either, shown
from tower.errors import Forbidden, Invalid
from tower.kube.request_info import RequestInfo, parse_request_info
from tower.kube.timestamps import timestamp
from tower.options.values import format_duration
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import Identity, implied_groups
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_entry import Asked, ClusterEntry, grounds
from tower.web.access.authorization.decision import Decision
from tower.web.access.authorization.mode_filter import ModeAuthorization, is_command, user_of
from tower.web.access.authorization.requested import asked_about, asked_by
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


#: Maximum number of credentials in a response.
CREDENTIAL_LIMIT = 20

# Methods of requests with a path, by verb or by method in lower case.
_PATH_METHODS = {**METHODS, "head": b"HEAD", "options": b"OPTIONS", "post": b"POST", "put": b"PUT"}


@frozen(eq=False, repr=False)
class AccessReviewsApi:
    """The resource; it is only created.

    :param credentials: those that Tower issued; they need no policy.
    :param rules: of ``--authorization-mode``; None: they allow all requests.
    """

    _clusters: Clusters
    _credentials: Credentials
    _index: PolicyIndex
    _clock: IReactorTime
    _rules: ModeAuthorization | None = None

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        spec = await read_spec(call, below, "AccessReview", _FIELDS)
        user = _user(spec)
        cluster = self._clusters.require(_text(spec, "cluster", required=True))
        asked, info = _asked(spec)
        found = grounds(self._index, user, cluster, asked, self._clock.seconds())
        status: dict[str, Any] = {
            "allowed": False,
            "policies": [policy.name for policy in found.permitting],
            "concerned": [_concerned(policy, is_open=policy in found.open) for policy in found.policies],
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
        await self._add_credentials(status, user, info, cluster)
        answer = {"apiVersion": API_VERSION, "kind": "AccessReview", "metadata": {"creationTimestamp": None}}
        return Response.of_json({**answer, "spec": spec, "status": status}, 201)

    async def _add_credentials(
        self, status: dict[str, Any], user: Identity, info: RequestInfo | None, cluster: Cluster
    ) -> None:
        """Add the issued credentials with which the user enters; one may allow what policies do not."""
        now = self._clock.seconds()
        held = [
            each
            for each in self._credentials.list(cluster.name)
            if (each.user, each.cluster_uid) == (user.user, cluster.uid)
            and each.valid(now)
            and not each.is_trusted_caller
        ]
        status["credentials"] = []
        for credential in held[-CREDENTIAL_LIMIT:]:
            groups = list(credential.groups)
            holder = evolve(user, groups=credential.groups, extra=())
            reason = await self._forbidden(holder, info, cluster.name)
            status["credentials"].append(
                {
                    "name": credential.id,
                    "groups": groups,
                    "expirationTimestamp": timestamp(credential.expires),
                    "allowed": not reason,
                    **({"reason": reason} if reason else {}),
                }
            )
            if not (reason or status["allowed"]):
                status |= {"allowed": True, "policies": [], "user": credential.user, "groups": groups}
                status.pop("reason", None)
                status.pop("until", None)

    async def _forbidden(self, user: Identity, info: RequestInfo | None, cluster: str) -> str:
        """Return why the modes of authorization do not allow a request; empty: they do, or it has no verb."""
        if self._rules is None or info is None:
            return ""
        attributes = Attributes(user_of(user), info, cluster)
        answer = self._rules.decide(attributes)
        decision = answer if isinstance(answer, Decision) else await answer
        refusal = self._rules.refusal(decision, attributes)
        if refusal is not None:
            return refusal.message
        return await self._forbidden(user, info._replace(verb="create"), cluster) if is_command(info) else ""


def _user(spec: dict[str, Any]) -> Identity:
    """Return the user that a review is about, with the groups that the front door adds."""
    groups = _texts(spec, "groups")
    claims = spec.get("claims") or {}
    if not isinstance(claims, dict) or not all(isinstance(each, list) for each in claims.values()):
        raise Invalid("spec.claims: must be an object with lists of strings")
    extra = tuple((name, tuple(map(str, values))) for name, values in claims.items())
    name = _text(spec, "user", required=True)
    every = tuple(dict.fromkeys((*groups, *implied_groups(name))))
    return Identity(name, every, extra=extra, method="review")


def _concerned(policy: AccessPolicy, *, is_open: bool) -> dict[str, Any]:
    spec = policy.spec
    return {
        "name": policy.name,
        "access": spec.access,
        "targets": list(spec.targets),
        "open": is_open,
        **({"timeWindow": str(spec.window)} if spec.window else {}),
        **({"ttl": format_duration(spec.ttl)} if spec.ttl else {}),
    }


def _asked(spec: dict[str, Any]) -> tuple[Asked, RequestInfo | None]:
    """Return what the review is about: any request, unless it has a verb; and the one to the API server."""
    target, verb = _text(spec, "target") or KUBERNETES, _text(spec, "verb").lower()
    resource, path = _text(spec, "resource"), _text(spec, "path")
    if not verb:
        if resource or path:
            raise Invalid("spec.verb: required with resource or path, such as get")
        return Asked(ALL_LEVELS, target), None
    if bool(resource) is bool(path):
        raise Invalid(f"spec.verb: {shown(verb)}: requires either resource or path, such as pods or /metrics")
    if path and not path.startswith("/"):
        raise Invalid(f"spec.path: {shown(path)}: must begin with '/', such as /metrics")
    if target != KUBERNETES:
        if resource:
            raise Invalid("spec.resource: only the target kubernetes has resources: use path")
        method = METHODS.get(verb, b"POST")
        levels = levels_of_target(target, method, path.encode(), upgrade=False)
        return Asked(levels, target, lambda: f"{verb} {path}"), None
    if path:
        return _asked_at(verb, path)
    name, _, subresource = resource.partition("/")
    info = RequestInfo(
        verb,
        "",
        _text(spec, "group"),
        "v1",
        _text(spec, "namespace"),
        name,
        subresource,
        _text(spec, "name"),
        is_resource=True,
    )
    return asked_about(info), info


def _asked_at(verb: str, path: str) -> tuple[Asked, RequestInfo]:
    """Return what a review asks about a path at the API server, which may be the path of an object."""
    method = _PATH_METHODS.get(verb)
    if method is None:
        raise Invalid(f"spec.verb: {shown(verb)}: with a path, must be {either(_PATH_METHODS)}")
    target = path.encode()
    info = parse_request_info(method, target)
    if (verb, info.verb) == ("watch", "list"):
        info = info._replace(verb=verb)
    return asked_by(method, target), info


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
