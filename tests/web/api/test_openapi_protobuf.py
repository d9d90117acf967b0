"""Tests of `tower.web.api.openapi_protobuf`: the document is decoded again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.web.api import openapi
from tower.web.api.openapi_protobuf import encoded


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the length-delimited fields of a message."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        key, length = varint(), varint()
        assert key & 7 == 2
        yield key >> 3, data[position : position + length]
        position += length


def named(data: bytes) -> tuple[str, bytes]:
    """Return name and value of an entry."""
    found = dict(fields(data))
    return found[1].decode(), found.get(2, b"")


def schema(data: bytes) -> dict[str, Any]:
    """Return a schema."""
    found: dict[str, Any] = {}
    for number, value in fields(data):
        match number:
            case 2:
                found["format"] = value.decode()
            case 4:
                found["description"] = value.decode()
            case 19:
                found.setdefault("required", []).append(value.decode())
            case 21:
                found["additionalProperties"] = schema(dict(fields(value))[1])
            case 22:
                found["type"] = dict(fields(value))[1].decode()
            case 23:
                found["items"] = schema(dict(fields(value))[1])
            case 25:
                found["properties"] = {
                    name: schema(part) for name, part in (named(each) for _, each in fields(value))
                }
            case 31:
                name, extension = named(value)
                found[name] = json.loads(dict(fields(extension))[2])
            case _:
                raise AssertionError(number)
    return found


class OpenAPIProtobufTests(SynchronousTestCase):
    """The document of version 2."""

    def test_same_as_json(self) -> None:
        """Both forms describe the same kinds."""
        _, raw = openapi.version_two(openapi.PROTOBUF_V2)
        document = dict(fields(raw))
        self.assertEqual(document[1], b"2.0")
        self.assertEqual(dict(fields(document[2]))[1], b"Tower")
        definitions = {name: schema(part) for name, part in (named(each) for _, each in fields(document[9]))}
        _, text = openapi.version_two("application/json")
        self.assertEqual(definitions, json.loads(text)["definitions"])
        self.assertIn("io.kubesphere.cluster.v1alpha1.Cluster", definitions)

    def test_unknown_keyword(self) -> None:
        """A keyword that has no form here is an error, not omitted."""
        error = self.assertRaises(ValueError, encoded, "T", "v1", {"A": {"maximum": 1}})
        self.assertIn("maximum", str(error))
