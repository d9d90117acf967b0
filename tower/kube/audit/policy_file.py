"""Files with an audit policy (``audit.k8s.io/v1``), read and checked as by kube-apiserver, with its texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from attrs import frozen

from tower.escaping import shortened
from tower.kube.audit.policy import LEVELS, STAGES, AuditDecision, AuditPolicy, AuditRule, GroupResources
from tower.options.strict_yaml import load_leniently, repeated_keys

_GROUP = "audit.k8s.io"
_VERSION = f"{_GROUP}/v1"
_SUBDOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN = re.compile(_SUBDOMAIN_PATTERN)
_LONGEST_SUBDOMAIN = 253
_QUOTED_LIMIT = 300

_JSON_TYPES = ((bool, "bool"), ((int, float), "number"), (str, "string"), (list, "array"), (dict, "object"))


@frozen
class _Rule:
    """A rule as it is in the file, before its values were checked."""

    level: str
    users: tuple[str, ...]
    groups: tuple[str, ...]
    verbs: tuple[str, ...]
    resources: tuple[GroupResources, ...]
    namespaces: tuple[str, ...]
    paths: tuple[str, ...]
    omitted: tuple[str, ...]
    omits_managed_fields: bool | None


def parse_audit_policy(content: bytes) -> AuditPolicy:
    """Return the policy in a file.

    :raise ValueError: it is wrong, with upstream's text.
    """
    value = _load(content)
    _check_type_meta(value)
    if "metadata" in value:
        _object(value, "metadata", "Policy.metadata", "v1.ObjectMeta")
    omits = _flag(value, "omitManagedFields", "Policy.omitManagedFields")
    omitted = _strings(value, "omitStages", "Policy.omitStages", "v1.Stage")
    rules = [_rule(each) for each in _rules(value)]
    errors = [*_stage_errors(omitted, "omitStages")]
    for number, rule in enumerate(rules):
        errors += _rule_errors(rule, f"rules[{number}]")
    if errors:
        unique = list(dict.fromkeys(errors))
        raise ValueError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")
    if not rules:
        raise ValueError("loaded illegal policy with 0 rules")
    default = AuditDecision(omitted=frozenset(omitted), omits_managed_fields=bool(omits))
    return AuditPolicy(tuple(_compiled(rule, default) for rule in rules), default)


def strict_errors(content: bytes) -> list[str]:
    """Return what upstream's strict decoder rejects in a valid file, and the lenient one accepts.

    The lenient one ignores unknown fields, and uses the last value of a key that is given several times.
    """
    known = {"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"}
    of_rule = {"level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs"}
    of_rule |= {"omitStages", "omitManagedFields"}
    value = _load(content)
    unknown = [key for key in value if key not in known]
    for number, rule in enumerate(_rules(value)):
        place = f"rules[{number}]"
        unknown += [f"{place}.{key}" for key in rule or () if key not in of_rule]
        for index, resource in enumerate((rule or {}).get("resources") or ()):
            keys = set(resource or ()) - {"group", "resources", "resourceNames"}
            unknown += [f"{place}.resources[{index}].{key}" for key in sorted(keys)]
    return [*repeated_keys(content), *(f'unknown field "{field}"' for field in unknown)]


def _load(content: bytes) -> dict[str, Any]:
    try:
        value = load_leniently(content)
    except UnicodeDecodeError as e:
        raise _undecoded("yaml: invalid UTF-8: save the file as UTF-8") from e
    except yaml.MarkedYAMLError as e:
        line = "" if e.problem_mark is None else f"line {e.problem_mark.line + 1}: "
        raise _undecoded(f"yaml: {line}{e.problem}") from e
    except (yaml.YAMLError, RecursionError, ValueError) as e:
        raise _undecoded(f"yaml: {e}") from e
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _undecoded(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {_type_of(value)} into an "
            f"object: begin the file with apiVersion: {_VERSION}"
        )
    return value


def _check_type_meta(value: dict[str, Any]) -> None:
    version, kind = (_string(value, key, f"Policy.{key}", "string") for key in ("apiVersion", "kind"))
    if not version:
        raise ValueError(
            f"unknown group version field {_GROUP}/__internal, Kind=Policy in policy: "
            f"set apiVersion: {_VERSION}"
        )
    if version != _VERSION or kind not in ("", "Policy"):
        raise _undecoded(
            f"no kind {json.dumps(kind or 'Policy')} is registered for version {json.dumps(version)}: "
            f"set apiVersion: {_VERSION} and kind: Policy"
        )


def _rules(value: dict[str, Any]) -> list[Any]:
    rules = value.get("rules")
    if rules is None:
        return []
    if not isinstance(rules, list):
        raise _mistyped(rules, "Policy.rules", "[]v1.PolicyRule")
    return rules


def _rule(value: Any) -> _Rule:
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise _mistyped(value, "Policy.rules", "v1.PolicyRule")
    # in the order of the keys, in which the first error counts
    level = _string(value, "level", "PolicyRule.rules.level", "v1.Level")
    namespaces = _strings(value, "namespaces", "PolicyRule.rules.namespaces")
    paths = _strings(value, "nonResourceURLs", "PolicyRule.rules.nonResourceURLs")
    omits = _flag(value, "omitManagedFields", "PolicyRule.rules.omitManagedFields")
    omitted = _strings(value, "omitStages", "PolicyRule.rules.omitStages", "v1.Stage")
    given = value.get("resources")
    if not isinstance(given, list | None):
        raise _mistyped(given, "PolicyRule.rules.resources", "[]v1.GroupResources")
    resources = tuple(map(_resources, given or ()))
    groups, users, verbs = (
        _strings(value, key, f"PolicyRule.rules.{key}") for key in ("userGroups", "users", "verbs")
    )
    return _Rule(level, users, groups, verbs, resources, namespaces, paths, omitted, omits)


def _resources(value: Any) -> GroupResources:
    if value is None:
        value = {}
    place = "GroupResources.rules.resources"
    if not isinstance(value, dict):
        raise _mistyped(value, "PolicyRule.rules.resources", "v1.GroupResources")
    return GroupResources(
        _string(value, "group", f"{place}.group", "string"),
        names=_strings(value, "resourceNames", f"{place}.resourceNames"),
        resources=_strings(value, "resources", f"{place}.resources"),
    )


def _compiled(rule: _Rule, default: AuditDecision) -> AuditRule:
    omits = default.omits_managed_fields if rule.omits_managed_fields is None else rule.omits_managed_fields
    return AuditRule(
        AuditDecision(rule.level, default.omitted | frozenset(rule.omitted), omits),
        frozenset(rule.users),
        frozenset(rule.groups),
        frozenset(rule.verbs),
        frozenset(rule.namespaces),
        rule.resources,
        rule.paths,
    )


# Values


def _rule_errors(rule: _Rule, place: str) -> Iterator[str]:
    """Yield the errors in a rule, as upstream's ``ValidatePolicy``."""
    if not rule.level:
        yield f"{place}.level: Required value"
    elif rule.level not in LEVELS:
        supported = ", ".join(map(json.dumps, LEVELS))
        yield f"{place}.level: Unsupported value: {_shown(rule.level)}: supported values: {supported}"
    yield from _path_errors(rule.paths, f"{place}.nonResourceURLs")
    for each in rule.resources:
        yield from _resource_errors(each, f"{place}.resources")
    yield from _stage_errors(rule.omitted, f"{place}.omitStages")
    if rule.paths and (rule.resources or rule.namespaces):
        text = "rules cannot apply to both regular resources and non-resource URLs"
        yield f"{place}.nonResourceURLs: Invalid value: {_listed(rule.paths)}: {text}"


