"""Validation of roles and bindings, with kube-apiserver's rules and texts, after its defaults are set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tower.escaping import quoted
from tower.kube.access.field_problems import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldProblem,
    field_problem,
    unsupported_value,
)
from tower.kube.access.go_texts import quoted_list
from tower.kube.access.rbac import GROUP, Rule

_SUBDOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_LIMIT = 253
_SET_OPERATORS, _KEY_OPERATORS = ("In", "NotIn"), ("Exists", "DoesNotExist")


def with_defaults(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a binding with the API groups that its role and its subjects have by default."""
    subjects = list(map(_with_group, value.get("subjects") or ()))
    role = {**(value.get("roleRef") or {})}
    role["apiGroup"] = role.get("apiGroup") or GROUP
    return {**value, "roleRef": role, "subjects": subjects}


def _with_group(subject: Mapping[str, Any]) -> dict[str, Any]:
    group = subject.get("apiGroup") or ("" if subject.get("kind") == "ServiceAccount" else GROUP)
    others = {key: part for key, part in subject.items() if key != "apiGroup"}
    return {**others, "apiGroup": group} if group else others


def problems_of_role(value: Mapping[str, Any]) -> list[FieldProblem]:
    """Return the problems of a ClusterRole, or of a Role, which has a namespace."""
    is_namespaced = value.get("kind") == "Role"
    found = list(_name("metadata.name", (value.get("metadata") or {}).get("name") or ""))
    for number, each in enumerate(value.get("rules") or ()):
        found += _rule(f"rules[{number}]", Rule.of(each), is_namespaced=is_namespaced)
    aggregation = value.get("aggregationRule")
    if aggregation is not None and not is_namespaced:
        found += _aggregation(aggregation.get("clusterRoleSelectors") or ())
    return found


def problems_of_binding(value: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[FieldProblem]:
    """Return the problems of a binding that `with_defaults` has returned, and of a change from *old*."""
    is_namespaced = value.get("kind") == "RoleBinding"
    role = value["roleRef"]
    found = list(_name("metadata.name", (value.get("metadata") or {}).get("name") or ""))
    if role["apiGroup"] != GROUP:
        found.append(unsupported_value("roleRef.apiGroup", quoted(role["apiGroup"]), GROUP))
    kinds = ("Role", "ClusterRole") if is_namespaced else ("ClusterRole",)
    if role.get("kind", "") not in kinds:
        found.append(unsupported_value("roleRef.kind", quoted(role.get("kind", "")), *kinds))
    if name := role.get("name"):
        found += _name("roleRef.name", name)
    else:
        found.append(field_problem("roleRef.name", REQUIRED, ""))
    for number, each in enumerate(value.get("subjects") or ()):
        found += _subject(f"subjects[{number}]", each, is_namespaced=is_namespaced)
    if old is not None and old.get("roleRef") != role:
        found.append(field_problem("roleRef", INVALID, "cannot change roleRef", _in_go(role)))
    return found


def _in_go(role: Mapping[str, Any]) -> str:
    """Return a reference to a role as kube-apiserver's errors show it."""
    shown = {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)


def escalation_text(
    user: str, groups: Iterable[str], missing: Iterable[Rule], errors: Iterable[str] = ()
) -> str:
    """Return why a user cannot grant the rights *missing*; *errors* are those of the user's own roles."""
    rights = "\n".join(sorted({str(each) for each in missing}))
    text = (
        f"user {quoted(user)} (groups={quoted_list(groups)}) is attempting to grant RBAC permissions not "
        f"currently held:\n{rights}"
    )
    failed = list(errors)
    return f"{text}; resolution errors: [{' '.join(failed)}]" if failed else text


def _name(field: str, name: str) -> Iterator[FieldProblem]:
    if not name:
        yield field_problem(field, REQUIRED, "name or generateName is required")
        return
    if name in (".", ".."):
        yield field_problem(field, INVALID, f"may not be '{name}'", quoted(name))
        return
    for wrong in ("/", "%"):
        if wrong in name:
            yield field_problem(field, INVALID, f"may not contain '{wrong}'", quoted(name))


def _rule(field: str, rule: Rule, *, is_namespaced: bool) -> Iterator[FieldProblem]:
    if not rule.verbs:
        yield field_problem(f"{field}.verbs", REQUIRED, "verbs must contain at least one value")
    if rule.urls:
        urls = json.dumps(list(rule.urls), separators=(",", ":"))
        if is_namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            yield field_problem(f"{field}.nonResourceURLs", INVALID, text, urls)
        if rule.api_groups or rule.resources or rule.resource_names:
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield field_problem(f"{field}.nonResourceURLs", INVALID, text, urls)
        return
    if not rule.api_groups:
        yield field_problem(
            f"{field}.apiGroups", REQUIRED, "resource rules must supply at least one api group"
        )
    if not rule.resources:
        yield field_problem(
            f"{field}.resources", REQUIRED, "resource rules must supply at least one resource"
        )


def _aggregation(selectors: Iterable[Mapping[str, Any]]) -> Iterator[FieldProblem]:
    field = "aggregationRule.clusterRoleSelectors"
    count = 0
    for number, selector in enumerate(selectors):
        count += 1
        found: list[FieldProblem] = []
        for index, each in enumerate(selector.get("matchExpressions") or ()):
            found += _requirement(f"{field}[{number}].matchExpressions[{index}]", each)
        yield from found
        if found:
            yield field_problem(f"{field}[{number}]", INVALID, "invalid label selector.", "null")
    if not count:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield field_problem(field, REQUIRED, text)


def _requirement(field: str, value: Mapping[str, Any]) -> Iterator[FieldProblem]:
    operator, values = value.get("operator", ""), value.get("values") or ()
    if operator in _SET_OPERATORS and not values:
        text = "must be specified when `operator` is 'In' or 'NotIn'"
        yield field_problem(f"{field}.values", REQUIRED, text)
    elif operator in _KEY_OPERATORS and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield field_problem(f"{field}.values", FORBIDDEN, text)
    elif operator not in (*_SET_OPERATORS, *_KEY_OPERATORS):
        yield field_problem(f"{field}.operator", INVALID, "not a valid selector operator", quoted(operator))


def _subject(field: str, value: Mapping[str, Any], *, is_namespaced: bool) -> Iterator[FieldProblem]:
    kind, name, group = value.get("kind", ""), value.get("name", ""), value.get("apiGroup", "")
    if not name:
        yield field_problem(f"{field}.name", REQUIRED, "")
    if kind == "ServiceAccount":
        if name:
            yield from _account(f"{field}.name", name)
        if group:
            yield unsupported_value(f"{field}.apiGroup", quoted(group), "")
        if not is_namespaced and not value.get("namespace"):
            yield field_problem(f"{field}.namespace", REQUIRED, "")
    elif kind in ("User", "Group"):
        if group != GROUP:
            yield unsupported_value(f"{field}.apiGroup", quoted(group), GROUP)
    else:
        yield unsupported_value(f"{field}.kind", quoted(kind), "ServiceAccount", "User", "Group")


def _account(field: str, name: str) -> Iterator[FieldProblem]:
    if len(name) > _SUBDOMAIN_LIMIT:
        text = f"must be no more than {_SUBDOMAIN_LIMIT} characters"
        yield field_problem(field, INVALID, text, quoted(name))
    if not re.fullmatch(_SUBDOMAIN, name):
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
            f"validation is '{_SUBDOMAIN}')"
        )
        yield field_problem(field, INVALID, text, quoted(name))
