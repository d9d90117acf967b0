"""Parts that the objects of several kinds of policies have: subjects, level of access, targets, time window.

Sans-IO.  Errors name the field, its value and the cure.
"""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo

from tower.clusters.policies.access_levels import LEVELS
from tower.clusters.policies.access_policy import ALL, Access, Subject
from tower.clusters.policies.spec_fields import (
    ENTRY_LIMIT,
    check_known,
    either,
    read_list,
    read_name,
    read_object,
    shown,
)
from tower.clusters.policies.time_window import DAY_MINUTES, DAYS, TimeWindow
from tower.errors import Invalid
from tower.kube.system_identities import AUTHENTICATED, OWN_PREFIX
from tower.tunnels.targets import KUBERNETES, TARGET_NAME

#: Most subjects of one policy.
SUBJECT_LIMIT = 1000

#: Name of a namespace.
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_ACCOUNT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TIME = re.compile(r"(?:([01]\d|2[0-3]):([0-5]\d))|(24):(00)", re.ASCII)

_KINDS = {
    "User": {"kind", "name"},
    "Group": {"kind", "name"},
    "ServiceAccount": {"kind", "name", "namespace"},
    "Claim": {"kind", "name", "value"},
}


def read_subjects(value: Any, path: str = "spec.subjects") -> tuple[Subject, ...]:
    """Return the subjects in the list *value*.

    :raise Invalid: one is invalid, or there is none.
    """
    items = read_list(value, path, SUBJECT_LIMIT)
    if not items:
        raise Invalid(f"{path}: required: the users that enter, such as {{kind: Group, name: developers}}")
    return tuple(dict.fromkeys(_subject(item, f"{path}[{at}]") for at, item in enumerate(items)))


def _subject(value: Any, path: str) -> Subject:
    item = read_object(value, path)
    kind = item.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Invalid(f"{path}.kind: {shown(kind)}: must be {either(_KINDS)}")
    check_known(item, _KINDS[kind], path)
    name = read_name(item.get("name"), f"{path}.name")
    if kind == "ServiceAccount":
        namespace = item.get("namespace")
        if not isinstance(namespace, str) or not LABEL.fullmatch(namespace):
            raise Invalid(
                f"{path}.namespace: {shown(namespace)}: required: the namespace of the service account"
            )
        if not _ACCOUNT_NAME.fullmatch(name):
            raise Invalid(f"{path}.name: {shown(name)}: is not a name of a service account")
        return Subject("ServiceAccount", name, namespace)
    if name == ALL:
        raise Invalid(
            f"{path}.name: '*': patterns are not supported: name the users or groups, or use the group "
            f"{AUTHENTICATED!r} for all users"
        )
    if kind == "Claim":
        return Subject("Claim", name, value=read_name(item.get("value"), f"{path}.value"))
    if name.startswith(OWN_PREFIX):
        raise Invalid(f"{path}.name: {shown(name)}: names with the prefix 'tower:' are Tower's own")
    return Subject("Group" if kind == "Group" else "User", name)


def read_window(value: Any, path: str = "spec.timeWindow") -> TimeWindow:
    """Return the time window in the object *value*.

    :raise Invalid: a field is invalid, or this machine does not know the time zone.
    """
    part = read_object(value, path)
    check_known(part, {"days", "from", "to", "timeZone"}, path)
    days = read_list(part.get("days", list(DAYS)), f"{path}.days", len(DAYS))
    for day in days:
        if day not in DAYS:
            raise Invalid(f"{path}.days: {shown(day)}: must be {either(DAYS)}")
    if not days:
        raise Invalid(f"{path}.days: is empty: omit it for all days")
    begin = _minutes(part.get("from", "00:00"), f"{path}.from")
    end = _minutes(part.get("to", "24:00"), f"{path}.to")
    if begin in (end, DAY_MINUTES):
        raise Invalid(f"{path}: from and to are equal, or from is 24:00: omit both for whole days")
    zone = part.get("timeZone")
    if not isinstance(zone, str) or not _is_zone(zone):
        raise Invalid(
            f"{path}.timeZone: {shown(zone)}: required: a name such as Europe/Berlin or UTC, known on this "
            "machine"
        )
    return TimeWindow(tuple(sorted({DAYS.index(day) for day in days})), begin, end, zone)


def _minutes(value: Any, path: str) -> int:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Invalid(f"{path}: {shown(value)}: must be a time from '00:00' to '24:00', in quotes")
    hours, minutes = match[1] or match[3], match[2] or match[4]
    return int(hours) * 60 + int(minutes)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return False
    return True


def read_access(value: Any, path: str = "spec.access") -> Access:
    """Return the level of access *value*.

    :raise Invalid: it is unknown.
    """
    if not isinstance(value, str) or value not in LEVELS:
        raise Invalid(f"{path}: {shown(value)}: must be {either(LEVELS)}")
    return value  # type: ignore[return-value]  # it is one of LEVELS


def read_targets(value: Any, path: str = "spec.targets") -> tuple[str, ...]:
    """Return the names of targets in the list *value*, or `ALL`.

    :raise Invalid: one is not a name, or the list is empty.
    """
    names = read_list(value, path, ENTRY_LIMIT)
    if not names:
        raise Invalid(f"{path}: is empty: omit it for the API server, or list targets")
    for name in names:
        if not isinstance(name, str) or not (name == ALL or TARGET_NAME.fullmatch(name)):
            raise Invalid(
                f"{path}: {shown(name)}: must be the name of a target, such as {KUBERNETES}, or '*'"
            )
    return tuple(dict.fromkeys(names))
