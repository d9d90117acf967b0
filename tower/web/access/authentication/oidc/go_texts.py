"""Values in Go's notation, for the texts of kube-apiserver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tower import escaping

# Longest shown text, characters, and most shown items.
_SHOWN, _ITEMS = 200, 20


def quoted(text: str) -> str:
    """Return *text*, which may be long, as Go quotes it."""
    return escaping.quoted(text, _SHOWN)


def quoted_list(values: Sequence[str]) -> str:
    """Return the texts of a list, quoted."""
    return f"[{' '.join(quoted(each) for each in values[:_ITEMS])}]"


def mismatch(value: Any, wanted: str) -> str:
    """Return the error for a JSON value of another type; *wanted* is such as ``value of type string``."""
    return f"json: cannot unmarshal {_kind(value)} into Go {wanted}"


def _kind(value: Any) -> str:
    """Return Go's name of the type of a JSON value."""
    for types, name in (((bool,), "bool"), ((int, float), "number"), ((str,), "string"), ((list,), "array")):
        if isinstance(value, types):
            return name
    return "object"
