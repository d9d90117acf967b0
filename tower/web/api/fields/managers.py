"""Owners of fields, `metadata.managedFields`, and the writes that change them: update and apply."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from attrs import evolve, frozen

from tower.clusters import API_VERSION
from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api.fields.schema import (
    ABSENT,
    Schema,
    compare,
    duplicates,
    field_set,
    merge,
    remove,
    with_named_fields,
)
from tower.web.api.fields.sets import EMPTY, FieldSet, from_tree, shown_path, to_tree

#: Longest name of a manager, characters.
NAME_LIMIT = 128

#: Most managers of updates; the fields of older ones are joined under `ANCIENT`.
UPDATE_LIMIT = 10
ANCIENT = "ancient-changes"

#: Most managers, and their largest total size, characters of JSON.
MANAGER_LIMIT = 64
SIZE_LIMIT = 128 * 1024

#: Owner of all fields that an object had before managers were recorded.
BEFORE_FIRST_APPLY = "before-first-apply"

_META = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields")
_NOBODYS = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(("f:metadata", f"f:{name}") for name in (*_META, "resourceVersion", "deletionTimestamp")),
    }
)


class ManagerKey(NamedTuple):
    """Identifies an owner of fields: one name may own different fields by applying and by updating."""

    operation: str
    name: str
    subresource: str = ""


@frozen
class Owned:
    """The fields of one manager, and when they last changed (RFC 3339)."""

    fields: FieldSet
    time: str = ""


Managers: TypeAlias = dict[ManagerKey, Owned]


def read_managers(entries: Iterable[Any]) -> Managers:
    """Return the managers of `metadata.managedFields`.

    :raise Invalid: an entry is malformed.
    """
    found: Managers = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("operation") not in ("Apply", "Update"):
            raise Invalid("metadata.managedFields: each entry needs an operation, Apply or Update")
        parts = [entry.get(name, "") for name in ("manager", "subresource", "time")]
        if not all(isinstance(part, str) and len(part) <= NAME_LIMIT for part in parts):
            raise Invalid(f"metadata.managedFields: names have at most {NAME_LIMIT} characters")
        name, subresource, time = parts
        fields = from_tree(entry.get("fieldsV1") or {})
        if fields:
            found[ManagerKey(entry["operation"], name, subresource)] = Owned(fields, time)
    return found


def show_managers(managers: Managers, api_version: str = API_VERSION) -> list[dict[str, Any]]:
    """Return *managers* as `metadata.managedFields` of an object of *api_version*.

    :raise Invalid: there are too many of them.
    """
    shown = []
    for key, owned in sorted(managers.items(), key=lambda item: (item[0].operation, item[1].time, item[0])):
        entry: dict[str, Any] = {"manager": key.name, "operation": key.operation, "apiVersion": api_version}
        if owned.time:
            entry["time"] = owned.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_tree(owned.fields)}
        if key.subresource:
            entry["subresource"] = key.subresource
        shown.append(entry)
    if len(shown) > MANAGER_LIMIT or len(json.dumps(shown)) > SIZE_LIMIT:
        raise Invalid(
            f"metadata.managedFields: more than {MANAGER_LIMIT} managers or {SIZE_LIMIT} B: "
            "use fewer field managers"
        )
    return shown


def after_update(
    old: Any,
    new: Any,
    schema: Schema,
    managers: Managers,
    manager: ManagerKey,
    now: str,
    extra: FieldSet = EMPTY,
) -> Managers:
    """Return the managers after *manager* has replaced *old* with *new*: it owns all that it changed.

    :param old: `ABSENT` for a new object.
    :param extra: fields that were also set, but are not shown.
    """
    change = compare(old, new, schema)
    taken = (change.added | change.modified | extra) - _NOBODYS
    lost = taken | change.removed
    kept = {key: evolve(owned, fields=owned.fields - lost) for key, owned in managers.items()}
    if taken:
        before = kept[manager].fields if manager in kept else EMPTY
        kept[manager] = Owned(before | taken, now)
    return _without_ancient({key: owned for key, owned in kept.items() if owned.fields})


def _without_ancient(managers: Managers) -> Managers:
    """Return *managers* with at most `UPDATE_LIMIT` of updates."""
    updates = sorted((owned.time, key) for key, owned in managers.items() if key.operation == "Update")
    for time, key in (
        updates[: max(0, len(updates) - UPDATE_LIMIT + 1)] if len(updates) > UPDATE_LIMIT else ()
    ):
        joined = ManagerKey("Update", ANCIENT, key.subresource)
        if key != joined:
            before = managers[joined].fields if joined in managers else EMPTY
            managers[joined] = Owned(before | managers.pop(key).fields, time)
    return managers


def before_first_apply(live: Mapping[str, Any], schema: Schema, now: str, subresource: str) -> Managers:
    """Return the managers of the object *live*, whose fields have no recorded owners."""
    owned = compare({}, live, schema).added - _NOBODYS
    return {ManagerKey("Update", BEFORE_FIRST_APPLY, subresource): Owned(owned, now)} if owned else {}


class Applied(NamedTuple):
    """The result of an apply."""

    value: dict[str, Any]
    managers: Managers


def apply(
    live: Mapping[str, Any],
    config: Mapping[str, Any],
    schema: Schema,
    managers: Managers,
    manager: ManagerKey,
    now: str,
    *,
    force: bool,
) -> Applied:
    """Return *live* with *config* applied: fields that the manager no longer sets are removed.

    :param live: without read-only fields; empty for a new object.
    :param force: take fields from other managers.
    :raise StatusError: 409, other managers own fields that *config* changes.
    :raise Invalid: an associative list is ambiguous.
    """
    for path in duplicates(config, schema):
        raise Invalid(f"{shown_path(path)[1:]}: items with the same keys, or without them")
    managers = managers or before_first_apply(live, schema, now, manager.subresource)
    last = managers.get(manager, Owned(EMPTY)).fields
    owned = field_set(config, schema) - _NOBODYS
    managers = {**managers, manager: Owned(owned, managers[manager].time if manager in managers else now)}
    merged = merge(live, config, schema)
    value = _without_dropped(merged, last, managers, schema)
    change = compare(live, value, schema)
    touched = change.added | change.modified
    others = {key: other.fields for key, other in managers.items() if key != manager}
    conflicts = {key: fields & touched for key, fields in others.items() if fields & touched}
    if conflicts and not force:
        raise _conflict({key: (fields, managers[key].time) for key, fields in conflicts.items()})
    for key, fields in others.items():
        managers[key] = evolve(managers[key], fields=fields - conflicts.get(key, EMPTY) - change.removed)
    if touched or change.removed or owned != last:
        managers[manager] = Owned(owned, now)
    return Applied(value, {key: kept for key, kept in managers.items() if kept.fields})


def _without_dropped(merged: Any, last: FieldSet, managers: Managers, schema: Schema) -> Any:
    """Return *merged* without the fields of the manager's *last* apply that have no owner now."""
    if not last:
        return merged
    named_last = with_named_fields(last, schema)
    less = remove(merged, named_last, schema)
    everything = with_named_fields(field_set(merged, schema), schema)
    owned = with_named_fields(frozenset().union(*(each.fields for each in managers.values())), schema)
    # add back what others own, or this manager still sets
    less = remove(merged, everything - _named(less, schema) - owned, schema)
    # remove nothing that this manager did not own
    found = remove(merged, (everything - _named(less, schema)) & named_last, schema)
    return {} if found is ABSENT else found


def _named(value: Any, schema: Schema) -> FieldSet:
    return EMPTY if value is ABSENT else with_named_fields(field_set(value, schema), schema)


def _conflict(conflicts: Mapping[ManagerKey, tuple[FieldSet, str]]) -> StatusError:
    """Return the answer for fields of other managers, with a cause for each field."""
    causes, texts = [], []
    for key, (fields, time) in sorted(conflicts.items()):
        named = _shown_manager(key, time)
        paths = [shown_path(path) for path in sorted(fields)]
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {named}", "field": path}
            for path in paths
        ]
        texts.append(f"conflict with {named}: {', '.join(paths)}")
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    return StatusError(
        409, f"Apply failed with {count}: {'; '.join(texts)}", reason="Conflict", details={"causes": causes}
    )


def _shown_manager(key: ManagerKey, time: str) -> str:
    text = f'"{key.name}"'
    if key.subresource:
        text += f' with subresource "{key.subresource}"'
    if key.operation == "Update":
        text += f" using {API_VERSION}"
        text += f" at {time}" if time else ""
    return text
