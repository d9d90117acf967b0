"""Effects of a new policy, a change or a removal: the entry of each subject into each cluster."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from tower.clusters import Cluster, Clusters
from tower.clusters.policies.access_policy import AccessPolicy, Subject
from tower.clusters.policies.member_names import DOOR, MemberNames
from tower.clusters.policies.policy_index import PolicyIndex
from tower.escaping import escaped
from tower.options.values import format_duration

#: Most subjects and clusters that are compared, and clusters that are named.
SUBJECT_LIMIT = 50
CLUSTER_LIMIT = 500
NAMED = 5

_NOBODY = "no entry"


@define(eq=False, repr=False)
class PolicyPreview:
    """Compares the entry of users before and after a change of one policy."""

    _index: PolicyIndex
    _clusters: Clusters

    def __call__(self, old: AccessPolicy | None, new: AccessPolicy | None) -> list[str]:
        """Return a line for each change; *old* is None for a new policy, *new* for a removal.

        A subject is considered alone: a user who is in several groups may have more access than that.
        """
        subjects = _subjects(old, new)
        clusters = [cluster for cluster in self._clusters.list() if _concerns(old, new, cluster)]
        lines: dict[tuple[str, str, str], list[str]] = {}
        for subject in subjects[:SUBJECT_LIMIT]:
            for cluster in clusters[:CLUSTER_LIMIT]:
                others = self._others(subject, cluster, old or new)
                before, after = (_entry(others, each, subject, cluster) for each in (old, new))
                if before != after:
                    lines.setdefault((str(subject), before, after), []).append(cluster.name)
        found = [
            f"would change: {escaped(subject)} in {_named(names)}: {before} -> {after}"
            for (subject, before, after), names in lines.items()
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

    def _others(self, subject: Subject, cluster: Cluster, changed: AccessPolicy | None) -> list[AccessPolicy]:
        name = "" if changed is None else changed.name
        policies = self._index.matching([subject.key], cluster.name, cluster.labels)
        return [policy for policy in policies if policy.name != name]


def _subjects(*policies: AccessPolicy | None) -> list[Subject]:
    return list(dict.fromkeys(each for policy in policies if policy for each in policy.spec.subjects))


def _concerns(old: AccessPolicy | None, new: AccessPolicy | None, cluster: Cluster) -> bool:
    return any(each.spec.selects(cluster.name, cluster.labels) for each in (old, new) if each)


def _entry(
    others: Iterable[AccessPolicy], policy: AccessPolicy | None, subject: Subject, cluster: Cluster
) -> str:
    """Return the entry of *subject* by all policies, in words."""
    policies = list(others)
    if (
        policy is not None
        and subject in policy.spec.subjects
        and policy.spec.selects(cluster.name, cluster.labels)
    ):
        policies.append(policy)
    texts = sorted({describe_policy(each) for each in policies})
    return " and ".join(texts) or _NOBODY


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
