"""The protobuf form of the OpenAPI 2 document (`gnostic.openapi.v2.Document`), which Argo CD compares with.

Sans-IO.  It has the kinds, but no paths: kubectl would send strategic merge patches otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: Numbers of the fields of `Schema` that have text.
_TEXTS = {"format": 2, "description": 4}

_REQUIRED, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = 19, 21, 22, 23, 25, 31
_DEFINITIONS = 9


def encoded(title: str, version: str, schemas: Mapping[str, Any]) -> bytes:
    """Return the document with *schemas* by name."""
    info = _field(1, title) + _field(2, version)
    definitions = b"".join(_field(1, _named(name, _schema(schema))) for name, schema in schemas.items())
    return _field(1, "2.0") + _field(2, info) + _field(8, b"") + _field(_DEFINITIONS, definitions)


def _schema(schema: Mapping[str, Any]) -> bytes:
    """Return the message of a schema.

    :raise ValueError: it has a keyword without a form here.
    """
    return b"".join(_keyword(key, value) for key, value in schema.items())


def _keyword(key: str, value: Any) -> bytes:
    if key in _TEXTS:
        return _field(_TEXTS[key], value)
    if key.startswith("x-"):
        return _field(_EXTENSION, _named(key, _field(2, json.dumps(value))))  # JSON is YAML, too
    match key:
        case "type":
            return _field(_TYPE, _field(1, value))
        case "required":
            return b"".join(_field(_REQUIRED, name) for name in value)
        case "items":
            return _field(_ITEMS, _field(1, _schema(value)))
        case "additionalProperties":
            return _field(_ADDITIONAL, _field(1, _schema(value)))
        case "properties":
            parts = (_field(1, _named(name, _schema(part))) for name, part in value.items())
            return _field(_PROPERTIES, b"".join(parts))
    raise ValueError(f"keyword {key} of a schema has no protobuf form")


def _named(name: str, value: bytes) -> bytes:
    return _field(1, name) + _field(2, value)


def _field(number: int, value: bytes | str) -> bytes:
    """Return a length-delimited field."""
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
