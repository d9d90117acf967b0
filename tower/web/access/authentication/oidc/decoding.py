"""Strict decoding of a configuration file, with the texts of Kubernetes' decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from tower.kube.access.go_texts import mismatch


@attrs.frozen
class Struct:
    """An object with these fields; *name* is that of its type in Go."""

    name: str
    fields: Mapping[str, Schema]


@attrs.frozen
class ListOf:
    """A list of values of one type."""

    item: Schema


#: A type; ``str`` and ``bool`` are themselves.
Schema: TypeAlias = "Struct | ListOf | type"


def check_strictly(value: Any, schema: Struct) -> None:
    """Check that *value* has the types of *schema*, and no other fields; null is each type's empty value.

    :raise ValueError: with the first value of another type, or else with all unknown fields.
    """
    unknown = [f'unknown field "{path}"' for path in _unknown(value, schema, "", schema.name, "")]
    if unknown:
        raise ValueError(f"strict decoding error: {', '.join(unknown)}")


def _unknown(value: Any, schema: Schema, path: str, owner: str, plain: str) -> Iterator[str]:
    """Yield the paths of unknown fields; *plain* is the path without indexes."""
    if value is None:
        return
    if isinstance(schema, Struct):
        _require(isinstance(value, dict), value, schema, owner, plain)
        for name, each in value.items():
            at, below = (f"{path}.{name}", f"{plain}.{name}") if path else (name, name)
            if name in schema.fields:
                yield from _unknown(each, schema.fields[name], at, schema.name, below)
            else:
                yield at
    elif isinstance(schema, ListOf):
        _require(isinstance(value, list), value, schema, owner, plain)
        for i, each in enumerate(value):
            yield from _unknown(each, schema.item, f"{path}[{i}]", owner, plain)
    else:
        _require(isinstance(value, schema), value, schema, owner, plain)


def _require(fits: bool, value: Any, schema: Schema, owner: str, plain: str) -> None:
    if not fits:
        field = f"struct field {owner}.{plain}" if plain else "value"
        raise ValueError(mismatch(value, f"{field} of type {_name(schema)}"))


def _name(schema: Schema) -> str:
    """Return the type in Go."""
    if isinstance(schema, ListOf):
        return f"[]{_name(schema.item)}"
    if isinstance(schema, Struct):
        return f"v1.{schema.name}"
    return "string" if schema is str else schema.__name__
