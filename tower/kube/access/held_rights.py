"""Rights that a user holds, and those that a role grants beyond them: kube-apiserver's escalation check.

kube-apiserver expands each rule into combinations of one verb, API group, resource and name, which a short
role can have millions of.  Here, verbs are compared together, rules that one held rule covers are not
expanded, and `HeldRights.comparisons` is the number of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from tower.kube.access.rbac import ALL, Rule, covers_url

#: Most comparisons for one write; they take about 0.2 s.
COMPARISON_LIMIT = 1_000_000


class _HeldRule:
    """A rule of the user, for fast comparisons."""

    __slots__ = ("_groups", "_names", "_resources", "urls", "verbs")

    def __init__(self, rule: Rule) -> None:
        self.verbs = frozenset(rule.verbs)
        self._groups = frozenset(rule.api_groups)
        self._resources = frozenset(rule.resources)
        self._names = frozenset(rule.resource_names)
        self.urls = frozenset(rule.urls)

    def covers(self, rule: Rule) -> bool:
        """Return whether it alone allows all that *rule* does."""
        return (
            (ALL in self.verbs or self.verbs.issuperset(rule.verbs))
            and all(map(self.has_group, rule.api_groups))
            and all(map(self.has_resource, rule.resources))
            and (all(map(self.has_name, rule.resource_names)) if rule.resource_names else not self._names)
            and all(map(self.has_url, rule.urls))
        )

    def has_group(self, group: str) -> bool:
        return ALL in self._groups or group in self._groups

    def has_resource(self, resource: str) -> bool:
        if ALL in self._resources or resource in self._resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self._resources

    def has_name(self, name: str) -> bool:
        """Return whether it is for objects of a name; the empty one stands for all objects."""
        return not self._names or name in self._names

    def has_url(self, url: str) -> bool:
        return any(covers_url(own, url) for own in self.urls)


@frozen(eq=False, repr=False)
class HeldRights:
    """The rights of a user."""

    _rules: Sequence[_HeldRule]

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> HeldRights:
        """Return the rights that *rules* allow."""
        return cls([_HeldRule(each) for each in dict.fromkeys(rules)])

    def comparisons(self, granted: Sequence[Rule]) -> int:
        """Return how many comparisons `missing` needs, at most; more than `COMPARISON_LIMIT`: too many."""
        held = sum(1 + len(each.urls) for each in self._rules)
        simple = held * len(granted)
        if simple > COMPARISON_LIMIT:
            return simple
        return simple + sum(
            (held + len(rule.verbs))
            * (len(rule.api_groups) * len(rule.resources) * max(1, len(rule.resource_names)) + len(rule.urls))
            for rule in self._uncovered(granted)
        )

    def missing(self, granted: Iterable[Rule]) -> list[Rule]:
        """Return what *granted* allows beyond these rights, with one rule for all verbs of a resource."""
        missing: dict[Rule, tuple[str, ...]] = {}
        for rule in self._uncovered(granted):
            for key, verbs in self._missing_of(rule):
                missing[key] = missing.get(key, ()) + verbs
        found = {Rule(verbs, *_parts(key)) for key, verbs in missing.items() if not key.urls}
        paths = {Rule((verb,), urls=key.urls) for key, verbs in missing.items() if key.urls for verb in verbs}
        return sorted(found | paths, key=str)

    def _uncovered(self, granted: Iterable[Rule]) -> Iterator[Rule]:
        """Yield the rules that no single held rule covers."""
        for rule in granted:
            if not any(each.covers(rule) for each in self._rules):
                yield rule

    def _missing_of(self, rule: Rule) -> Iterator[tuple[Rule, tuple[str, ...]]]:
        """Yield rules without verbs, for one resource, name or path each, and the verbs that are missing."""
        for group in rule.api_groups:
            of_group = [each for each in self._rules if each.has_group(group)]
            for resource in rule.resources:
                of_resource = [each for each in of_group if each.has_resource(resource)]
                for name in rule.resource_names or ("",):
                    held = [each for each in of_resource if each.has_name(name)]
                    if verbs := _without(rule.verbs, held):
                        names = (name,) if rule.resource_names else ()
                        yield Rule((), (group,), (resource,), names), verbs
        for url in rule.urls:
            if verbs := _without(rule.verbs, [each for each in self._rules if each.has_url(url)]):
                yield Rule(urls=(url,)), verbs


def _without(verbs: Sequence[str], held: Iterable[_HeldRule]) -> tuple[str, ...]:
    known = frozenset[str]().union(*(each.verbs for each in held))
    return () if ALL in known else tuple(verb for verb in verbs if verb not in known)


def _parts(rule: Rule) -> tuple[tuple[str, ...], ...]:
    return rule.api_groups, rule.resources, rule.resource_names
