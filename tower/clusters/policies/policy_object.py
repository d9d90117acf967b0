"""Reading of the ``spec`` of access policies.  Sans-IO.  Errors name the field, its value and the cure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tower.clusters.policies.access_policy import ALL, PolicySpec, Subject
from tower.clusters.policies.label_selector import LabelRequirement, LabelSelector
from tower.clusters.policies.member_names import DOOR, OWN_GROUPS, USER, MemberNames
from tower.clusters.policies.spec_fields import (
    ENTRY_LIMIT,
    NAME_LIMIT,
    check_known,
    either,
    read_list,
    read_name,
    read_object,
    shown,
)
from tower.clusters.policies.spec_parts import LABEL, read_access, read_subjects, read_targets, read_window
from tower.errors import Invalid
from tower.escaping import shortened
from tower.kube.access.service_accounts import EVERY_ACCOUNT, groups_of_account
from tower.kube.system_identities import (
    ANONYMOUS_USER,
    AUTHENTICATED,
    OWN_PREFIX,
    UNAUTHENTICATED_GROUP,
    is_reserved,
)
from tower.kube.system_identities import PREFIX as SYSTEM
from tower.options.values import parse_duration
from tower.tunnels.targets import KUBERNETES

#: Most clusters of one policy.
CLUSTER_LIMIT = 1000

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def read_spec(value: Any) -> PolicySpec:
    """Return the settings in the ``spec`` *value* of a policy.

    :raise Invalid: with the field, its value and the cure.
    """
    spec = read_object(value, "spec")
    check_known(
        spec,
        {"subjects", "clusters", "as", "targets", "access", "ttl", "timeWindow"},
        "spec",
    )
    clusters, selector = _clusters(spec.get("clusters"))
    window = spec.get("timeWindow")
    return PolicySpec(
        read_subjects(spec.get("subjects")),
        clusters,
        selector,
        _names(read_object(spec.get("as", {}), "spec.as")),
        read_targets(spec.get("targets", [KUBERNETES])),
        read_access(spec.get("access", "full")),
        _ttl(spec.get("ttl")),
        None if window is None else read_window(window),
    )


def warnings_of(spec: PolicySpec) -> list[str]:
    """Return warnings about settings that have no effect, or not everywhere."""
    names = spec.names
    own = [("user", names.user), *(("group", each) for each in (*names.groups, *names.mapping.values()))]
    return [
        *(
            f"spec.as: the {what} {name!r} is reserved: requests are rejected, except in clusters of type "
            f"ssh that allow it: tower cluster set NAME --allow-system-identity {name}"
            for what, name in own
            if is_reserved(name)
        ),
        *(text for subject in spec.subjects if (text := _subject_warning(subject, names))),
    ]


def _subject_warning(subject: Subject, names: MemberNames) -> str:
    """Return why a subject has no effect, or an empty string."""
    kind, name = subject.key[:2]
    if (kind, name) in (("User", ANONYMOUS_USER), ("Group", UNAUTHENTICATED_GROUP)):
        if USER not in names.user:
            return ""
        return (
            f"spec.subjects: {subject}: clusters reserve the name of anonymous users: set spec.as.user to "
            "another name"
        )
    if kind == "Group":
        is_known = name in (AUTHENTICATED, EVERY_ACCOUNT) or name.startswith(f"{EVERY_ACCOUNT}:")
    else:
        is_known = kind == "Claim" or bool(groups_of_account(name))
    if is_known or not is_reserved(name):
        return ""
    return (
        f"spec.subjects: {subject}: the front door authenticates no user with this reserved name: choose "
        "another name"
    )


def _clusters(value: Any) -> tuple[tuple[str, ...], LabelSelector | None]:
    part = read_object({} if value is None else value, "spec.clusters")
    check_known(part, {"names", "selector"}, "spec.clusters")
    names = read_list(part.get("names"), "spec.clusters.names", CLUSTER_LIMIT)
    for name in names:
        if not isinstance(name, str) or not (name == ALL or LABEL.fullmatch(name)):
            raise Invalid(
                f"spec.clusters.names: {shown(name)}: must be the name of a cluster, or '*' for all clusters"
            )
    selector = part.get("selector")
    if not names and selector is None:
        raise Invalid(
            "spec.clusters: required: names, a selector, or both; for all clusters use names: ['*']"
        )
    return tuple(dict.fromkeys(names)), None if selector is None else _selector(selector)


def _selector(value: Any) -> LabelSelector:
    path = "spec.clusters.selector"
    part = read_object(value, path)
    check_known(part, {"matchLabels", "matchExpressions"}, path)
    labels = read_object(part.get("matchLabels") or {}, f"{path}.matchLabels")
    for key, text in labels.items():
        _key(key, f"{path}.matchLabels")
        _check_value(text, f"{path}.matchLabels.{key}")
    items = read_list(part.get("matchExpressions"), f"{path}.matchExpressions", ENTRY_LIMIT)
    if not labels and not items:
        raise Invalid(
            f"{path}: is empty: set matchLabels or matchExpressions; for all clusters use names: ['*']"
        )
    requirements = [_requirement(item, f"{path}.matchExpressions[{at}]") for at, item in enumerate(items)]
    return LabelSelector(dict(labels), tuple(requirements))


def _requirement(value: Any, path: str) -> LabelRequirement:
    item = read_object(value, path)
    check_known(item, {"key", "operator", "values"}, path)
    key, operator = _key(item.get("key"), f"{path}.key"), item.get("operator")
    if operator not in _OPERATORS:
        raise Invalid(f"{path}.operator: {shown(operator)}: must be {either(_OPERATORS)}")
    values = read_list(item.get("values"), f"{path}.values", ENTRY_LIMIT)
    for each in values:
        _check_value(each, f"{path}.values")
    if bool(values) != (operator in ("In", "NotIn")):
        rule = "required" if not values else "must be empty"
        raise Invalid(f"{path}.values: {rule} with the operator {operator}")
    return LabelRequirement(key, operator, tuple(values))


def _names(part: Mapping[str, Any]) -> MemberNames:
    check_known(part, {"user", "groups", "groupMapping", "serviceAccountPrefix", "uid", "extra"}, "spec.as")
    user = part.get("user", USER)
    _check_member_name(user, "spec.as.user")
    if any(brace in user.replace(USER, "") for brace in "{}"):
        raise Invalid(f"spec.as.user: {shown(user)}: the only placeholder is {USER}")
    mapping = read_object(part.get("groupMapping") or {}, "spec.as.groupMapping")
    if len(mapping) > ENTRY_LIMIT:
        raise Invalid(f"spec.as.groupMapping: {len(mapping)} entries: at most {ENTRY_LIMIT} are allowed")
    for source, group in mapping.items():
        read_name(source, "spec.as.groupMapping")
        _check_group(group, f"spec.as.groupMapping.{shortened(source, 64)}")
    groups = part.get("groups")
    if groups is None:
        groups = [] if mapping else [OWN_GROUPS]
    for group in read_list(groups, "spec.as.groups", ENTRY_LIMIT):
        if group != OWN_GROUPS:
            _check_group(group, "spec.as.groups")
    prefix = part.get("serviceAccountPrefix", DOOR)
    _check_member_name(prefix, "spec.as.serviceAccountPrefix")
    if prefix.startswith(SYSTEM):
        raise Invalid(
            f"spec.as.serviceAccountPrefix: {shown(prefix)}: names with the prefix {SYSTEM!r} are reserved "
            "for the cluster itself: choose another prefix"
        )
    uid = part.get("uid", False)
    if not isinstance(uid, bool):
        raise Invalid(f"spec.as.uid: {shown(uid)}: must be true or false")
    extra = read_list(part.get("extra"), "spec.as.extra", ENTRY_LIMIT)
    for key in extra:
        read_name(key, "spec.as.extra")
    return MemberNames(user, tuple(dict.fromkeys(groups)), dict(mapping), prefix, uid, tuple(extra))


def _check_group(group: Any, path: str) -> None:
    _check_member_name(group, path)
    if group == AUTHENTICATED:
        raise Invalid(f"{path}: {group!r}: Kubernetes adds this group to every user: omit it")
    if ALL in group:
        raise Invalid(
            f"{path}: {shown(group)}: patterns are not supported: '*' alone is the user's own groups"
        )


def _check_member_name(name: Any, path: str) -> None:
    if not (
        isinstance(name, str)
        and 0 < len(name) <= NAME_LIMIT
        and name.isascii()
        and name.isprintable()
        and name == name.strip()
    ):
        raise Invalid(
            f"{path}: {shown(name)}: must be 1 to {NAME_LIMIT} printable ASCII characters, without blanks "
            "at the ends"
        )
    if name.startswith(OWN_PREFIX):
        raise Invalid(f"{path}: {shown(name)}: names with the prefix 'tower:' are reserved for Tower")


def _ttl(value: Any) -> float:
    if value is None:
        return 0.0
    try:
        seconds = parse_duration(value if isinstance(value, str) else str(value))
    except ValueError as e:
        raise Invalid(f"spec.ttl: {shown(value)}: {e}") from None
    if seconds < 1:
        raise Invalid(f"spec.ttl: {shown(value)}: must be 1s or more; omit it for no limit")
    return seconds


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise Invalid(f"{path}: {shown(key)}: must be a label's key, such as region or example.org/region")
    return key


def _check_value(value: Any, path: str) -> None:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise Invalid(f"{path}: {shown(value)}: must be a label's value, a string")
