"""Label and field selectors of list and watch requests.

The grammar is that of Kubernetes (`a=b,c!=d,e in (f,g),!h`).  A selector that we cannot read is refused:
passing over it would make `kubectl delete -l` delete everything.  Sans-IO.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tower.errors import TowerError

Labels: TypeAlias = Mapping[str, str]
Requirement: TypeAlias = Callable[[Labels], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s+\(([^()]*)\)\s*")
_EQUAL = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.:/+]*)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")


class BadSelector(TowerError):
    """A selector that cannot be read or names a field that cannot be selected by: answer 400."""


def parse_labels(text: str) -> list[Requirement]:
    """Return what *text* requires; all of it has to hold.

    :raise BadSelector: when it cannot be read.
    """
    found: list[Requirement] = []
    position = 0
    while position < len(text):
        for pattern, build in ((_SET, _set), (_EQUAL, _equal), (_EXISTS, _exists)):
            match = pattern.match(text, position)
            if match and (match.end() == len(text) or text[match.end()] == ","):
                found.append(build(*match.groups()))
                position = match.end() + 1
                break
        else:
            raise BadSelector(f"unable to parse the label selector {text!r} at {text[position:]!r}")
    return found


def parse_fields(text: str, fields: Mapping[str, Callable[[dict[str, Any]], str]]) -> list[Requirement]:
    """Return what the field selector *text* requires of a mapping of field names to values.

    :param fields: the fields that may be selected by; `read_fields` makes the mapping.
    :raise BadSelector: when it cannot be read or names another field.
    """
    found = []
    for part in text.split(","):
        if not part.strip():
            continue
        match = _EQUAL.fullmatch(part)
        if match is None:
            raise BadSelector(f"unable to parse the field selector {text!r}")
        if match[1] not in fields:
            known = ", ".join(sorted(fields))
            raise BadSelector(f"{match[1]!r} is not a field to select by; these are: {known}")
        found.append(_equal(*match.groups()))
    return found


def read_fields(
    item: dict[str, Any], fields: Mapping[str, Callable[[dict[str, Any]], str]]
) -> dict[str, str]:
    """Return the values of *fields* in the object *item*."""
    return {name: read(item) for name, read in fields.items()}


def _set(key: str, operator: str, values: str) -> Requirement:
    wanted = {value.strip() for value in values.split(",")}
    if operator == "in":
        return lambda labels: labels.get(key) in wanted
    return lambda labels: labels.get(key) not in wanted


def _equal(key: str, operator: str, value: str) -> Requirement:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _exists(negation: str, key: str) -> Requirement:
    if negation:
        return lambda labels: key not in labels
    return lambda labels: key in labels
