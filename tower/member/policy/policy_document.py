"""Reading of the owner's policy, a YAML document.  Sans-IO.  Errors name field, value and cure."""

from __future__ import annotations

from typing import Any

from yaml import MarkedYAMLError, YAMLError

from tower.clusters.policies.access_policy import ALL, Subject
from tower.clusters.policies.spec_fields import check_known, read_list, read_object, shown
from tower.clusters.policies.spec_parts import LABEL, read_access, read_subjects, read_targets, read_window
from tower.errors import Invalid
from tower.escaping import escaped, shortened
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.options.strict_yaml import load_strictly
from tower.tunnels.targets import KUBERNETES

#: Type of the document.
API_VERSION, KIND = "tower.kubesphere.io/v1alpha1", "AgentPolicy"

#: Most rules, and most namespaces of one rule.
RULES_LIMIT = 64
NAMESPACES_LIMIT = 1000

#: Largest document, B.
DOCUMENT_LIMIT = 1 << 20

_CAUSE_LIMIT = 300

_FIELDS = {"subjects", "access", "namespaces", "targets", "timeWindow"}


def read_policy(data: bytes) -> OwnerPolicy:
    """Return the policy in *data*.

    :raise ValueError: with the first problem and the cure.
    """
    if len(data) > DOCUMENT_LIMIT:
        raise ValueError(f"has more than {DOCUMENT_LIMIT} B: use groups instead of users")
    try:
        value = load_strictly(data)
    except (YAMLError, UnicodeDecodeError, RecursionError, ValueError) as e:
        mark = e.problem_mark if isinstance(e, MarkedYAMLError) else None
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise ValueError(f"is not YAML{line}: {_cause(e)}: repair it") from None
    try:
        return _policy(value)
    except Invalid as e:
        raise ValueError(str(e)) from None


def _cause(error: Exception) -> str:
    """Return why a document cannot be read, in one line."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = error.problem or error.context if isinstance(error, MarkedYAMLError) else str(error)
    text = " ".join((text or "").split()).removeprefix("but ")
    return escaped(shortened(text, _CAUSE_LIMIT))


def _policy(value: Any) -> OwnerPolicy:
    document = read_object(value, "the document")
    check_known(document, {"apiVersion", "kind", "metadata", "spec"}, "the document")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != wanted:
            raise Invalid(f"{key}: {shown(document.get(key))}: must be {wanted}")
    spec = read_object(document.get("spec"), "spec")
    check_known(spec, {"allow"}, "spec")
    if not isinstance(spec.get("allow"), list):
        raise Invalid(
            f"spec.allow: {shown(spec.get('allow'))}: must be a list of rules; [] forbids everything"
        )
    items = read_list(spec["allow"], "spec.allow", RULES_LIMIT)
    return OwnerPolicy(tuple(_rule(item, f"spec.allow[{at}]") for at, item in enumerate(items)))


def _rule(value: Any, path: str) -> OwnerRule:
    rule = read_object(value, path)
    check_known(rule, _FIELDS, path)
    for key in _FIELDS & set(rule):
        if rule[key] is None:
            raise Invalid(f"{path}.{key}: has no value: set one, or omit the field, which means any")
    subjects = _subjects(rule["subjects"], f"{path}.subjects") if "subjects" in rule else None
    access = read_access(rule.get("access", "full"), f"{path}.access")
    namespaces = None
    if "namespaces" in rule:
        namespaces = _namespaces(rule["namespaces"], f"{path}.namespaces")
    targets = read_targets(rule.get("targets", [KUBERNETES]), f"{path}.targets")
    for key, is_given in (
        ("subjects", subjects is not None),
        ("namespaces", namespaces is not None),
        ("access", access == "read-only"),
    ):
        if is_given and targets != (KUBERNETES,):
            raise Invalid(
                f"{path}.{key}: has no effect on streams to other targets than {KUBERNETES}, which carry "
                "neither users nor requests that the agent knows: write a separate rule for these targets"
            )
    window = read_window(rule["timeWindow"], f"{path}.timeWindow") if "timeWindow" in rule else None
    return OwnerRule(subjects, access, namespaces, targets, window)


def _subjects(value: Any, path: str) -> tuple[Subject, ...]:
    if value == []:
        raise Invalid(f"{path}: is empty: list users and groups, or omit the field for all users")
    return read_subjects(value, path)


def _namespaces(value: Any, path: str) -> frozenset[str]:
    names = read_list(value, path, NAMESPACES_LIMIT)
    if not names:
        raise Invalid(f"{path}: is empty: list namespaces, or omit the field for all")
    for name in names:
        if name == ALL:
            raise Invalid(f"{path}: '*': patterns are not supported: omit the field for all namespaces")
        if not isinstance(name, str) or not LABEL.fullmatch(name):
            raise Invalid(f"{path}: {shown(name)}: must be the name of a namespace")
    return frozenset(names)
