"""Rules of RBAC as access policies limit them, for lists of a user's rights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from tower.clusters.policies.access_levels import FULL, METHODS, levels_of_info
from tower.kube.access.rbac import ALL, GROUP, Rule
from tower.kube.request_info import RequestInfo

# Verbs of other paths, which are methods.
_PATH_VERBS = ("get", "head", "options", "post", "put", "patch", "delete")

# Any namespace; the levels permit the same in all.
_NAMESPACE = "default"


def permitted_rules(rules: Iterable[Rule], levels: int) -> Iterator[Rule]:
    """Yield *rules* with only those verbs that one of *levels* permits; ``*`` becomes a list of verbs.

    A rule with ``*`` for groups or resources keeps verbs that are permitted for some of them only.
    """
    for rule in rules:
        if levels & FULL:
            yield rule
        elif rule.urls:
            verbs = tuple(
                verb
                for verb in _listed(rule.verbs, _PATH_VERBS)
                if levels & levels_of_info(RequestInfo(verb, "/"), verb.upper().encode())
            )
            if verbs:
                yield evolve(rule, verbs=verbs)
        else:
            yield from _parts(rule, levels)


def _parts(rule: Rule, levels: int) -> Iterator[Rule]:
    """Yield the parts of a rule, by the verbs that are permitted for their groups and resources."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    listed = _listed(rule.verbs, tuple(METHODS))
    for groups in _kinds(rule.api_groups):
        for resource in rule.resources:
            verbs = tuple(verb for verb in listed if levels & _levels(verb, groups[0], resource))
            if verbs:
                found.setdefault((groups, verbs), []).append(resource)
    for (groups, verbs), resources in found.items():
        yield evolve(rule, verbs=verbs, api_groups=groups, resources=tuple(resources))


def _kinds(groups: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield *groups* in parts whose resources have the same levels."""
    for part in (
        tuple(group for group in groups if group not in ("", GROUP)),
        tuple(group for group in groups if not group),
        tuple(group for group in groups if group == GROUP),
    ):
        if part:
            yield part


def _levels(verb: str, group: str, resource: str) -> int:
    method = METHODS.get(verb)
    if method is None:
        return FULL  # a right without a request, such as impersonate
    name, _, subresource = resource.partition("/")
    info = RequestInfo(verb, "", group, "v1", _NAMESPACE, name, subresource, is_resource=True)
    return levels_of_info(info, method)


def _listed(verbs: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known if ALL in verbs else verbs))
