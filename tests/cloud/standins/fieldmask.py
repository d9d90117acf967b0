"""The parameter ``fields`` of Google's APIs, which selects fields of the response."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

#: Names that are wanted, ``*`` for all of them, and what of each; nothing: all of it.
Mask: TypeAlias = "dict[str, Mask]"

_TOKEN = re.compile(r"[A-Za-z0-9_]+|[*/,()]")


def parse_mask(text: str) -> Mask:
    """Read ``a,b/c,d(e,f)``.

    :raise ValueError: it is no such list.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise ValueError(text)
    mask = _list(tokens)
    if tokens:
        raise ValueError(text)
    return mask


def masked(value: Any, mask: Mask) -> Any:
    """Return what of a value is wanted."""
    if not mask:
        return value
    if isinstance(value, list):
        return [masked(each, mask) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: masked(inner, mask.get(name, mask.get("*", {})))
        for name, inner in value.items()
        if name in mask or "*" in mask
    }


def _list(tokens: list[str]) -> Mask:
    mask: Mask = {}
    while True:
        name = _name(tokens)
        inner = mask.setdefault(name, {})
        while tokens[:1] == ["/"]:
            del tokens[0]
            inner = inner.setdefault(_name(tokens), {}) if tokens[:1] != ["("] else inner
        if tokens[:1] == ["("]:
            del tokens[0]
            inner |= _list(tokens)
            if tokens[:1] != [")"]:
                raise ValueError("a parenthesis is not closed")
            del tokens[0]
        if tokens[:1] != [","]:
            return mask
        del tokens[0]


def _name(tokens: list[str]) -> str:
    if not tokens or tokens[0] in "/,()":
        raise ValueError("a name is missing")
    return tokens.pop(0)
