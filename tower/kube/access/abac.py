"""Policy files of kube-apiserver's ABAC mode: one JSON object per line.

A line has the version ``abac.authorization.kubernetes.io/v1beta1``, or the fields of the old version v0,
which grants more by default: an empty object allows all users everything.

Tower's extension: ``spec.cluster`` of the version v1beta1 limits a line to one cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any

import yaml
from attrs import frozen

from tower.errors import ConfigurationError
from tower.escaping import escaped, quoted, shortened
from tower.kube.request_info import RequestInfo
from tower.kube.system_identities import AUTHENTICATED

#: Longest line, B, as upstream's.
LINE_LIMIT = 64 * 1024

#: Reason if no policy matches.
NO_MATCH = "No policy matched."

_GROUP = "abac.authorization.kubernetes.io"
_V0, _V1BETA1 = f"{_GROUP}/v0", f"{_GROUP}/v1beta1"
_KIND = "Policy"
_TEXTS = ("user", "group", "resource", "namespace")
_READ_VERBS = ("get", "list", "watch")
_QUOTED_LIMIT = 300
_UNREADABLE = "couldn't get version/kind; json parse error: "
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_JSON_TYPES = ((bool, "bool"), ((int, float), "number"), (str, "string"), (list, "array"), (dict, "object"))


@frozen
class Policy:
    """One line, as converted from its version.

    :ivar cluster: name of the only cluster in which it applies; empty: all clusters.
    """

    user: str = ""
    group: str = ""
    readonly: bool = False
    api_group: str = ""
    resource: str = ""
    namespace: str = ""
    non_resource_path: str = ""
    cluster: str = ""

    def matches(self, user: str, groups: Collection[str], info: RequestInfo, cluster: str) -> bool:
        """Return whether it allows the request to *cluster*."""
        if self.cluster not in ("", cluster):
            return False
        if not self._concerns(user, groups) or (self.readonly and info.verb not in _READ_VERBS):
            return False
        if info.is_resource:
            return (
                self.namespace in ("*", info.namespace)
                and self.resource in ("*", info.resource)
                and self.api_group in ("*", info.group)
            )
        path = self.non_resource_path
        return path in ("*", info.path) or (path.endswith("*") and info.path.startswith(path.rstrip("*")))

    def _concerns(self, user: str, groups: Collection[str]) -> bool:
        if self.user and self.user not in ("*", user):
            return False
        if self.group and self.group != "*" and self.group not in groups:
            return False
        return bool(self.user or self.group)


@frozen
class PolicyList:
    """The policies of a file; *unversioned* is the number of lines of the version v0."""

    policies: tuple[Policy, ...] = ()
    unversioned: int = 0

    def allows(self, user: str, groups: Collection[str], info: RequestInfo, cluster: str) -> bool:
        """Return whether a policy allows the request to *cluster*."""
        return any(each.matches(user, groups, info, cluster) for each in self.policies)


class _LineError(Exception):
    """A line is wrong."""


def parse_policies(content: bytes, path: str) -> PolicyList:
    """Return the policies in a file.

    :raise ConfigurationError: a line is wrong, with upstream's text.
    """
    policies: list[Policy] = []
    unversioned = 0
    for number, raw in enumerate(_lines(content), 1):
        if len(raw) >= LINE_LIMIT:
            raise ConfigurationError(
                f"error reading policy file {path}: line {number} has more than {LINE_LIMIT - 1} B"
            )
        line = raw.decode("utf-8", "replace")
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            policy, is_old = _policy(line)
        except _LineError as e:
            shown = escaped(shortened(line, _QUOTED_LIMIT))
            raise ConfigurationError(
                f"error reading policy file {path}, line {number}: {shown}: {e}"
            ) from None
        policies.append(policy)
        unversioned += is_old
    return PolicyList(tuple(policies), unversioned)


def _lines(content: bytes) -> Iterable[bytes]:
    return [line.removesuffix(b"\r") for line in content.split(b"\n")]


def _policy(line: str) -> tuple[Policy, bool]:
    """Return the policy of *line*, and whether the line has the version v0 implicitly."""
    value = _parse(line)
    version, kind = (_version_part(value, key) for key in ("apiVersion", "kind"))
    if "cluster" in value:
        raise _LineError(f"the field cluster is only supported in spec, in a line of the version {_V1BETA1}")
    if version.count("/") > 1:
        raise _LineError(f"unexpected GroupVersion string: {version}: use the version {_V1BETA1}")
    if version == _V1BETA1 and kind == _KIND:
        return _v1beta1(value), False
    if version == _V0 and kind == _KIND:
        return _v0(value), False
    if version == _V1BETA1 and not kind:
        raise _LineError(f'the kind is missing: add "kind": "{_KIND}"')
    if version not in ("", _V0) or kind not in ("", _KIND):
        raise _LineError(
            f"no kind {quoted(kind or _KIND)} is registered for version {quoted(version or _V0)}: "
            f"use the version {_V1BETA1} and the kind {_KIND}"
        )
    return _v0(value), True


def _parse(line: str) -> dict[str, Any]:
    try:
        is_json = line.lstrip().startswith("{")
        value = json.loads(line, parse_constant=_no_constant) if is_json else yaml.safe_load(line)
    except (ValueError, RecursionError) as e:
        raise _LineError(f"{_UNREADABLE}{e or 'too deep'}: write one JSON object per line") from None
    except yaml.YAMLError:
        raise _LineError("yaml: the line is not valid: write one JSON object per line") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _LineError(
            f"{_UNREADABLE}json: cannot unmarshal {_type(value)} into a policy: "
            "write one JSON object per line"
        )
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"invalid value {name}")


def _v0(value: dict[str, Any]) -> Policy:
    user, group, resource, namespace = (_text(value, key, "Policy.") for key in _TEXTS)
    if (not user and not group) or "*" in (user, group):
        user, group = "" if "*" in (user, group) else user, AUTHENTICATED
    return Policy(
        user,
        group,
        _flag(value, "readonly", "Policy."),
        "*",
        resource or "*",
        namespace or "*",
        "" if namespace or resource else "*",
    )


def _v1beta1(value: dict[str, Any]) -> Policy:
    spec = value.get("spec")
    if spec is None:
        spec = {}
    if not isinstance(spec, dict):
        raise _wrong_type(spec, "Policy.spec", "v1beta1.PolicySpec")
    place = "PolicySpec.spec."
    user, group, resource, namespace = (_text(spec, key, place) for key in _TEXTS)
    if "*" in (user, group):
        user, group = "", AUTHENTICATED
    return Policy(
        user,
        group,
        _flag(spec, "readonly", place),
        _text(spec, "apiGroup", place),
        resource,
        namespace,
        _text(spec, "nonResourcePath", place),
        _cluster(spec, place),
    )


def _cluster(spec: dict[str, Any], place: str) -> str:
    name = _text(spec, "cluster", place)
    if name in ("", "*"):
        return ""
    if not _CLUSTER.fullmatch(name):
        raise _LineError(
            f"spec.cluster: {quoted(name)}: must be the name of a cluster, or * for all clusters"
        )
    return name


def _version_part(value: dict[str, Any], key: str) -> str:
    try:
        return _text(value, key, "")
    except _LineError as e:
        raise _LineError(f"{_UNREADABLE}{e}") from None


def _text(value: dict[str, Any], key: str, place: str) -> str:
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong_type(found, f"{place or '.'}{key}", "string")
    return found


def _flag(value: dict[str, Any], key: str, place: str) -> bool:
    found = value.get(key)
    if found is None:
        return False
    if not isinstance(found, bool):
        raise _wrong_type(found, f"{place}{key}", "bool")
    return found


def _wrong_type(value: Any, field: str, expected: str) -> _LineError:
    return _LineError(
        f"json: cannot unmarshal {_type(value)} into Go struct field {field} of type {expected}"
    )


def _type(value: Any) -> str:
    return next((name for types, name in _JSON_TYPES if isinstance(value, types)), "string")
