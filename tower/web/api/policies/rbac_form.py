"""The form of roles and bindings in Tower's own API, with kube-apiserver's checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from tower.clusters.policies.rbac_object import API_VERSION, RbacKind, RbacObject
from tower.clusters.policies.rbac_objects import RbacObjects
from tower.escaping import quoted, shortened
from tower.kube.access.field_problems import INVALID, check_problems, field_problem
from tower.kube.access.held_rights import COMPARISON_LIMIT, HeldRights
from tower.kube.access.rbac import ALL_RIGHTS, GROUP, Rule
from tower.kube.access.rbac_validation import (
    escalation_text,
    problems_of_binding,
    problems_of_role,
    with_defaults,
)
from tower.kube.request_info import RequestInfo
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import (
    ANNOTATION,
    ENTRIES,
    OWN,
    OWN_SCOPE,
    ClusterScope,
    wrong_entries,
)
from tower.web.access.authorization.own_rbac import OwnRbac, binding_of, role_of
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call
from tower.web.api.fields.other_kinds import OTHER_KINDS
from tower.web.api.fields.schema import pruned
from tower.web.api.policies.rbac_types import check_types
from tower.web.api.table import Object
from tower.web.api.writes.object_form import ObjectFacts

#: Most wrong entries of an annotation that an error has.
PROBLEM_LIMIT = 10


def show_rbac(item: RbacObject) -> Object:
    """Return the object."""
    value = item.as_value()
    value["metadata"] |= {
        "uid": item.uid,
        "resourceVersion": str(item.resource_version),
        "creationTimestamp": timestamp(item.created),
    }
    if item.managed:
        value["metadata"]["managedFields"] = list(item.managed)
    if not item.kind.is_binding:
        value.setdefault("rules", None)
    return value


@frozen(eq=False, repr=False)
class RbacForm:
    """See `tower.web.api.writes.object_form.ObjectForm`."""

    _kind: RbacKind
    _objects: RbacObjects
    _rbac: OwnRbac
    _rights: OwnRights

    @property
    def facts(self) -> ObjectFacts:
        """See `ObjectForm`."""
        kind = self._kind
        return ObjectFacts(
            API_VERSION,
            kind.name,
            kind.plural,
            GROUP,
            kind.name,
            kind.plural,
            kind.fields,
            OTHER_KINDS[kind.name],
            has_strategic=True,
        )

    def new(self, name: str, namespace: str, value: Mapping[str, Any]) -> RbacObject:
        """See `ObjectForm`."""
        self._validate(name, value, None)
        path = f"{namespace}/{name}" if namespace else name
        return self._objects.new(self._kind, path, self._body(value))

    def edited(self, old: RbacObject, value: Mapping[str, Any]) -> RbacObject:
        """See `ObjectForm`."""
        self._validate(old.own_name, value, old)
        return evolve(old, body=self._body(value))

    def with_parts(self, item: RbacObject, **parts: Any) -> RbacObject:
        """See `ObjectForm`."""
        return evolve(item, **parts)

    def settled(self, old: RbacObject, new: RbacObject) -> RbacObject:
        """See `ObjectForm`."""
        return new

    def body(self, item: RbacObject) -> dict[str, Any]:
        """See `ObjectForm`."""
        return dict(item.body)

    def show(self, item: RbacObject) -> Object:
        """See `ObjectForm`."""
        return show_rbac(item)

    def warnings(self, item: RbacObject) -> list[str]:
        """See `ObjectForm`."""
        return []

    async def preview(self, old: RbacObject | None, new: RbacObject | None) -> list[str]:
        """See `ObjectForm`."""
        return []

    def check(self, call: Call, old: RbacObject | None, new: RbacObject) -> None:
        """Check the clusters of a binding, and that the caller grants only rights that the caller has.

        :raise StatusError: 422, with the wrong entries; 403, with the missing rights.
        """
        if new.kind.is_binding and (old is None or old.annotations != new.annotations):
            _check_clusters(new)
        user = call.as_user
        if self._rights.is_privileged(user):
            return
        if new.kind.is_binding:
            self._check_binding(user, old, new)
        else:
            self._check_role(user, old, new)

    def _check_role(self, user: UserInfo, old: RbacObject | None, new: RbacObject) -> None:
        if old is not None and old.body == new.body and old.labels == new.labels:
            return
        if self._may(user, "escalate", new.kind.plural, new.namespace, new.own_name):
            return
        role = role_of(new)
        uses = self._rbac.index.uses_of(role)
        places: list[tuple[str, ClusterScope | None]] = [*uses] or [(new.namespace, None)]
        distinct = dict.fromkeys(places)
        for namespace, scope in distinct:
            held, errors = self._rbac.index.rules_held(user, namespace, scope)
            rights = HeldRights.of(held)
            if role.selectors and rights.missing(ALL_RIGHTS):
                raise _forbidden(new, "must have cluster-admin privileges to use the aggregationRule")
            _check_size(new, rights, role.rules, len(distinct))
            _check_rights(user, new, rights.missing(role.rules), scope, errors)

    def _check_binding(self, user: UserInfo, old: RbacObject | None, new: RbacObject) -> None:
        if old is not None and old.body == new.body and old.annotations == new.annotations:
            return
        binding = binding_of(new)
        kind = "roles" if binding.role.kind == "Role" else "clusterroles"
        if self._may(user, "bind", kind, new.namespace, binding.role.name):
            return
        rules = self._rbac.index.rules_of(binding.role, new.namespace)
        if isinstance(rules, str):
            plural, name = new.kind.plural, binding.role.name
            details = {"name": name, "group": GROUP, "kind": plural}
            raise StatusError(404, f"{plural}.{GROUP} {quoted(name)} not found", details=details)
        scope = self._rbac.index.scope_of(binding)
        held, errors = self._rbac.index.rules_held(user, new.namespace, scope)
        rights = HeldRights.of(held)
        _check_size(new, rights, rules)
        _check_rights(user, new, rights.missing(rules), scope, errors)

    def _may(self, user: UserInfo, verb: str, resource: str, namespace: str, name: str) -> bool:
        info = RequestInfo(verb, "", GROUP, "v1", namespace, resource, "", name, is_resource=True)
        return self._rights.allows(Attributes(user, info, OWN))

    def _body(self, value: Mapping[str, Any]) -> dict[str, Any]:
        if self._kind.is_binding:
            value = with_defaults(value)
        given = {key: value.get(key) for key in self._kind.fields}
        return {key: part for key, part in given.items() if part}

    def _validate(self, name: str, value: Mapping[str, Any], old: RbacObject | None) -> None:
        kind = self._kind
        fields = {key: value.get(key) for key in kind.fields if value.get(key) is not None}
        _, unknown = pruned(fields, OTHER_KINDS[kind.name])
        if unknown:
            listed = ", ".join(f'unknown field "{each}"' for each in unknown)
            raise StatusError(400, f"strict decoding error: {listed}")
        check_types(kind.name, fields)
        checked = {"kind": kind.name, "metadata": {"name": name}, **fields}
        if kind.is_binding:
            before = None if old is None else {"roleRef": old.body["roleRef"]}
            found = problems_of_binding(with_defaults(checked), before)
        else:
            found = problems_of_role(checked)
        check_problems(f"{kind.name}.{GROUP}", name, found)


def _check_clusters(item: RbacObject) -> None:
    field = f"metadata.annotations[{ANNOTATION}]"
    problems = [
        field_problem(field, INVALID, f"must be {ENTRIES}", quoted(shortened(each, 100)))
        for each in wrong_entries(item.annotations)[:PROBLEM_LIMIT]
    ]
    check_problems(f"{item.kind.name}.{GROUP}", item.own_name, problems)


def _forbidden(item: RbacObject, text: str) -> StatusError:
    return StatusError(
        403,
        f"{item.kind.plural}.{GROUP} {quoted(item.own_name)} is forbidden: {text}",
        details={"name": item.own_name, "group": GROUP, "kind": item.kind.plural},
    )


def _check_size(item: RbacObject, rights: HeldRights, granted: Sequence[Rule], places: int = 1) -> None:
    """Check that the rights can be compared in a short time.

    :param places: number of the comparisons: namespaces and clusters in which the rights are granted.
    """
    needed = rights.comparisons(granted) * places
    if needed > COMPARISON_LIMIT:
        raise StatusError(
            422,
            f"{item.kind.name}.{GROUP} {quoted(item.own_name)} is invalid: checking that you have these "
            f"rights needs {needed} comparisons of verbs, API groups, resources and names, and "
            f"{COMPARISON_LIMIT} are the limit: "
            "split the role into several ones, or ask a member of tower:admins",
        )


def _check_rights(
    user: UserInfo, item: RbacObject, missing: list[Rule], scope: ClusterScope | None, errors: list[str]
) -> None:
    if missing:
        text = escalation_text(user.name, user.groups, missing, errors)
        where = (
            "" if scope in (None, OWN_SCOPE) else "; the rights must be held in all clusters of the binding"
        )
        raise _forbidden(item, f"{text}{where}")
