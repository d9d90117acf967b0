"""Reads the protobuf form of reviews, which newer kubectl sends.  Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tower.kube.status import StatusError

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: Names of fields by number, with the fields below them; from the `.proto` files of Kubernetes.
Names: TypeAlias = "Mapping[int, tuple[str, Names | None]]"

_RESOURCE: Names = {
    number: (name, None)
    for number, name in enumerate(
        ("namespace", "verb", "group", "version", "resource", "subresource", "name"), start=1
    )
}
_PATH: Names = {1: ("path", None), 2: ("verb", None)}
_SPECS: Mapping[str, Names] = {
    "SelfSubjectAccessReview": {
        1: ("resourceAttributes", _RESOURCE),
        2: ("nonResourceAttributes", _PATH),
    },
    "SelfSubjectRulesReview": {1: ("namespace", None)},
    "SelfSubjectReview": {},
}
_ENVELOPE: Names = {1: ("typeMeta", {1: ("apiVersion", None), 2: ("kind", None)})}


def read_review(raw: bytes) -> dict[str, Any]:
    """Return the review *raw* as an object.

    :raise StatusError: it is malformed, or another kind of object.
    """
    try:
        if not raw.startswith(_MAGIC):
            raise ValueError("not Kubernetes' protobuf")
        envelope = raw[len(_MAGIC) :]
        meta = _read(envelope, _ENVELOPE).get("typeMeta", {})
        spec_names = _SPECS[meta.get("kind", "")]
        body = next((value for number, value in _fields(envelope) if number == 2), b"")
        value = _read(body, {2: ("spec", spec_names)} if spec_names else {})
    except (ValueError, LookupError) as e:
        raise StatusError(400, "the body is not a valid review in protobuf") from e
    return {**meta, **value}


def _read(data: bytes, names: Names) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number in names:
            name, below = names[number]
            found[name] = value.decode() if below is None else _read(value, below)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the length-delimited fields of a message by number; others are skipped."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            length, position = _varint(data, position)
            end = position + length
            if end > len(data):
                raise ValueError("cut off")
            yield key >> 3, data[position:end]
            position = end
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number is too long")
