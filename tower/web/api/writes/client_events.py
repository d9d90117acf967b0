"""Parsing of events that clients report, in the forms of both API groups.  Sans-IO."""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen

from tower.clusters.cluster_events import TOWER, EventLevel
from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api.discovery import GROUP, GroupVersion

#: Longest component or reason, characters.
NAME_LIMIT = 128


@frozen
class ReportedEvent:
    """An event of a cluster as a client reports it.

    :ivar uid: of the cluster; empty if the client omits it.
    :ivar count: occurrences that the client knows of.
    """

    cluster: str
    uid: str
    component: str
    reason: str
    level: EventLevel
    message: str
    count: int


@frozen
class EventNames:
    """Names of fields that differ between the two groups."""

    subject: Literal["involvedObject", "regarding"]
    message: Literal["message", "note"]
    component: Literal["reportingComponent", "reportingController"]
    source: Literal["source", "deprecatedSource"]
    count: Literal["count", "deprecatedCount"]


CORE_NAMES = EventNames("involvedObject", "message", "reportingComponent", "source", "count")
NEWER_NAMES = EventNames("regarding", "note", "reportingController", "deprecatedSource", "deprecatedCount")


def names_of(group: GroupVersion) -> EventNames:
    """Return the names in *group*."""
    return NEWER_NAMES if group.group else CORE_NAMES


def read_event(value: dict[str, Any], group: GroupVersion, component: str) -> ReportedEvent:
    """Return the event that the object *value* describes.

    :param component: the default.
    :raise Invalid: with the field and its valid values.
    :raise StatusError: it is another kind of object.
    """
    for key, right in (("apiVersion", group.name), ("kind", "Event")):
        if value.get(key, right) != right:
            raise StatusError(400, f"{key} {value[key]!r}: must be {right}")
    names = names_of(group)
    subject = _part(value, names.subject)
    version = subject.get("apiVersion") or GROUP
    if subject.get("kind") != "Cluster" or str(version).partition("/")[0] != GROUP:
        raise Invalid(f"{names.subject}: must be a Cluster of {GROUP}: this API has no other events")
    cluster = _text(subject, "name", f"{names.subject}.")
    if not cluster:
        raise Invalid(f"{names.subject}.name: required: the cluster's name")
    found = _text(value, names.component) or _text(_part(value, names.source), "component") or component
    _check_name(found, names.component)
    if found == TOWER:
        raise Invalid(f"{names.component}: {TOWER!r} is reserved for Tower's own events: use another name")
    reason = _text(value, "reason")
    _check_name(reason, "reason")
    return ReportedEvent(
        cluster,
        _text(subject, "uid", f"{names.subject}."),
        found,
        reason,
        _level(value, "Normal"),
        _text(value, names.message),
        _count(value, names),
    )


def read_change(value: dict[str, Any], group: GroupVersion) -> tuple[EventLevel | None, str | None, int]:
    """Return level, message and count of a patch of an event; other fields are ignored.

    :return: None for the level or the message stands for no change.
    :raise Invalid: with the field and its valid values.
    """
    names = names_of(group)
    level = _level(value, "Normal") if value.get("type") else None
    message = _text(value, names.message) if value.get(names.message) is not None else None
    return level, message, _count(value, names)


def _part(value: dict[str, Any], key: str) -> dict[str, Any]:
    part = value.get(key) or {}
    if not isinstance(part, dict):
        raise Invalid(f"{key}: must be an object")
    return part


def _text(value: dict[str, Any], key: str, prefix: str = "") -> str:
    text = value.get(key) or ""
    if not isinstance(text, str):
        raise Invalid(f"{prefix}{key}: must be a string")
    return text


def _check_name(name: str, field: str) -> None:
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        raise Invalid(f"{field}: must have 1 to {NAME_LIMIT} printable characters")


def _level(value: dict[str, Any], default: EventLevel) -> EventLevel:
    level = value.get("type") or default
    if level not in ("Normal", "Warning"):
        raise Invalid(f"type: {level!r}: must be Normal or Warning")
    return level


def _count(value: dict[str, Any], names: EventNames) -> int:
    """Return the number of occurrences; newer clients have it in a series."""
    counts = [value.get(names.count) or 0, _part(value, "series").get("count") or 0]
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
        raise Invalid(f"{names.count}: must be a number")
    return int(max(counts))
