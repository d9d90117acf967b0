"""JSON patches (RFC 6902) and JSON pointers (RFC 6901)."""

from __future__ import annotations

import json
import re
from typing import Any

from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api.fields.schema import equal

#: Most operations of a patch; Kubernetes allows more, for larger objects.
OPERATION_LIMIT = 1000

#: Largest total size of copied values, B of JSON.
COPY_LIMIT = 1024 * 1024

#: Longest path, characters and steps, and most items of a list that a patch changes: the reactor waits.
POINTER_LIMIT = 1024
STEP_LIMIT = 64
ITEM_LIMIT = 10_000

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def apply_json_patch(value: Any, patch: Any) -> Any:
    """Return *value* with *patch* applied; *value* itself stays unchanged.

    :raise StatusError: 400, the patch is malformed.
    :raise Invalid: an operation cannot be applied, or a test failed.
    """
    if not isinstance(patch, list) or len(patch) > OPERATION_LIMIT:
        raise StatusError(400, f"the JSON patch must be a list of at most {OPERATION_LIMIT} operations")
    root, copied = {"": _copied(value)}, 0
    for operation in patch:
        if not isinstance(operation, dict):
            raise StatusError(400, "the JSON patch must be a list of objects")
        if operation.get("op") == "copy":
            copied += len(json.dumps(_get(root, _pointer(operation, "from"))))
            if copied > COPY_LIMIT:
                raise Invalid(f"the JSON patch copies more than {COPY_LIMIT} B")
        _run(root, operation)
    return root.get("")


def _run(root: Any, operation: dict[str, Any]) -> None:
    """Run one operation."""
    path = _pointer(operation, "path")
    match operation.get("op"):
        case "add":
            _add(root, path, _value(operation))
        case "replace":
            parent = _get(root, path[:-1])
            if isinstance(parent, list):
                _take(root, path)
            _add(root, path, _value(operation))  # adds an absent member, as in Kubernetes
        case "remove":
            _take(root, path)
        case "test":
            if not equal(_get(root, path), operation.get("value")):
                raise Invalid(f"testing path {operation['path']} failed: the value is another one")
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and path != source:
                raise Invalid(f"{operation['from']} cannot be moved below itself")
            _add(root, path, _take(root, source))
        case "copy":
            _add(root, path, _copied(_get(root, _pointer(operation, "from"))))
        case other:
            raise StatusError(
                400, f"JSON patch operation {other!r}: must be add, remove, replace, move, copy or test"
            )


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise StatusError(400, f"JSON patch operation {operation['op']!r}: value is required")
    return _copied(operation["value"])  # later operations may change it


def _copied(value: Any) -> Any:
    """Return a copy of a JSON value; `copy.deepcopy` takes ten times as long."""
    return json.loads(json.dumps(value))


def _pointer(operation: dict[str, Any], key: str) -> list[str]:
    """Return the pointer in *operation*, below the root's empty key."""
    text = operation.get(key)
    if isinstance(text, str) and (len(text) > POINTER_LIMIT or text.count("/") > STEP_LIMIT):
        raise StatusError(
            400,
            f"JSON patch: {key} has {len(text)} characters and {text.count('/')} steps: "
            f"at most {POINTER_LIMIT} and {STEP_LIMIT} are allowed",
        )
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise StatusError(400, f"JSON patch: {key} {text!r}: must be a JSON pointer, such as /spec/enable")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _get(value: Any, path: list[str]) -> Any:
    for number, part in enumerate(path):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            raise _missing(path[: number + 1])
    return value


def _add(root: Any, path: list[str], value: Any) -> None:
    parent, last = _parent(root, path), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and last == "-":
        parent.append(value)
    elif isinstance(parent, list) and _INDEX.fullmatch(last) and int(last) <= len(parent):
        parent.insert(int(last), value)
    else:
        raise _missing(path)


def _take(root: Any, path: list[str]) -> Any:
    _get(root, path)
    parent, last = _parent(root, path), path[-1]
    return parent.pop(last) if isinstance(parent, dict) else parent.pop(int(last))


def _parent(root: Any, path: list[str]) -> Any:
    """Return the object or list that must be changed at *path*."""
    parent = _get(root, path[:-1])
    if isinstance(parent, list) and len(parent) > ITEM_LIMIT:
        raise Invalid(f"the JSON patch changes a list of more than {ITEM_LIMIT} items: {'/'.join(path[:-1])}")
    return parent


def _missing(path: list[str]) -> Invalid:
    return Invalid(f"the JSON patch cannot be applied: path {'/'.join(path)} does not exist")
