"""Reads the protobuf form of reviews, events, roles and bindings, which newer clients send.  Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from tower.kube.status import StatusError

#: Media type.
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"

#: Number of the object in the envelope.
_BODY = 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: Names of fields by number, with the fields below them; from the `.proto` files of Kubernetes.  A name that
#: ends with `[]` is a list, and one that ends with `{}` is a map of strings.
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
_OBJECT_META: Names = {
    **_META,
    5: ("uid", None),
    6: ("resourceVersion", None),
    11: ("labels{}", None),
    12: ("annotations{}", None),
    14: ("finalizers[]", None),
}
_RULE: Names = {
    number: (f"{name}[]", None)
    for number, name in enumerate(
        ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), start=1
    )
}
_EXPRESSION: Names = {1: ("key", None), 2: ("operator", None), 3: ("values[]", None)}
_SELECTOR: Names = {1: ("matchLabels{}", None), 2: ("matchExpressions[]", _EXPRESSION)}
_ROLE: Names = {1: ("metadata", _OBJECT_META), 2: ("rules[]", _RULE)}
_SUBJECT: Names = {1: ("kind", None), 2: ("apiGroup", None), 3: ("name", None), 4: ("namespace", None)}
_ROLE_REFERENCE: Names = {1: ("apiGroup", None), 2: ("kind", None), 3: ("name", None)}
_BINDING: Names = {
    1: ("metadata", _OBJECT_META),
    2: ("subjects[]", _SUBJECT),
    3: ("roleRef", _ROLE_REFERENCE),
}
_OBJECTS: Mapping[tuple[str, str], Names] = {
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {
        2: ("spec", {1: ("resourceAttributes", _RESOURCE), 2: ("nonResourceAttributes", _PATH)})
    },
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): {2: ("spec", {1: ("namespace", None)})},
    ("authentication.k8s.io/v1", "SelfSubjectReview"): {},
    ("authentication.k8s.io/v1beta1", "SelfSubjectReview"): {},
    ("rbac.authorization.k8s.io/v1", "Role"): _ROLE,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {
        **_ROLE,
        3: ("aggregationRule", {1: ("clusterRoleSelectors[]", _SELECTOR)}),
    },
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): _BINDING,
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
    """Return the object *raw*.

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
        raise StatusError(
            400, "the body is not a valid object in protobuf of a kind that Tower reads: send JSON"
        ) from e


def _read(data: bytes, names: Names) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in names:
            continue
        name, below = names[number]
        if name.endswith("{}"):
            pair = _read(_message(name, value), _PAIR)
            found.setdefault(name[:-2], {})[pair.get("key", "")] = pair.get("value", "")
        elif name.endswith("[]"):
            found.setdefault(name[:-2], []).append(_value(name, value, below))
        else:
            found[name] = _value(name, value, below)
    return found


#: An entry of a map of strings.
_PAIR: Names = {1: ("key", None), 2: ("value", None)}


def _value(name: str, value: bytes | int, below: Names | None) -> Any:
    if below is not None:
        return _read(_message(name, value), below)
    return value if isinstance(value, int) else value.decode()


def _message(name: str, value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"{name} is a number")  # noqa: TRY004 - as for other malformed bytes
    return value


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
