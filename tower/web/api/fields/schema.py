"""Walks objects along their OpenAPI schema: field sets, comparison, merge and removal.

Objects and maps are granular, lists if `x-kubernetes-list-type` is `map` or `set`;
other values are atomic.  A value that does not match its schema is atomic; its validation follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from tower.web.api.fields.sets import (
    FieldSet,
    Path,
    field_element,
    key_element,
    to_tree,
    value_element,
)

Schema: TypeAlias = Mapping[str, Any]

#: The absent value.
ABSENT: Final[Any] = object()

_ATOMIC: Schema = {}


class Child(NamedTuple):
    """A field, an entry or an item of a granular value."""

    schema: Schema
    value: Any


class Comparison(NamedTuple):
    """The difference between two values."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def field_set(value: Any, schema: Schema, path: Path = ()) -> FieldSet:
    """Return the fields that *value* sets, as an applier owns them."""
    children = _children(value, schema)
    if children is None:
        return frozenset([path])
    found: set[Path] = set()
    for element, child in children.items():
        below = (*path, element)
        found |= field_set(child.value, child.schema, below)
        is_field = element.startswith("f:") and element[2:] in schema.get("properties", ())
        if child.value == {} or not is_field:
            found.add(below)
    return frozenset(found)


def compare(old: Any, new: Any, schema: Schema) -> Comparison:
    """Return the difference between two values; either may be `ABSENT`."""
    found: tuple[set[Path], set[Path], set[Path]] = (set(), set(), set())
    _compare(old, new, schema, (), found)
    added, modified, removed = map(frozenset, found)
    return Comparison(added, modified, removed)


def _compare(
    old: Any, new: Any, schema: Schema, path: Path, found: tuple[set[Path], set[Path], set[Path]]
) -> None:
    added, modified, removed = found
    before = {} if old is ABSENT else _children(old, schema)
    after = {} if new is ABSENT else _children(new, schema)
    if before is not None and after is not None:
        for element in {**before, **after}:
            left, right = before.get(element), after.get(element)
            some = left or right
            assert some is not None
            _compare(
                left.value if left else ABSENT,
                right.value if right else ABSENT,
                some.schema,
                (*path, element),
                found,
            )
    elif old is not ABSENT and new is not ABSENT and not equal(old, new):
        modified.add(path)
    if old is ABSENT:
        added.add(path)
    elif new is ABSENT:
        removed.add(path)


def merge(old: Any, new: Any, schema: Schema) -> Any:
    """Return *old* with everything that *new* sets."""
    before, after = _children(old, schema), _children(new, schema)
    if before is None or after is None:
        return new
    merged = {
        element: merge(before[element].value, child.value, child.schema) if element in before else child.value
        for element, child in after.items()
    }
    kept = {element: merged.get(element, child.value) for element, child in before.items()}
    return _joined({**kept, **merged}, old)


def remove(value: Any, paths: FieldSet, schema: Schema) -> Any:
    """Return *value* without the fields in *paths*; granular values that become empty are removed."""
    return _remove(value, to_tree(paths), schema)


def _remove(value: Any, tree: Mapping[str, Any], schema: Schema) -> Any:
    children = _children(value, schema)
    if children is None or not tree:
        return value
    kept: dict[str, Any] = {}
    for element, child in children.items():
        node = tree.get(element)
        if node is None:
            kept[element] = child.value
        elif node and "." not in node:
            left = _remove(child.value, node, child.schema)
            if left is not ABSENT:
                kept[element] = left
    return _joined(kept, value) if kept else ABSENT


def with_named_fields(paths: FieldSet, schema: Schema) -> FieldSet:
    """Return *paths* with the declared fields above them."""
    found = set(paths)
    for path in paths:
        current = schema
        for length, element in enumerate(path[:-1], start=1):
            if element.startswith("f:") and element[2:] in current.get("properties", ()):
                found.add(path[:length])
            current = _step(current, element)
    return frozenset(found)


def pruned(value: Any, schema: Schema, path: str = "") -> tuple[Any, list[str]]:
    """Return *value* without unknown fields, and their paths."""
    unknown: list[str] = []
    if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        kept: dict[str, Any] = {}
        for key, part in value.items():
            child = _field_schema(schema, key)
            place = f"{path}.{key}" if path else key
            if child is None:
                unknown.append(place)
            elif part is not None:
                kept[key], more = pruned(part, child, place)
                unknown += more
        return kept, unknown
    if isinstance(value, list) and "items" in schema:
        items = []
        for number, part in enumerate(value):
            item, more = pruned(part, schema["items"], f"{path}[{number}]")
            items.append(item)
            unknown += more
        return items, unknown
    return value, unknown


def duplicates(value: Any, schema: Schema, path: Path = ()) -> Iterator[Path]:
    """Return the paths of associative lists with duplicate or incomplete items."""
    is_associative = schema.get("x-kubernetes-list-type") in ("map", "set")
    if isinstance(value, list) and is_associative and _items(value, schema) is None:
        yield path
        return
    for element, child in (_children(value, schema) or {}).items():
        yield from duplicates(child.value, child.schema, (*path, element))


def _children(value: Any, schema: Schema) -> dict[str, Child] | None:
    """Return the parts of a granular *value* by path element, or None if it is atomic."""
    if isinstance(value, dict):
        if schema.get("x-kubernetes-map-type") == "atomic":
            return None
        if "properties" in schema or "additionalProperties" in schema:
            return {
                field_element(key): Child(_field_schema(schema, key) or _ATOMIC, part)
                for key, part in value.items()
            }
    if isinstance(value, list):
        return _items(value, schema)
    return None


def _items(value: list[Any], schema: Schema) -> dict[str, Child] | None:
    """Return the items of an associative list, or None if it is atomic or ambiguous."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        if not all(isinstance(item, dict) and all(key in item for key in keys) for item in value):
            return None
        elements = [key_element({key: item[key] for key in keys}) for item in value]
    elif kind == "set":
        elements = [value_element(item) for item in value]
    else:
        return None
    if len(set(elements)) < len(elements):
        return None
    return {element: Child(schema["items"], item) for element, item in zip(elements, value, strict=True)}


def _field_schema(schema: Schema, key: str) -> Schema | None:
    found: Schema | None = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    return found


def _step(schema: Schema, element: str) -> Schema:
    if element.startswith("f:"):
        return _field_schema(schema, element[2:]) or _ATOMIC
    items: Schema = schema.get("items", _ATOMIC)
    return items


def _joined(children: Mapping[str, Any], like: Any) -> Any:
    """Return the value with these *children*, an object or a list as *like*."""
    if isinstance(like, list):
        return list(children.values())
    return {element[2:]: value for element, value in children.items()}


def equal(old: Any, new: Any) -> bool:
    """Return whether two JSON values are equal; True is not 1."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(equal(part, new[key]) for key, part in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(equal, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)
