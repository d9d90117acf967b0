"""RBAC: the roles and bindings of one source, by subject, and the authorizer that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeAlias

import attrs

from tower.escaping import quoted
from tower.kube.access.rbac import Binding, RbacRole, RoleReference, Rule, aggregated
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import ClusterScope
from tower.web.access.authorization.decision import NO_OPINION, Decision, Ruling

_Key: TypeAlias = "tuple[str, str]"


@attrs.frozen(slots=False)
class _Applied:
    """A binding, and the clusters that it is for."""

    binding: Binding
    is_own: bool = False

    @cached_property
    def scope(self) -> ClusterScope:
        return ClusterScope.of(self.binding.annotations, is_own=self.is_own)

    @cached_property
    def keys(self) -> tuple[_Key, ...]:
        namespace = self.binding.namespace
        found = dict.fromkeys(subject.key(namespace) for subject in self.binding.subjects)
        return tuple(key for key in found if key is not None)


class RbacIndex:
    """Roles and bindings, by namespace and name; those without a namespace have an empty one.

    :param aggregates: whether aggregated ClusterRoles are made here, not by a controller of the source.
    :param own_prefix: of the names of ClusterRoles for Tower's own API; empty: there are none.
    """

    def __init__(
        self,
        roles: Iterable[RbacRole] = (),
        bindings: Iterable[Binding] = (),
        *,
        aggregates: bool = True,
        own_prefix: str = "",
    ) -> None:
        self._aggregates = aggregates
        self._own_prefix = own_prefix
        self._roles: dict[_Key, RbacRole] = {}
        self._cluster_rules: dict[str, tuple[Rule, ...]] | None = None
        self._bindings: dict[_Key, _Applied] = {}
        self._by_subject: dict[str, dict[_Key, dict[str, _Applied]]] = {}  # by namespace, subject and name
        for role in roles:
            self.put_role(role)
        for binding in bindings:
            self.put_binding(binding)

    def put_role(self, role: RbacRole) -> bool:
        """Add a role, or replace it; return whether that is a change."""
        key = (role.namespace, role.name)
        if self._roles.get(key) == role:
            return False
        self._roles[key] = role
        if not role.namespace:
            self._cluster_rules = None
        return True

    def remove_role(self, namespace: str, name: str) -> bool:
        """Remove a role; return whether there was one."""
        if not namespace:
            self._cluster_rules = None
        return self._roles.pop((namespace, name), None) is not None

    def put_binding(self, binding: Binding) -> bool:
        """Add a binding, or replace it; return whether that is a change."""
        key = (binding.namespace, binding.name)
        before = self._bindings.get(key)
        if before is not None:
            if before.binding == binding:
                return False
            self.remove_binding(*key)
        self._bindings[key] = applied = _Applied(binding, self._is_own(binding.role))
        for subject in applied.keys:
            here = self._by_subject.setdefault(binding.namespace, {})
            here.setdefault(subject, {})[binding.name] = applied
        return True

    def remove_binding(self, namespace: str, name: str) -> bool:
        """Remove a binding; return whether there was one."""
        applied = self._bindings.pop((namespace, name), None)
        if applied is None:
            return False
        for subject in applied.keys:
            here = self._by_subject[namespace]
            del here[subject][name]
            if not here[subject]:
                del here[subject]
            if not here:
                del self._by_subject[namespace]
        return True

    def _rules_of_cluster_role(self, name: str) -> tuple[Rule, ...] | None:
        if not self._aggregates:
            role = self._roles.get(("", name))
            return None if role is None else role.rules
        if self._cluster_rules is None:
            self._cluster_rules = aggregated(role for role in self._roles.values() if not role.namespace)
        return self._cluster_rules.get(name)

    def rules_of(self, role: RoleReference, namespace: str) -> tuple[Rule, ...] | str:
        """Return the rules of the role of a binding in *namespace*, or the error that there is none."""
        if role.kind == "ClusterRole":
            found = self._rules_of_cluster_role(role.name)
            kind = "clusterrole"
        elif role.kind == "Role":
            own = self._roles.get((namespace, role.name)) if namespace else None
            found = None if own is None else own.rules
            kind = "role"
        else:
            return f"unsupported role reference kind: {quoted(role.kind)}"
        return f"{kind}.rbac.authorization.k8s.io {quoted(role.name)} not found" if found is None else found

    def grants(
        self, user: UserInfo, namespace: str, cluster: str
    ) -> Iterator[tuple[Binding, tuple[Rule, ...] | str]]:
        """Yield the bindings that concern a user, in upstream's order, with the rules that they grant.

        An error instead of rules means that the role does not exist.
        """
        for applied in self._applied(user, namespace):
            if applied.scope.includes(cluster):
                yield applied.binding, self._rules(applied)

    def _rules(self, applied: _Applied) -> tuple[Rule, ...] | str:
        return self.rules_of(applied.binding.role, applied.binding.namespace)

    def _applied(self, user: UserInfo, namespace: str) -> Iterator[_Applied]:
        """Yield the same for all clusters."""
        keys = [("User", user.name), *(("Group", group) for group in user.groups)]
        for place in ("", namespace) if namespace else ("",):
            here = self._by_subject.get(place)
            if here is None:
                continue
            found: dict[str, _Applied] = {}
            for key in keys:
                if key in here:
                    found |= here[key]
            yield from (applied for _, applied in sorted(found.items()))

    def rules_for(self, user: UserInfo, namespace: str, cluster: str) -> tuple[list[Rule], list[str]]:
        """Return all rules that concern a user in a namespace, and the errors."""
        rules: list[Rule] = []
        errors: list[str] = []
        for _, granted in self.grants(user, namespace, cluster):
            if isinstance(granted, str):
                errors.append(granted)
            else:
                rules += granted
        return rules, errors

    def rules_held(
        self, user: UserInfo, namespace: str, scope: ClusterScope | None
    ) -> tuple[list[Rule], list[str]]:
        """Return the rules that concern a user in a namespace in all of *scope*, and the errors.

        :param scope: None: rules in any cluster count.
        """
        rules: list[Rule] = []
        errors: list[str] = []
        for applied in self._applied(user, namespace):
            if scope is not None and not applied.scope.covers(scope):
                continue
            granted = self._rules(applied)
            if isinstance(granted, str):
                errors.append(granted)
            else:
                rules += granted
        return rules, errors

    def scope_of(self, binding: Binding) -> ClusterScope:
        """Return where a binding would apply."""
        applied = self._bindings.get((binding.namespace, binding.name))
        if applied is not None and applied.binding == binding:
            return applied.scope
        return ClusterScope.of(binding.annotations, is_own=self._is_own(binding.role))

    def _is_own(self, role: RoleReference) -> bool:
        prefix = self._own_prefix
        return bool(prefix) and role.kind == "ClusterRole" and role.name.startswith(prefix)

    def uses_of(self, role: RbacRole) -> list[tuple[str, ClusterScope]]:
        """Return namespace and scope of each binding whose rules include those of *role*."""
        names = {role.name}
        if not role.namespace:
            waiting = [role]
            while waiting:
                found = waiting.pop()
                for each in self._roles.values():
                    if not each.namespace and each.name not in names and each.includes(found):
                        names.add(each.name)
                        waiting.append(each)
        kind = "Role" if role.namespace else "ClusterRole"
        return [
            (applied.binding.namespace, applied.scope)
            for applied in self._bindings.values()
            if applied.binding.role.kind == kind
            and applied.binding.role.name in names
            and role.namespace in ("", applied.binding.namespace)
        ]

    def authorize(self, attributes: Attributes) -> Decision:
        """Return the decision on a request."""
        user, info = attributes.user, attributes.request
        errors: list[str] = []
        checked: set[RoleReference] = set()
        for binding, rules in self.grants(user, info.namespace, attributes.cluster):
            if isinstance(rules, str):
                errors.append(rules)
                continue
            if binding.role in checked:
                continue
            checked.add(binding.role)
            if any(rule.allows(info) for rule in rules):
                subject = binding.subject_of(user.name, user.groups)
                assert subject is not None
                return Decision(Ruling.ALLOW, f"RBAC: allowed by {binding.described(subject)}")
        if not errors:
            return NO_OPINION
        distinct = list(dict.fromkeys(errors))
        text = f"[{', '.join(distinct)}]" if len(distinct) > 1 else distinct[0]
        return Decision(Ruling.NO_OPINION, f"RBAC: {text}")
