"""Sets of field paths, and their form `fieldsV1` in `metadata.managedFields`.

A path is a tuple of elements in that form: `f:labels` (a field), `k:{"type":"Ready"}` (an item by its keys),
`v:"x"` (an item of a set).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tower.errors import Invalid

Path: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[Path]

EMPTY: FieldSet = frozenset()

#: Deepest path that is read.
DEPTH_LIMIT = 32


def field_element(name: str) -> str:
    """Return the element of a field or of an entry of a map."""
    return f"f:{name}"


def key_element(keys: Mapping[str, Any]) -> str:
    """Return the element of a list's item with these *keys*."""
    return f"k:{_compact(keys)}"


def value_element(value: Any) -> str:
    """Return the element of a set's item."""
    return f"v:{_compact(value)}"


def to_tree(paths: Iterable[Path]) -> dict[str, Any]:
    """Return *paths* as `fieldsV1`: a member with members below it is marked with a dot."""
    root: dict[str, Any] = {}
    nodes = []
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        nodes.append(node)
    for node in nodes:
        if node:
            node["."] = {}
    return root


def from_tree(tree: Mapping[str, Any]) -> FieldSet:
    """Return the set that `fieldsV1` describes.

    :raise Invalid: it is malformed.
    """
    return frozenset(_paths(tree, ()))


def _paths(tree: Any, path: Path) -> Iterable[Path]:
    if not isinstance(tree, dict) or len(path) > DEPTH_LIMIT:
        raise Invalid("metadata.managedFields: fieldsV1 is malformed")
    for element, below in tree.items():
        if element == ".":
            yield path
        elif element[:2] in ("f:", "k:", "v:"):
            if below:
                yield from _paths(below, (*path, element))
            else:
                yield (*path, element)


def shown_path(path: Path) -> str:
    """Return *path* as in errors of kube-apiserver: `.status.conditions[type="Ready"].status`."""
    return "".join(_shown_element(element) for element in path)


def _shown_element(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    keys = json.loads(text)
    return f"[{','.join(f'{name}={_compact(value)}' for name, value in keys.items())}]"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
