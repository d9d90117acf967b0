"""Values in Go's notation, for the texts of kube-apiserver."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from tower import escaping

# Longest shown text, characters, and most shown items.
_SHOWN, _ITEMS = 200, 20

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_UNIT = re.compile(r"[^.0-9]*")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

#: Longest text of a duration, characters; unauthenticated clients send them, too.
_LONGEST_TEXT = 100

#: Longest duration, s: 2^63 ns.
_LONGEST = (1 << 63) * 1e-9


def quoted(text: str) -> str:
    """Return *text*, which may be long, as Go quotes it."""
    return escaping.quoted(text, _SHOWN)


def quoted_list(values: Iterable[str]) -> str:
    """Return the texts of a list, quoted; a long list ends with an ellipsis."""
    found = list(islice(values, _ITEMS + 1))
    more = " …" if len(found) > _ITEMS else ""
    return f"[{' '.join(quoted(each) for each in found[:_ITEMS])}{more}]"


def mismatch(value: Any, wanted: str) -> str:
    """Return the error for a JSON value of the wrong type; example of *wanted*: ``value of type string``."""
    return f"json: cannot unmarshal {_kind(value)} into Go {wanted}"


def go_duration(text: str) -> float:
    """Parse a duration as Go's ``time.ParseDuration``; return seconds, which may be negative.

    :raise ValueError: with Go's message.
    """
    invalid = ValueError(f"time: invalid duration {quoted(text)}")
    if len(text) > _LONGEST_TEXT:
        raise invalid
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    if not rest:
        raise invalid
    seconds = 0.0
    while rest:
        number = _NUMBER.match(rest)
        if number is None:
            raise invalid
        unit = _UNIT.match(rest, number.end())
        assert unit is not None
        if not unit[0]:
            raise ValueError(f"time: missing unit in duration {quoted(text)}")
        if unit[0] not in _UNITS:
            raise ValueError(f"time: unknown unit {quoted(unit[0])} in duration {quoted(text)}")
        seconds += float(number[0]) * _UNITS[unit[0]]
        rest = rest[unit.end() :]
        if seconds > _LONGEST:
            raise invalid
    return -seconds if text[0] == "-" else seconds


def _kind(value: Any) -> str:
    """Return Go's name of the type of a JSON value."""
    for types, name in (((bool,), "bool"), ((int, float), "number"), ((str,), "string"), ((list,), "array")):
        if isinstance(value, types):
            return name
    return "object"
