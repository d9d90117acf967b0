"""Validation of roles and bindings, with kube-apiserver's rules and texts, after its defaults are set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from tower.escaping import quoted
from tower.kube.access.go_texts import quoted_list
from tower.kube.access.rbac import GROUP, Rule

_REQUIRED, _INVALID, _UNSUPPORTED, _FORBIDDEN = (
    ("FieldValueRequired", "Required value"),
    ("FieldValueInvalid", "Invalid value"),
    ("FieldValueNotSupported", "Unsupported value"),
    ("FieldValueForbidden", "Forbidden"),
)
_SUBDOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_LIMIT = 253
_SET_OPERATORS, _KEY_OPERATORS = ("In", "NotIn"), ("Exists", "DoesNotExist")


@frozen
class FieldProblem:
    """One problem of an object: the field's path, the reason of a cause, and the text."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"

    def as_cause(self) -> dict[str, str]:
        """Return its form in the details of a Status."""
        return {"reason": self.reason, "message": self.text, "field": self.field}


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
        found.append(_unsupported("roleRef.apiGroup", role["apiGroup"], GROUP))
    kinds = ("Role", "ClusterRole") if is_namespaced else ("ClusterRole",)
    if role.get("kind", "") not in kinds:
        found.append(_unsupported("roleRef.kind", role.get("kind", ""), *kinds))
    if name := role.get("name"):
        found += _name("roleRef.name", name)
    else:
        found.append(_problem("roleRef.name", _REQUIRED, ""))
    for number, each in enumerate(value.get("subjects") or ()):
        found += _subject(f"subjects[{number}]", each, is_namespaced=is_namespaced)
    if old is not None and old.get("roleRef") != role:
        found.append(_problem("roleRef", _INVALID, "cannot change roleRef", _in_go(role)))
    return found


def _in_go(role: Mapping[str, Any]) -> str:
    """Return a reference to a role as kube-apiserver's errors show it."""
    shown = {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)


def invalid_text(kind: str, name: str, problems: Iterable[FieldProblem]) -> str:
    """Return the message of the Status for an object with problems."""
    texts = list(dict.fromkeys(map(str, problems)))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f"{kind}.{GROUP} {quoted(name)} is invalid: {listed}"


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


def _problem(field: str, kind: tuple[str, str], detail: str, value: str | None = None) -> FieldProblem:
    reason, text = kind
    parts = (text, *(() if value is None else (value,)), *((detail,) if detail else ()))
    return FieldProblem(field, reason, ": ".join(parts))


def _unsupported(field: str, value: str, *supported: str) -> FieldProblem:
    names = ", ".join(map(quoted, supported))
    return _problem(field, _UNSUPPORTED, f"supported values: {names}", quoted(value))


def _name(field: str, name: str) -> Iterator[FieldProblem]:
    if not name:
        yield _problem(field, _REQUIRED, "name or generateName is required")
        return
    if name in (".", ".."):
        yield _problem(field, _INVALID, f"may not be '{name}'", quoted(name))
        return
    for wrong in ("/", "%"):
        if wrong in name:
            yield _problem(field, _INVALID, f"may not contain '{wrong}'", quoted(name))


def _rule(field: str, rule: Rule, *, is_namespaced: bool) -> Iterator[FieldProblem]:
    if not rule.verbs:
        yield _problem(f"{field}.verbs", _REQUIRED, "verbs must contain at least one value")
    if rule.urls:
        urls = json.dumps(list(rule.urls), separators=(",", ":"))
        if is_namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            yield _problem(f"{field}.nonResourceURLs", _INVALID, text, urls)
        if rule.api_groups or rule.resources or rule.resource_names:
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield _problem(f"{field}.nonResourceURLs", _INVALID, text, urls)
        return
    if not rule.api_groups:
        yield _problem(f"{field}.apiGroups", _REQUIRED, "resource rules must supply at least one api group")
    if not rule.resources:
        yield _problem(f"{field}.resources", _REQUIRED, "resource rules must supply at least one resource")


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
            yield _problem(f"{field}[{number}]", _INVALID, "invalid label selector.", "null")
    if not count:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield _problem(field, _REQUIRED, text)


def _requirement(field: str, value: Mapping[str, Any]) -> Iterator[FieldProblem]:
    operator, values = value.get("operator", ""), value.get("values") or ()
    if operator in _SET_OPERATORS and not values:
        text = "must be specified when `operator` is 'In' or 'NotIn'"
        yield _problem(f"{field}.values", _REQUIRED, text)
    elif operator in _KEY_OPERATORS and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield _problem(f"{field}.values", _FORBIDDEN, text)
    elif operator not in (*_SET_OPERATORS, *_KEY_OPERATORS):
        yield _problem(f"{field}.operator", _INVALID, "not a valid selector operator", quoted(operator))


def _subject(field: str, value: Mapping[str, Any], *, is_namespaced: bool) -> Iterator[FieldProblem]:
    kind, name, group = value.get("kind", ""), value.get("name", ""), value.get("apiGroup", "")
    if not name:
        yield _problem(f"{field}.name", _REQUIRED, "")
    if kind == "ServiceAccount":
        if name:
            yield from _account(f"{field}.name", name)
        if group:
            yield _unsupported(f"{field}.apiGroup", group, "")
        if not is_namespaced and not value.get("namespace"):
            yield _problem(f"{field}.namespace", _REQUIRED, "")
    elif kind in ("User", "Group"):
        if group != GROUP:
            yield _unsupported(f"{field}.apiGroup", group, GROUP)
    else:
        yield _unsupported(f"{field}.kind", kind, "ServiceAccount", "User", "Group")


def _account(field: str, name: str) -> Iterator[FieldProblem]:
    if len(name) > _SUBDOMAIN_LIMIT:
        text = f"must be no more than {_SUBDOMAIN_LIMIT} characters"
        yield _problem(field, _INVALID, text, quoted(name))
    if not re.fullmatch(_SUBDOMAIN, name):
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
            f"validation is '{_SUBDOMAIN}')"
        )
        yield _problem(field, _INVALID, text, quoted(name))