def _path_errors(paths: Iterable[str], place: str) -> Iterator[str]:
    for number, path in enumerate(paths):
        invalid = f"{place}[{number}]: Invalid value: {_shown(path)}"
        if path != "*" and not path.startswith("/"):
            yield f"{invalid}: non-resource URL rules must begin with a '/' character"
        if "*" in path[:-1]:
            yield f"{invalid}: non-resource URL wildcards '*' must be the final character of the rule"


def _resource_errors(value: GroupResources, place: str) -> Iterator[str]:
    group = value.group
    if group not in ("", "*"):
        texts = []
        if len(group) > _LONGEST_SUBDOMAIN:
            texts.append(f"must be no more than {_LONGEST_SUBDOMAIN} bytes")
        if not _SUBDOMAIN.fullmatch(group):
            texts.append(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
                "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
                f"for validation is '{_SUBDOMAIN_PATTERN}')"
            )
        if texts:
            yield f"{place}.group: Invalid value: {_shown(group)}: {','.join(texts)}"
    if value.names and not value.resources:
        text = "using resourceNames requires at least one resource"
        yield f"{place}.resourceNames: Invalid value: {_listed(value.names)}: {text}"


def _stage_errors(stages: Iterable[str], place: str) -> Iterator[str]:
    for number, stage in enumerate(stages):
        if stage not in STAGES:
            allowed = ",".join(STAGES)
            yield f"{place}[{number}]: Invalid value: {_shown(stage)}: allowed stages are {allowed}"


def _shown(text: str) -> str:
    return json.dumps(shortened(text, _QUOTED_LIMIT), ensure_ascii=False)


def _listed(texts: Iterable[str]) -> str:
    return f"[{','.join(map(_shown, texts))}]"


# Types


def _string(value: dict[str, Any], key: str, place: str, kind: str) -> str:
    found = value.get(key)
    if not isinstance(found, str | None):
        raise _mistyped(found, place, kind)
    return found or ""


def _strings(value: dict[str, Any], key: str, place: str, kind: str = "string") -> tuple[str, ...]:
    found = value.get(key)
    if not isinstance(found, list | None):
        raise _mistyped(found, place, f"[]{kind}")
    for each in found or ():
        if not isinstance(each, str | None):
            raise _mistyped(each, place, kind)
    return tuple(each or "" for each in found or ())


def _flag(value: dict[str, Any], key: str, place: str) -> bool | None:
    found = value.get(key)
    if not isinstance(found, bool | None):
        raise _mistyped(found, place, "bool")
    return found


def _object(value: dict[str, Any], key: str, place: str, kind: str) -> None:
    if not isinstance(value[key], dict | None):
        raise _mistyped(value[key], place, kind)


def _mistyped(value: Any, place: str, kind: str) -> ValueError:
    return _undecoded(f"json: cannot unmarshal {_type_of(value)} into Go struct field {place} of type {kind}")


def _type_of(value: Any) -> str:
    return next((name for types, name in _JSON_TYPES if isinstance(value, types)), "value")


def _undecoded(text: str) -> ValueError:
    return ValueError(f"failed decoding: {text}")
