"""Reads the protobuf form of reviews and events, which newer clients send.  Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tower.kube.status import StatusError

_MAGIC = b"k8s\x00"

#: Number of the object in the envelope.
_BODY = 2

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
_META: Names = {1: ("name", None), 3: ("namespace", None)}
_REFERENCE: Names = {1: ("kind", None), 3: ("name", None), 4: ("uid", None), 5: ("apiVersion", None)}
_SERIES: Names = {1: ("count", None)}
_SOURCE: Names = {1: ("component", None)}
_OBJECTS: Mapping[tuple[str, str], Names] = {
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {
        2: ("spec", {1: ("resourceAttributes", _RESOURCE), 2: ("nonResourceAttributes", _PATH)})
    },
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): {2: ("spec", {1: ("namespace", None)})},
    ("authentication.k8s.io/v1", "SelfSubjectReview"): {},
    ("authentication.k8s.io/v1beta1", "SelfSubjectReview"): {},
    ("v1", "Event"): {
        1: ("metadata", _META),
        2: ("involvedObject", _REFERENCE),
        3: ("reason", None),
        4: ("message", None),
        5: ("source", _SOURCE),
        8: ("count", None),
        9: ("type", None),
        11: ("series", _SERIES),
        14: ("reportingComponent", None),
    },
    ("events.k8s.io/v1", "Event"): {
        1: ("metadata", _META),
        3: ("series", _SERIES),
        4: ("reportingController", None),
        7: ("reason", None),
        8: ("regarding", _REFERENCE),
        10: ("note", None),
        11: ("type", None),
        12: ("deprecatedSource", _SOURCE),
        15: ("deprecatedCount", None),
    },
}
_ENVELOPE: Names = {1: ("typeMeta", {1: ("apiVersion", None), 2: ("kind", None)})}


def read_protobuf(raw: bytes) -> dict[str, Any]:
    """Return the review or event *raw* as an object.

    :raise StatusError: it is malformed, or another kind of object.
    """
    try:
        if not raw.startswith(_MAGIC):
            raise ValueError("not Kubernetes' protobuf")
        envelope = raw[len(_MAGIC) :]
        meta = _read(envelope, _ENVELOPE).get("typeMeta", {})
        names = _OBJECTS[meta.get("apiVersion", ""), meta.get("kind", "")]
        return {**meta, **_read(envelope, {_BODY: ("object", names)}).get("object", {})}
    except (ValueError, LookupError) as e:
        raise StatusError(400, "the body is not a valid review or event in protobuf: send JSON") from e


def _read(data: bytes, names: Names) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in names:
            continue
        name, below = names[number]
        if below is not None:
            if isinstance(value, int):
                raise ValueError(f"{name} is a number")
            found[name] = _read(value, below)
        else:
            found[name] = value if isinstance(value, int) else value.decode()
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Return the numbers and the length-delimited fields of a message by number; others are skipped."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield key >> 3, value - (1 << 64) if value >= 1 << 63 else value
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
            return value & (1 << 64) - 1, position
    raise ValueError("a number is too long")
