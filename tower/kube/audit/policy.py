"""Decisions of an audit policy: which events of a request are recorded, and with which parts.

The first rule that matches a request decides, as in kube-apiserver; without one, nothing is recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import TypeAlias

from attrs import evolve, field, frozen

from tower.kube.request_info import RequestInfo

#: Levels; each includes those before.
NONE, METADATA, REQUEST, REQUEST_RESPONSE = LEVELS = ("None", "Metadata", "Request", "RequestResponse")

#: Stages of a request.
RECEIVED, STARTED, COMPLETE, PANIC = STAGES = (
    "RequestReceived",
    "ResponseStarted",
    "ResponseComplete",
    "Panic",
)

#: Most users, and most decisions for one user, that are kept.
KEPT_USERS = 1024
KEPT_DECISIONS = 1024

_DecisionKey: TypeAlias = tuple[str, ...]


@frozen
class AuditDecision:
    """Decision on the events of a request.

    :ivar omitted: stages without an event.
    :ivar is_explicit: whether a rule names the resource, so that its secrets may be recorded.
    """

    level: str = NONE
    omitted: frozenset[str] = frozenset()
    omits_managed_fields: bool = False
    is_explicit: bool = False

    @property
    def has_request(self) -> bool:
        """Whether the events contain the body of the request."""
        return self.level in (REQUEST, REQUEST_RESPONSE)

    @property
    def has_response(self) -> bool:
        """Whether the events contain the body of the answer."""
        return self.level == REQUEST_RESPONSE


@frozen
class GroupResources:
    """Resources of one API group; the group ``*`` matches all; none: all resources."""

    group: str = ""
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def matched(self, info: RequestInfo) -> str:
        """Return the entry that matches, ``*`` if there are none, or empty."""
        if self.group not in ("*", info.group):
            return ""
        if not self.resources:
            return "*"
        if self.names and info.name not in self.names:
            return ""
        whole = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        entries = [whole, f"{info.resource}/*", "*"]
        if info.subresource:
            entries.append(f"*/{info.subresource}")
        return next((each for each in entries if each in self.resources), "")


@frozen
class AuditRule:
    """One rule; empty collections match everything.

    :ivar paths: URLs of requests that concern no resource; a final ``*`` stands for any rest.
    """

    decision: AuditDecision
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    paths: tuple[str, ...] = ()

    def concerns(self, user: str, groups: Collection[str]) -> bool:
        """Return whether it applies to the user."""
        if self.users and user not in self.users:
            return False
        return not self.groups or not self.groups.isdisjoint(groups)

    def decide(self, info: RequestInfo) -> AuditDecision | None:
        """Return the decision about a request of such a user, or None."""
        if self.verbs and info.verb not in self.verbs:
            return None
        if self.namespaces or self.resources:
            return self._of_resource(info)
        if self.paths and (info.is_resource or not any(_covers(each, info.path) for each in self.paths)):
            return None
        return self.decision

    def _of_resource(self, info: RequestInfo) -> AuditDecision | None:
        if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
            return None
        if not self.resources:
            return self.decision
        matched = [entry for entry in (each.matched(info) for each in self.resources) if entry]
        if not matched:
            return None
        is_explicit = any(entry.partition("/")[0] == info.resource for entry in matched)
        return evolve(self.decision, is_explicit=True) if is_explicit else self.decision


def _covers(spec: str, path: str) -> bool:
    return spec in ("*", path) or (spec.endswith("*") and path.startswith(spec.rstrip("*")))


@frozen
class AuditPolicy:
    """The rules in their order; *default* is the decision if none matches."""

    rules: tuple[AuditRule, ...]
    default: AuditDecision = AuditDecision()


@frozen
class _UserRules:
    """The rules that concern one user, and the last decisions.

    :ivar has_names: whether a decision depends on the name of an object.
    :ivar has_paths: whether one depends on the path of a request without a resource.
    """

    rules: tuple[AuditRule, ...]
    default: AuditDecision
    has_names: bool
    has_paths: bool
    kept: dict[_DecisionKey, AuditDecision] = field(factory=dict)

    def decide(self, info: RequestInfo) -> AuditDecision:
        key: _DecisionKey
        if info.is_resource:
            key = (
                info.verb,
                info.group,
                info.resource,
                info.subresource,
                info.namespace,
                info.name if self.has_names else "",
            )
        else:
            key = (info.verb, info.path if self.has_paths else "")
        decision = self.kept.get(key)
        if decision is None:
            if len(self.kept) >= KEPT_DECISIONS:
                self.kept.clear()
            decision = self.kept[key] = self._search(info)
        return decision

    def _search(self, info: RequestInfo) -> AuditDecision:
        decisions = (rule.decide(info) for rule in self.rules)
        return next((each for each in decisions if each is not None), self.default)


class CompiledPolicy:
    """A policy that decides on a request with a few look-ups: decisions are kept for each user."""

    def __init__(self, policy: AuditPolicy) -> None:
        self._policy = policy
        self._users: OrderedDict[tuple[str, tuple[str, ...]], _UserRules] = OrderedDict()

    def decide(self, user: str, groups: tuple[str, ...], info: RequestInfo) -> AuditDecision:
        """Return what is recorded of a request."""
        rules = self._users.get((user, groups))
        return (rules or self._compile(user, groups)).decide(info)

    def _compile(self, user: str, groups: tuple[str, ...]) -> _UserRules:
        rules = tuple(rule for rule in self._policy.rules if rule.concerns(user, groups))
        compiled = _UserRules(
            rules,
            self._policy.default,
            any(each.names for rule in rules for each in rule.resources),
            any(rule.paths for rule in rules),
        )
        if len(self._users) >= KEPT_USERS:
            self._users.popitem(last=False)
        self._users[user, groups] = compiled
        return compiled


#: Used without a policy file: the metadata of all requests.
DEFAULT_POLICY = AuditPolicy((AuditRule(AuditDecision(METADATA)),))
