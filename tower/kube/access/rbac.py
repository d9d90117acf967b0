"""Objects of RBAC: rules, roles and bindings, and the requests that they allow, as kube-apiserver decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attrs import field, frozen

from tower.escaping import quoted
from tower.kube.access.go_texts import quoted_list
from tower.kube.request_info import RequestInfo

#: The API group of the objects.
GROUP = "rbac.authorization.k8s.io"

#: Kinds of subjects.
USER, USER_GROUP, ACCOUNT = "User", "Group", "ServiceAccount"

#: Stands for all verbs, groups or resources in a rule.
ALL = "*"
_ACCOUNT_PREFIX = "system:serviceaccount:"


@frozen
class Rule:
    """One rule of a role; it concerns resources or other paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Rule:
        """Return the rule that an API object has."""
        keys = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return cls(*(tuple(value.get(key) or ()) for key in keys))

    def as_object(self) -> dict[str, list[str]]:
        """Return its form in an API object."""
        return {
            key: list(values)
            for key, values in (
                ("verbs", self.verbs),
                ("apiGroups", self.api_groups),
                ("resources", self.resources),
                ("resourceNames", self.resource_names),
                ("nonResourceURLs", self.urls),
            )
            if values
        }

    def allows(self, info: RequestInfo) -> bool:
        """Return whether it allows a request."""
        if not (ALL in self.verbs or info.verb in self.verbs):
            return False
        if not info.is_resource:
            return any(covers_url(url, info.path) for url in self.urls)
        if not (ALL in self.api_groups or info.group in self.api_groups):
            return False
        if self.resource_names and info.name not in self.resource_names:
            return False
        resource, subresource = info.resource, info.subresource
        if subresource:
            resource = f"{resource}/{subresource}"
        resources = self.resources
        return (
            ALL in resources
            or resource in resources
            or (bool(subresource) and f"*/{subresource}" in resources)
        )

    def __str__(self) -> str:
        parts = (
            ("APIGroups", self.api_groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.urls),
            ("ResourceNames", self.resource_names),
            ("Verbs", self.verbs),
        )
        shown = ", ".join(f"{name}:{quoted_list(values)}" for name, values in parts if values)
        return f"{{{shown}}}"


#: The rules of all rights.
ALL_RIGHTS = (Rule(("*",), ("*",), ("*",)), Rule(("*",), urls=("*",)))


def covers_url(pattern: str, url: str) -> bool:
    """Return whether the path *pattern* of a rule, perhaps with a final ``*``, includes *url*."""
    return pattern == url or (pattern.endswith("*") and url.startswith(pattern.rstrip("*")))


@frozen
class RbacSubject:
    """A user, group or service account of a binding; *namespace* is empty or that of the account."""

    kind: str
    name: str
    namespace: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> RbacSubject:
        """Return the subject that an API object has."""
        return cls(*(str(value.get(key) or "") for key in ("kind", "name", "namespace")))

    def key(self, namespace: str) -> tuple[str, str] | None:
        """Return its kind, as user or group, and its name; None: it stands for no user.

        :param namespace: of the binding.
        """
        if self.kind == ACCOUNT:
            home = self.namespace or namespace
            return (USER, f"{_ACCOUNT_PREFIX}{home}:{self.name}") if home else None
        return (self.kind, self.name) if self.kind in (USER, USER_GROUP) else None

    def described(self, namespace: str) -> str:
        """Return it as in reasons; see `key`."""
        if self.kind == ACCOUNT:
            return f"{self.kind} {quoted(f'{self.name}/{self.namespace or namespace}')}"
        return f"{self.kind} {quoted(self.name)}"


@frozen
class RoleReference:
    """The role that a binding grants."""

    kind: str
    name: str


@frozen
class Binding:
    """A ClusterRoleBinding, or a RoleBinding of *namespace*.

    :ivar annotations: of the object.
    """

    name: str
    role: RoleReference
    subjects: tuple[RbacSubject, ...] = ()
    namespace: str = ""
    annotations: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Binding:
        """Return the binding that an API object is."""
        meta, role = value.get("metadata") or {}, value.get("roleRef") or {}
        return cls(
            str(meta.get("name", "")),
            RoleReference(str(role.get("kind", "")), str(role.get("name", ""))),
            tuple(RbacSubject.of(each) for each in value.get("subjects") or ()),
            str(meta.get("namespace") or ""),
            dict(meta.get("annotations") or {}),
        )

    def subject_of(self, user: str, groups: Collection[str]) -> RbacSubject | None:
        """Return the first subject that the user is, or None."""
        for each in self.subjects:
            key = each.key(self.namespace)
            if key is not None and (key[1] == user if key[0] == USER else key[1] in groups):
                return each
        return None

    def described(self, subject: RbacSubject) -> str:
        """Return it as in reasons, with the *subject* that it is applied to."""
        kind, name = ("RoleBinding", f"{self.name}/{self.namespace}") if self.namespace else ("", self.name)
        return (
            f"{kind or 'ClusterRoleBinding'} {quoted(name)} of {self.role.kind} {quoted(self.role.name)} "
            f"to {subject.described(self.namespace)}"
        )


@frozen
class RbacRole:
    """A ClusterRole, or a Role of *namespace*.

    :ivar selectors: label selectors of the roles that it consists of, if any; then its own rules are ignored.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    namespace: str = ""
    labels: Mapping[str, str] = field(factory=dict)
    selectors: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> RbacRole:
        """Return the role that an API object is."""
        meta, aggregation = value.get("metadata") or {}, value.get("aggregationRule") or {}
        return cls(
            str(meta.get("name", "")),
            tuple(Rule.of(each) for each in value.get("rules") or ()),
            str(meta.get("namespace") or ""),
            dict(meta.get("labels") or {}),
            tuple(aggregation.get("clusterRoleSelectors") or ()),
        )

    def includes(self, other: RbacRole) -> bool:
        """Return whether one of its selectors matches *other*."""
        return any(_selects(selector, other.labels) for selector in self.selectors)


def aggregated(roles: Iterable[RbacRole]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of ClusterRoles by name: their own, or those of the roles that their selectors match.

    As upstream's controller does, rules appear once, by the names of their roles.
    """
    ordered = sorted(roles, key=lambda one: one.name)
    below = {
        role.name: [each for each in ordered if each is not role and role.includes(each)]
        for role in ordered
        if role.selectors
    }
    rules = {role.name: role.rules for role in ordered if not role.selectors}

    def collect(name: str, found: dict[Rule, None], seen: set[str]) -> None:
        for each in below[name]:
            if each.name in rules:
                found.update(dict.fromkeys(rules[each.name]))
            elif each.name not in seen:
                seen.add(each.name)
                collect(each.name, found, seen)

    combined = {}
    for name in below:
        found: dict[Rule, None] = {}
        collect(name, found, {name})
        combined[name] = tuple(found)
    return rules | combined


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
