"""Label and field selectors of list and watch requests.

The grammar is that of Kubernetes (`a=b,c!=d,e in (f,g),!h`).  An invalid selector is rejected: if it were
ignored, `kubectl delete -l` would delete everything.  Sans-IO.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tower.errors import TowerError
from tower.web.api.table import Object

Labels: TypeAlias = Mapping[str, str]
Requirement: TypeAlias = Callable[[Labels], bool]

#: Fields by their names in field selectors.
Fields: TypeAlias = dict[str, Callable[[Object], str]]

#: The field that all objects have, and that of objects of one cluster.
NAME_FIELD: Fields = {"metadata.name": lambda item: str(item["metadata"]["name"])}
CLUSTER_FIELD: Fields = {"spec.cluster": lambda item: str(item["spec"]["cluster"])}

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s+\(([^()]*)\)\s*")
_EQUAL = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.:/+]*)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")


class BadSelector(TowerError):
    """The selector is invalid or names a field that cannot be selected by: answer 400."""


def parse_labels(text: str) -> list[Requirement]:
    """Return the requirements of the label selector *text*; all must hold.

    :raise BadSelector: it is invalid.
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


def parse_fields(text: str, fields: Mapping[str, Callable[[Object], str]]) -> list[Requirement]:
    """Return the requirements of the field selector *text*, for a mapping of supported *fields* to values.

    :raise BadSelector: it is invalid or names another field.
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
            raise BadSelector(f"{match[1]!r} is not supported in field selectors: use {known}")
        found.append(_equal(*match.groups()))
    return found


class Selection:
    """The field and label selectors of a query.

    :param fields: the supported fields, and how to read them.
    :raise BadSelector: a selector is invalid.
    """

    def __init__(self, query: Mapping[str, str], fields: Mapping[str, Callable[[Object], str]]) -> None:
        self._readers = fields
        self._fields = parse_fields(query.get("fieldSelector", ""), fields)
        self._labels = parse_labels(query.get("labelSelector", ""))

    def matches(self, item: Object) -> bool:
        """Return whether the object matches."""
        return self.matches_fields(item) and self.matches_labels(item)

    def matches_fields(self, item: Object) -> bool:
        """Return whether the fields match, which never change."""
        values = {name: read(item) for name, read in self._readers.items()}
        return all(holds(values) for holds in self._fields)

    def matches_labels(self, item: Object) -> bool:
        """Return whether the labels match."""
        labels = item["metadata"].get("labels", {})
        return all(holds(labels) for holds in self._labels)


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
