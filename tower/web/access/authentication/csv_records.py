"""CSV as Go's encoding/csv reads it (RFC 4180), with the texts of its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PLAIN = re.compile(r"[^,\n]*")


def csv_records(text: str) -> Iterator[list[str]]:
    """Yield the fields of each record; empty lines are skipped.

    :raise ValueError: a record is malformed; the text has no part of it.
    """
    text = text.replace("\r\n", "\n").removesuffix("\r")
    at, line = 0, 1
    while at < len(text):
        if text[at] == "\n":
            at, line = at + 1, line + 1
            continue
        record, at, line = _record(text, at, line)
        yield record


def _record(text: str, at: int, line: int) -> tuple[list[str], int, int]:
    """Return the record at *at*, the position after it, and the number of its line."""
    first, begin = line, at  # number of the first line; begin of the current one
    fields: list[str] = []
    while True:
        if text[at : at + 1] != '"':
            end = _end_of_plain(text, at)
            field = text[at:end]
            if (quote := field.find('"')) >= 0:
                raise _error(first, line, _column(text, begin, at + quote), 'bare " in non-quoted-field')
        else:
            field, end, line, begin = _quoted(text, at, first, line, begin)
        fields.append(field)
        if end >= len(text) or text[end] == "\n":
            return fields, end + 1, line + 1
        at = end + 1


def _end_of_plain(text: str, at: int) -> int:
    found = _PLAIN.match(text, at)
    assert found is not None
    return found.end()


def _quoted(text: str, at: int, first: int, line: int, begin: int) -> tuple[str, int, int, int]:
    """Return the quoted field at *at*, its end, and the number and the begin of the line there."""
    parts = []
    at += 1
    while True:
        quote = text.find('"', at)
        piece = text[at : quote if quote >= 0 else len(text)]
        line += piece.count("\n")
        if "\n" in piece:
            begin = at + piece.rindex("\n") + 1
        parts.append(piece)
        after = text[quote + 1 : quote + 2] if quote >= 0 else ""
        if quote < 0:
            last = text.removesuffix("\n")
            begin = last.rfind("\n") + 1
            line -= text.endswith("\n")
            column = _column(text, begin, len(text))
            raise _error(first, line, column, 'extraneous or missing " in quoted-field')
        if after == '"':
            parts.append('"')
            at = quote + 2
        elif after in ("", ",", "\n"):
            return "".join(parts), quote + 1, line, begin
        else:
            column = _column(text, begin, quote)
            raise _error(first, line, column, 'extraneous or missing " in quoted-field')


def _column(text: str, begin: int, at: int) -> int:
    """Return the column of a position, in bytes and from 1."""
    return len(text[begin:at].encode("utf-8", "surrogateescape")) + 1


def _error(first: int, line: int, column: int, problem: str) -> ValueError:
    where = f"parse error on line {line}, column {column}: {problem}"
    return ValueError(where if first == line else f"record on line {first}; {where}")
