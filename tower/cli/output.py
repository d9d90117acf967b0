"""Output formats of commands: tables, YAML and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from tower.escaping import escaped, readable_json


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table like kubectl's: *header* in capitals, three blanks between columns."""
    lines = [[title.upper() for title in header]]
    lines += [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def table(answer: dict[str, Any], *, wide: bool = False, empty: str = "No resources found") -> str:
    """Return the text of a meta.k8s.io `Table`.

    :param wide: include the columns of lower priority.
    :param empty: text for a table without rows.
    """
    if not answer.get("rows"):
        return empty
    shown = [
        (index, definition["name"])
        for index, definition in enumerate(answer["columnDefinitions"])
        if wide or not definition.get("priority")
    ]
    rows = [[row["cells"][index] for index, _ in shown] for row in answer["rows"]]
    return columns([name for _, name in shown], rows)


def pairs(values: Iterable[tuple[str, object]]) -> str:
    """Return one `Name:  value` line for each pair, with the values aligned."""
    listed = [(f"{name}:", _cell(value)) for name, value in values]
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in listed)


def structured(value: dict[str, Any], form: str) -> str:
    """Return *value* in the format *form*, ``json`` or ``yaml``."""
    return as_json(value) if form == "json" else as_yaml(value)


def as_yaml(value: dict[str, Any]) -> str:
    """Return *value* as YAML, in its own order."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():  # PyYAML considers some of those printable
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def as_json(value: dict[str, Any]) -> str:
    """Return *value* as indented JSON."""
    return readable_json(value)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "<none>"
    if isinstance(value, bool):
        return str(value).lower()
    return escaped(str(value))
