"""The clusters in which a binding applies, and whether it applies to Tower's own API.

A rule names resources of an API server, and Tower has many of them.  Without the annotation
``tower.kubesphere.io/clusters`` a binding applies in all clusters.  Its value is a list of names, with ``*``
for any characters, separated by commas; ``@tower`` is Tower's own API.  A binding to a ClusterRole whose name
begins with ``tower:`` applies to Tower's own API only, unless it has the annotation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

import attrs

#: The annotation.
ANNOTATION = "tower.kubesphere.io/clusters"

#: The entry for Tower's own API, which no pattern includes.
OWN_ENTRY = "@tower"

#: The valid entries, for errors.
ENTRIES = "the name of a cluster, a pattern with * such as test-*, or @tower for Tower's own API"

#: The name of Tower's own API in place of a cluster's.
OWN = ""

_NAME = re.compile(r"[a-z0-9*]([a-z0-9.*-]*[a-z0-9*])?")
_STARS = re.compile(r"\*+")


@attrs.frozen
class ClusterScope:
    """The clusters that an annotation names.

    :ivar patterns: names of clusters with ``*``.
    :ivar everywhere: whether it includes all clusters.
    :ivar has_own: whether it includes Tower's own API.
    """

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    everywhere: bool = False
    has_own: bool = False

    @classmethod
    def of(cls, annotations: Mapping[str, str], *, is_own: bool = False) -> Self:
        """Return the scope of an object with these annotations; wrong entries name no cluster.

        :param is_own: whether it is for Tower's own API by default.
        """
        value = annotations.get(ANNOTATION)
        if value is None:
            return cls(everywhere=not is_own, has_own=is_own)
        entries = {each.strip() for each in value.split(",")}
        patterns = tuple(
            _STARS.sub("*", each) for each in sorted(entries) if "*" in each and _NAME.fullmatch(each)
        )
        names = frozenset(each for each in entries if each and "*" not in each and each != OWN_ENTRY)
        return cls(names, patterns, "*" in entries, OWN_ENTRY in entries)

    def includes(self, cluster: str) -> bool:
        """Return whether it includes a cluster, or Tower's own API, which is `OWN`."""
        if not cluster:
            return self.has_own
        return (
            self.everywhere or cluster in self.names or any(_matches(each, cluster) for each in self.patterns)
        )

    def covers(self, other: ClusterScope) -> bool:
        """Return whether it includes all that *other* does, also in later clusters."""
        if other.has_own and not self.has_own:
            return False
        if self.everywhere:
            return True
        return (
            not other.everywhere
            and set(other.patterns) <= set(self.patterns)
            and all(self.includes(name) for name in other.names)
        )


def wrong_entries(annotations: Mapping[str, str]) -> list[str]:
    """Return the entries of the annotation that name no cluster."""
    value = annotations.get(ANNOTATION)
    entries = [] if value is None else [each.strip() for each in value.split(",")]
    return [each for each in entries if each != OWN_ENTRY and not _NAME.fullmatch(each)]


def _matches(pattern: str, name: str) -> bool:
    """Return whether *name* is of *pattern*; a regular expression with many stars would take for ever."""
    first, *inner, last = pattern.split("*")
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    position, end = len(first), len(name) - len(last)
    for part in inner:
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


#: Tower's own API.
OWN_SCOPE = ClusterScope(has_own=True)
