"""Reviews that users send to a cluster about their own rights: `kubectl auth can-i`.

A request needs the permission of the access policies, of the modes of authorization and of the cluster.  So
Tower answers that it is not allowed if one of its own rules forbids it; else the cluster answers.
"""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred

from tower.clusters.policies.access_levels import FULL, LEVELS
from tower.clusters.policies.permitted_rules import permitted_rules
from tower.errors import Forbidden, TowerError
from tower.kube.access.protobuf import PROTOBUF, read_protobuf
from tower.kube.access.rbac import ALL_RIGHTS, Rule
from tower.kube.request_info import RequestInfo
from tower.kube.status import StatusError
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_entry import ClusterEntry, FindCluster
from tower.web.access.authorization.decision import Decision
from tower.web.access.authorization.mode_filter import ModeAuthorization, user_of
from tower.web.access.authorization.requested import asked_about
from tower.web.api.calls.bodies import parse
from tower.web.api.calls.media_types import JSON, YAML
from tower.web.api.reviews import requested, rules_status
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Relay, Response

#: Longest body of a review, B.
LIMIT = 64 * 1024

_PATH = re.compile(
    rb"/apis/(authorization\.k8s\.io/v1(?:beta1)?)/selfsubject(access|rules)reviews/?(?:\?[^#]*)?"
)
_INCOMPLETE = (
    "these are the rules of Tower, without those of the cluster, which may allow less: "
    "'kubectl auth can-i VERB RESOURCE' considers both"
)


def is_review(request: Request, relay: Relay) -> bool:
    """Return whether a request may be such a review."""
    return request.method == b"POST" and b"/selfsubject" in request.target and relay.target == KUBERNETES


@frozen(eq=False, repr=False)
class DoorReviews:
    """Answers reviews.

    :param rules: of ``--authorization-mode``; None: they allow all requests.
    """

    _entry: ClusterEntry
    _find: FindCluster
    _rules: ModeAuthorization | None

    def __call__(self, request: Request, relay: Relay) -> Outcome | Deferred[Outcome]:
        """Return the answer to a review, which all filters have accepted; or *relay*."""
        match = _PATH.fullmatch(request.target[len(relay.prefix) :])
        identity = request.identity
        if match is None or not isinstance(identity, Identity):
            return relay
        entry = identity.sender.entry
        if self._rules is None and (entry is None or not entry.levels):
            return relay  # Tower forbids nothing
        return Deferred.fromCoroutine(
            self._answer(request, identity, relay, match[1].decode(), match[2].decode())
        )

    async def _answer(
        self, request: Request, identity: Identity, relay: Relay, version: str, kind: str
    ) -> Outcome:
        value = _read(request, await request.peek_body(LIMIT))
        spec = value.get("spec")
        if not isinstance(spec, dict):
            return relay  # the cluster has the text for it
        if kind == "rules":
            return _answered(
                version, "SelfSubjectRulesReview", spec, self._listed(identity, relay.cluster, spec)
            )
        try:
            info = requested(spec)
        except StatusError:
            return relay
        reason = await self._problem(identity, relay.cluster, info)
        if not reason:
            return relay
        return _answered(version, "SelfSubjectAccessReview", spec, {"allowed": False, "reason": reason})

    async def _problem(self, identity: Identity, name: str, info: RequestInfo) -> str:
        """Return why Tower forbids a request; empty: it does not."""
        sender = identity.sender
        if sender.entry is not None:
            try:
                self._entry.admit(sender.at_door, self._find(name), name, asked_about(info))
            except Forbidden as e:
                return str(e)
        if self._rules is None:
            return ""
        attributes = Attributes(user_of(identity), info, name)
        answer = self._rules.decide(attributes)
        decision = answer if isinstance(answer, Decision) else await answer
        return self._rules.explained(decision, attributes)

    def _listed(self, identity: Identity, cluster: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a rules review, which is incomplete."""
        namespace = spec.get("namespace")
        if not isinstance(namespace, str) or not namespace:
            raise StatusError(400, "no namespace on request")
        rules, errors = list(ALL_RIGHTS), list[str]()
        if self._rules is not None:
            rules, errors = self._rules.rules_for(user_of(identity), namespace, cluster)
        sender, found = identity.sender, self._find(cluster)
        if sender.entry is not None and sender.entry.levels and found is not None:
            levels = self._entry.levels(sender.at_door, found)
            rules = list(permitted_rules(rules, levels))
            if not levels & FULL:
                access = " and ".join(name for name, level in LEVELS.items() if levels & level)
                errors.append(f"access policies permit only {access} access")
        status = rules_status(_distinct(rules), [*errors, _INCOMPLETE])
        return {**status, "incomplete": True}


def _distinct(rules: list[Rule]) -> list[Rule]:
    return list(dict.fromkeys(rules))


def _read(request: Request, body: bytes) -> dict[str, Any]:
    """Return the object in the body; nothing: there is none that Tower can read."""
    media = (request.fields.get(b"content-type") or JSON.encode()).decode("latin-1")
    media = media.partition(";")[0].strip().lower()
    try:
        if media == PROTOBUF:
            value: Any = read_protobuf(body)
        elif media == JSON or media in YAML:
            value = parse(body, yaml=media in YAML)
        else:
            return {}
    except TowerError:
        return {}
    return value if isinstance(value, dict) else {}


def _answered(version: str, kind: str, spec: dict[str, Any], status: dict[str, Any]) -> Response:
    answer = {"kind": kind, "apiVersion": version, "metadata": {"creationTimestamp": None}}
    return Response.of_json({**answer, "spec": spec, "status": status}, 201)
