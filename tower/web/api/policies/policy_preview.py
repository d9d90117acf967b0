"""Effects of a new policy, a change or a removal: the entry of each subject into each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from attrs import define
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.clusters.policies.access_levels import ALL_LEVELS, FULL, READ_ONLY
from tower.clusters.policies.access_policy import AccessPolicy, Subject
from tower.clusters.policies.member_names import DOOR, USER, MemberNames
from tower.clusters.policies.policy_index import PolicyIndex
from tower.escaping import escaped
from tower.kube.access.service_accounts import EVERY_ACCOUNT
from tower.kube.system_identities import ANONYMOUS_USER, NONE_ALLOWED, UNAUTHENTICATED_GROUP, is_reserved
from tower.options.values import format_duration
from tower.reactor.cooperate import map_cooperatively
from tower.web.access.authentication.identity import Extra, Identity, implied_groups
from tower.web.access.authorization.cluster_entry import names_of, reserved_name_of, subjects_of

#: Most subjects and clusters that are compared, and clusters that are named.
SUBJECT_LIMIT = 50
CLUSTER_LIMIT = 500
NAMED = 5

#: Subjects in clusters that are compared at a time: with 1,000 policies for a subject, they take 2 ms.
PAIRS = 5

_NOBODY = "no entry"

# A policy that admits a subject, its description, and whether it gives the subject a reserved name.
_Described: TypeAlias = tuple[AccessPolicy, str, bool]

# A subject in a cluster: its text, the user that it stands for, the policies before and after the change.
_Pair: TypeAlias = tuple[str, Identity, Sequence[Sequence[_Described]], Cluster]


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

        A subject is considered alone, with the groups that its users are always in: a user who is in further
        groups may have more access than that.
        """
        subjects = _subjects(old, new)
        clusters = [cluster for cluster in self._clusters.list() if _concerns(old, new, cluster)]
        compared = _Compared()
        pairs = self._pairs(subjects[:SUBJECT_LIMIT], clusters[:CLUSTER_LIMIT], old, new)
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

    def _pairs(
        self,
        subjects: Iterable[Subject],
        clusters: Sequence[Cluster],
        old: AccessPolicy | None,
        new: AccessPolicy | None,
    ) -> Iterator[_Pair]:
        """Yield each subject with each cluster."""
        changed = {each.name for each in (old, new) if each}
        sides = [
            (each, {found.key for found in each.spec.subjects} if each else set()) for each in (old, new)
        ]
        for subject in subjects:
            user = _user_of(subject)
            keys = subjects_of(user)
            others = [
                _described(policy, user) for policy in self._index.of(keys) if policy.name not in changed
            ]
            entries = []
            for policy, concerned in sides:
                is_concerned = policy is not None and not concerned.isdisjoint(keys)
                more = [_described(policy, user)] if policy is not None and is_concerned else []
                entries.append(sorted([*others, *more], key=lambda each: each[0].name))
            for cluster in clusters:
                yield str(subject), user, entries, cluster


class _Compared:
    """The changes of the entries of subjects.

    :ivar lines: the clusters of each change: subject, and entry before and after it.
    """

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str, str], list[str]] = {}

    def add(self, pair: _Pair) -> None:
        """Compare the entry of one subject into one cluster."""
        subject, user, (old, new), cluster = pair
        before, after = _entry(user, old, cluster), _entry(user, new, cluster)
        if before != after:
            self.lines.setdefault((subject, before, after), []).append(cluster.name)


def _entry(user: Identity, policies: Sequence[_Described], cluster: Cluster) -> str:
    """Return the entry into a cluster that these policies give, in words."""
    found = [each for each in policies if each[0].spec.selects(cluster.name, cluster.labels)]
    rejections: dict[tuple[str, int], str] = {}
    if any(has_reserved for _, _, has_reserved in found):
        for at in {_request_of(policy) for policy, _, _ in found}:
            rejections[at] = _rejection(user, [policy for policy, _, _ in found], *at, cluster)
    texts = {text + rejections.get(_request_of(policy), "") for policy, text, _ in found}
    return " and ".join(sorted(texts)) or _NOBODY


def _request_of(policy: AccessPolicy) -> tuple[str, int]:
    """Return target and levels of the requests that a policy permits and lower levels do not."""
    level = policy.spec.level
    return policy.spec.targets[0], ALL_LEVELS if level == READ_ONLY else FULL | level


def _rejection(
    user: Identity, policies: Sequence[AccessPolicy], target: str, levels: int, cluster: Cluster
) -> str:
    """Return why the cluster rejects requests in spite of *policies*; empty: it does not.

    The names are those of all policies that permit the requests.
    """
    permitting = [each for each in policies if each.spec.has_target(target) and each.spec.level & levels]
    known, _ = names_of(user, permitting, cluster)
    reserved = reserved_name_of(known, cluster.identities)
    return f" (rejected: {reserved})" if reserved else ""


def _described(policy: AccessPolicy, user: Identity) -> _Described:
    names = policy.spec.names
    own = (names.user_of(user.user), *names.groups_of(user.user, user.groups, NONE_ALLOWED))
    return policy, describe_policy(policy), any(map(is_reserved, own))


def _user_of(subject: Subject) -> Identity:
    """Return a user who is this subject and nothing else."""
    name, groups = USER, tuple[str, ...]()
    extra: Extra = ()
    match subject.kind:
        case "User" | "ServiceAccount":
            name = subject.key[1]
            groups = implied_groups(name)
        case "Group":
            groups = (subject.name,)
            if subject.name == UNAUTHENTICATED_GROUP:
                name = ANONYMOUS_USER
            elif subject.name.startswith(f"{EVERY_ACCOUNT}:"):
                groups = (EVERY_ACCOUNT, subject.name)
        case "Claim":
            extra = ((subject.name, (subject.value,)),)
    return Identity(name, groups, extra=extra, method="preview")


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
