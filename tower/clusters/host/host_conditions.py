"""The conditions of a host cluster's ``Cluster`` object: Tower's and those of other programs.  Sans-IO."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from attrs import asdict, frozen

from tower.clusters.cluster import Condition, ConditionStatus
from tower.clusters.object_meta import Objects
from tower.kube.timestamps import parse_timestamp, timestamp


@frozen
class HostConditions:
    """The conditions of one cluster.

    :ivar own: Tower's, as in records of clusters.
    :ivar others: those of other programs, as in the object.
    """

    own: Sequence[Mapping[str, Any]]
    others: Objects

    @classmethod
    def read(cls, status: object, own: Collection[str], created: float) -> HostConditions:
        """Return the conditions in an object's status; malformed ones are left out.

        :param own: types of Tower's conditions.
        :param created: time of a condition without one, s since the epoch.
        """
        found = [each for each in _listed(status) if _is_condition(each)]
        mine = [_decoded(each, created) for each in found if each["type"] in own]
        return cls(mine, tuple(each for each in found if each["type"] not in own))

    def write(self, status: object, own: Collection[str]) -> list[Any]:
        """Return the conditions for an object with *status*, in its order; unknown fields of Tower's stay.

        :param own: types of Tower's conditions; others that are not in `others` are removed.
        """
        new = {each["type"]: each for each in (*self.own, *self.others)}
        mine = {each["type"] for each in self.own}
        written: list[Any] = []
        for old in _listed(status):
            if not _is_condition(old):
                written.append(old)
            elif old["type"] in new:
                each = new.pop(old["type"])
                written.append(_encoded(each, old) if old["type"] in mine else each)
        added = (_encoded(each, {}) if kind in mine else each for kind, each in new.items())
        return [*written, *added]


def _listed(status: object) -> list[Any]:
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return conditions if isinstance(conditions, list) else []


def _is_condition(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and value.get("status") in get_args(ConditionStatus)
    )


def _decoded(value: Mapping[str, Any], created: float) -> dict[str, Any]:
    when = parse_timestamp(value.get("lastTransitionTime"))
    return asdict(
        Condition(
            value["type"],
            value["status"],
            str(value.get("reason") or ""),
            str(value.get("message") or ""),
            created if when is None else when,
        )
    )


def _encoded(value: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return Tower's condition with the unknown fields of *old*."""
    if old and _decoded(old, value["last_transition"]) == value:
        return dict(old)
    new = {**old, "type": value["type"], "status": value["status"]}
    for key in ("reason", "message"):
        new.pop(key, None)
        if value[key]:
            new[key] = value[key]
    when = timestamp(value["last_transition"])
    if parse_timestamp(old.get("lastTransitionTime")) != value["last_transition"]:
        new |= {"lastTransitionTime": when, "lastUpdateTime": when}
    return new
