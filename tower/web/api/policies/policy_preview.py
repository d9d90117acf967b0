"""Effects of a new policy, a change or a removal: the entry of each subject into each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from attrs import define
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.clusters.policies.access_policy import AccessPolicy, PolicySpec, Subject
from tower.clusters.policies.member_names import DOOR, MemberNames
from tower.clusters.policies.policy_index import PolicyIndex
from tower.escaping import escaped
from tower.options.values import format_duration
from tower.reactor.cooperate import map_cooperatively

#: Most subjects and clusters that are compared, and clusters that are named.
SUBJECT_LIMIT = 50
CLUSTER_LIMIT = 500
NAMED = 5

#: Subjects in clusters that are compared at a time: with 1,000 policies for a subject, they take 2 ms.
PAIRS = 5

_NOBODY = "no entry"

# A subject in a cluster, with the other policies for this subject, and their descriptions.
_Pair: TypeAlias = tuple[Subject, Sequence[tuple[PolicySpec, str]], Cluster]


@define(eq=False, repr=False)
class PolicyPreview:
    """Compares the entry of users before and after a change of one policy.

    :param clock: runs long comparisons in pieces.
    """

    _index: PolicyIndex
    _clusters: Clusters
    _clock: IReactorTime

    async def __call__(self, old: AccessPolicy | None, new: AccessPolicy | None) -> list[str]:
        """Return a line for each change; *old* is None for a new policy, *new* for a removal.

        A subject is considered alone: a user who is in several groups may have more access than that.
        """
        subjects = _subjects(old, new)
        clusters = [cluster for cluster in self._clusters.list() if _concerns(old, new, cluster)]
        name = "".join({each.name for each in (old, new) if each})
        compared = _Compared(old, new)
        pairs = self._pairs(subjects[:SUBJECT_LIMIT], clusters[:CLUSTER_LIMIT], name)
        await map_cooperatively(self._clock, pairs, compared.add, PAIRS)
        found = [
            f"would change: {escaped(subject)} in {_named(names)}: {before} -> {after}"
            for (subject, before, after), names in compared.lines.items()
        ]
        for what, items, limit in (
            ("subjects", subjects, SUBJECT_LIMIT),
            ("clusters", clusters, CLUSTER_LIMIT),
        ):
            if len(items) > limit:
                found.append(f"only the first {limit} of {len(items)} {what} were compared")
        if not found and not clusters:
            return ["would change nothing: no cluster has such a name or labels"]
        return found or ["would change nothing: no user's entry differs"]

    def _pairs(self, subjects: Iterable[Subject], clusters: Sequence[Cluster], name: str) -> Iterator[_Pair]:
        """Yield each subject with each cluster; *name* is that of the changed policy."""
        for subject in subjects:
            policies = [policy for policy in self._index.of([subject.key]) if policy.name != name]
            others = [(policy.spec, describe_policy(policy)) for policy in policies]
            for cluster in clusters:
                yield subject, others, cluster


class _Compared:
    """The changes of *old* to *new*.

    :ivar lines: the clusters of each change: subject, and entry before and after it.
    """

    def __init__(self, old: AccessPolicy | None, new: AccessPolicy | None) -> None:
        self._sides = [(each, describe_policy(each) if each else "") for each in (old, new)]
        self.lines: dict[tuple[str, str, str], list[str]] = {}

    def add(self, pair: _Pair) -> None:
        """Compare the entry of one subject into one cluster."""
        subject, others, cluster = pair
        texts = {text for spec, text in others if spec.selects(cluster.name, cluster.labels)}
        entries = []
        for policy, text in self._sides:
            is_concerned = policy is not None and subject in policy.spec.subjects
            if is_concerned and _concerns(policy, None, cluster):
                entries.append(texts | {text})
            else:
                entries.append(texts)
        before, after = (" and ".join(sorted(each)) or _NOBODY for each in entries)
        if before != after:
            self.lines.setdefault((str(subject), before, after), []).append(cluster.name)


def _subjects(*policies: AccessPolicy | None) -> list[Subject]:
    return list(dict.fromkeys(each for policy in policies if policy for each in policy.spec.subjects))


def _concerns(old: AccessPolicy | None, new: AccessPolicy | None, cluster: Cluster) -> bool:
    return any(each.spec.selects(cluster.name, cluster.labels) for each in (old, new) if each)


def describe_policy(policy: AccessPolicy) -> str:
    """Return the access that a policy gives, in words."""
    spec = policy.spec
    text = f"{spec.access} access"
    if spec.targets != ("kubernetes",):
        text += f" to {', '.join(spec.targets)}"
    if spec.window is not None:
        text += f" {spec.window}"
    if spec.ttl:
        text += f" for {format_duration(spec.ttl)} at a time"
    return text + _describe_names(spec.names)


def _describe_names(names: MemberNames) -> str:
    if names == MemberNames():
        return ""
    groups = [*names.groups, *(f"{old}>{new}" for old, new in names.mapping.items())]
    parts = [f"groups {', '.join(groups) or 'none'}"]
    if names.uid:
        parts.append("with the UID")
    if names.extra:
        parts.append(f"extra {', '.join(names.extra)}")
    if names.account_prefix != DOOR:
        parts.append(f"service accounts {names.account_prefix}...")
    return f" as {names.user} ({'; '.join(parts)})"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"cluster {', '.join(names[:NAMED])}{more}"
        if len(names) == 1
        else (f"clusters {', '.join(names[:NAMED])}{more}")
    )
