"""The difference between an object of the host and the wanted one, as a JSON merge patch (RFC 7396)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that gives *current* the fields of *wanted*; empty if it has them.

    Fields that *wanted* does not have stay, also in the items of a list, which are compared by position: the
    API server adds defaults.  None in *wanted* removes a field.
    """
    patch: dict[str, Any] = {}
    for key, value in wanted.items():
        known = current.get(key)
        if isinstance(value, Mapping):
            inner = difference(known if isinstance(known, Mapping) else {}, value)
            if inner:
                patch[key] = inner
        elif isinstance(value, list):
            if not _covers(known, value):
                patch[key] = _merged(known, value)
        elif value != known:
            patch[key] = value
    return patch


def exactly(current: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return *wanted* with None for all other keys of *current*, for maps that are Tower's alone."""
    return {**dict.fromkeys(current or ()), **wanted}


def without_removals(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return *wanted* as a new object: without the fields that are None."""
    return {
        key: without_removals(value) if isinstance(value, Mapping) else value
        for key, value in wanted.items()
        if value is not None
    }


def _covers(known: Any, wanted: list[Any]) -> bool:
    if not isinstance(known, list) or len(known) != len(wanted):
        return False
    return all(_item_covers(*pair) for pair in zip(known, wanted, strict=True))


def _item_covers(known: Any, wanted: Any) -> bool:
    if isinstance(known, Mapping) and isinstance(wanted, Mapping):
        return not difference(known, wanted)
    return bool(known == wanted)


def _merged(known: Any, wanted: list[Any]) -> list[Any]:
    """Return *wanted* with the other fields of the items at the same position and with the same name."""
    before = known if isinstance(known, list) else []
    return [
        {**before[at], **item}
        if isinstance(item, Mapping) and at < len(before) and _same(before[at], item)
        else item
        for at, item in enumerate(wanted)
    ]


def _same(known: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(known, Mapping) and "name" in wanted and known.get("name") == wanted["name"]
