"""Entry into clusters of users without a credential that Tower issued: access policies admit them.

A policy admits its subjects to its clusters, within its time window, and permits requests to its targets up
to its level of access.  Policies are additive: a request needs one policy that permits it.  The user's name
in the member comes from the first of these policies, by name, and the groups from all of these that give the
same name.  So no request has names that a policy gives for other requests only.

`ClusterEntry` keeps each decision until a policy, a time window or the cluster changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from math import inf
from operator import or_
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from tower.clusters import Cluster
from tower.clusters.policies.access_levels import ALL_LEVELS, FULL
from tower.clusters.policies.access_policy import AccessPolicy, SubjectKey, keys_of
from tower.clusters.policies.policy_index import PolicyIndex
from tower.errors import Forbidden, Invalid
from tower.kube.canonical_head import identity_lines
from tower.kube.system_identities import AUTHENTICATED, SystemIdentities, is_reserved
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import Identity, PolicyEntry, UserInfo
from tower.web.access.authentication.reserved_names import GROUPS_LIMIT, NAMES_LIMIT

#: Returns the cluster of a name, or None.
FindCluster: TypeAlias = Callable[[str], Cluster | None]

#: Most decisions that are kept.
KEPT = 4096

_ANONYMOUS = "system:anonymous"


@frozen
class Asked:
    """A request of a user to a cluster.

    :ivar levels: the levels that permit it, see `tower.clusters.policies.access_levels`.
    :ivar target: name of the target.
    :ivar action: returns verb and object for errors, such as ``create pods``.
    """

    levels: int = ALL_LEVELS
    target: str = KUBERNETES
    action: Callable[[], str] = field(default=lambda: "do this", eq=False, repr=False)


@frozen
class Grounds:
    """The policies that concern a user in a cluster, by name.

    :ivar open: those whose time windows are open, or which have none.
    :ivar permitting: those of *open* that permit the request.
    :ivar since: when this began to hold, s since the epoch.
    :ivar until: when it may change, s since the epoch.
    """

    policies: Sequence[AccessPolicy]
    open: Sequence[AccessPolicy]
    permitting: Sequence[AccessPolicy]
    since: float
    until: float


@frozen(eq=False)
class _Decision:
    """A decision that is kept, and the parts of the cluster's record that it depends on."""

    entered: Identity
    labels: Mapping[str, str]
    identities: SystemIdentities

    def holds(self, cluster: Cluster, now: float) -> bool:
        since, until = self.entered.term
        return (
            since <= now < until and self.labels == cluster.labels and self.identities == cluster.identities
        )


@define(eq=False, repr=False)
class ClusterEntry:
    """Decides whether a user enters a cluster.

    :param seconds: returns the time, s since the epoch.
    """

    _index: PolicyIndex
    _seconds: Callable[[], float]
    _kept: dict[tuple[Identity, str, int, str], _Decision] = field(factory=dict, init=False)
    _generation: int = field(default=-1, init=False)

    def take_concerned(self) -> Collection[SubjectKey]:
        """Return the subjects of all policies that have changed since the last call."""
        return self._index.take_concerned()

    def admit(self, identity: Identity, cluster: Cluster | None, name: str, asked: Asked) -> Identity:
        """Return *identity* as it enters the cluster *name*, with its names in the member.

        :param cluster: None: there is none of that name.
        :raise Forbidden: no policy admits the user, or permits this; the text has the cure.
        """
        if cluster is None:
            raise _not_admitted(identity, name)
        if self._generation != self._index.generation:
            self._kept.clear()
            self._generation = self._index.generation
        key = (identity, cluster.uid, asked.levels, asked.target)
        kept = self._kept.get(key)
        now = self._seconds()
        if kept is not None and kept.holds(cluster, now):
            return kept.entered
        entered = self._admitted(identity, cluster, asked, now)
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[key] = _Decision(entered, cluster.labels, cluster.identities)
        return entered

    def levels(self, identity: Identity, cluster: Cluster) -> int:
        """Return the levels of access to the API server that policies give a user now."""
        found = grounds(self._index, identity, cluster, Asked(), self._seconds())
        return reduce(or_, (policy.spec.level for policy in found.permitting), 0)

    def _admitted(self, identity: Identity, cluster: Cluster, asked: Asked, now: float) -> Identity:
        found = grounds(self._index, identity, cluster, asked, now)
        if not found.permitting:
            raise _refusal(identity, cluster.name, asked, found)
        member, policies = member_of(identity, found.permitting, cluster)
        ttls = [policy.spec.ttl or inf for policy in policies]
        names = tuple(policy.name for policy in policies)
        is_uniform = all(
            policy.spec.level == FULL for policy in found.open if policy.spec.has_target(asked.target)
        )
        levels = 0 if is_uniform else asked.levels
        entry = PolicyEntry(cluster.name, names, levels, asked.target, found.since, found.until, max(ttls))
        return evolve(identity, member=member, entry=entry)


def grounds(index: PolicyIndex, identity: Identity, cluster: Cluster, asked: Asked, now: float) -> Grounds:
    """Return the policies that decide about a request at *now*, s since the epoch."""
    policies = index.matching(subjects_of(identity), cluster.name, cluster.labels)
    since, until = -inf, inf
    opened: list[AccessPolicy] = []
    for policy in policies:
        window = policy.spec.window
        if window is None:
            opened.append(policy)
            continue
        is_open, begin, end = window.state(now)
        since, until = max(since, begin), min(until, end)
        if is_open:
            opened.append(policy)
    permitting = [
        policy
        for policy in opened
        if policy.spec.has_target(asked.target) and policy.spec.level & asked.levels
    ]
    return Grounds(policies, opened, permitting, since, until)


def subjects_of(identity: Identity) -> list[SubjectKey]:
    """Return the keys of the subjects that a user is; all but anonymous ones are authenticated."""
    groups: Iterable[str] = identity.groups
    if identity.user != _ANONYMOUS:
        groups = dict.fromkeys((*identity.groups, AUTHENTICATED))
    return keys_of(identity.user, list(groups), identity.extra)


def member_of(
    identity: Identity, policies: Sequence[AccessPolicy], cluster: Cluster
) -> tuple[UserInfo, Sequence[AccessPolicy]]:
    """Return the user in the member, and those of *policies*, not empty, that give this user.

    :raise Forbidden: the member must not have the name or a group, or cannot.
    """
    known, same = names_of(identity, policies, cluster)
    where = f"{identity.user} is not admitted to cluster {cluster.name}: "
    _check_names(where, known, cluster.identities, [policy.name for policy in same])
    if len(known.groups) > GROUPS_LIMIT:
        raise Forbidden(
            f"{where}the user would have {len(known.groups)} groups there, and {GROUPS_LIMIT} are the "
            f"limit: an administrator can choose some with spec.as.groups of access policy {same[0].name}",
            "access-policy",
        )
    return known, same


def names_of(
    identity: Identity, policies: Sequence[AccessPolicy], cluster: Cluster
) -> tuple[UserInfo, Sequence[AccessPolicy]]:
    """Return the user in the member, unchecked, and those of *policies*, not empty, that give this user."""
    user = policies[0].spec.names.user_of(identity.user)
    same = [policy for policy in policies if policy.spec.names.user_of(identity.user) == user]
    groups: dict[str, None] = {}
    facts: dict[str, tuple[str, ...]] = {}
    uid = ""
    for names in dict.fromkeys(policy.spec.names for policy in same):
        groups.update(dict.fromkeys(names.groups_of(identity.user, identity.groups, cluster.identities)))
        facts |= names.facts_of(identity.extra)
        uid = identity.uid if names.uid else uid
    return UserInfo(user, tuple(groups), uid, tuple(facts.items())), same


def reserved_name_of(user: UserInfo, identities: SystemIdentities) -> str:
    """Return which name of a user is reserved in a member, in words; empty: none."""
    for what, name in (("user", user.name), *(("group", group) for group in user.groups)):
        if is_reserved(name, identities):
            return f"the {what} {name!r} is reserved there"
    return ""


def _check_names(where: str, user: UserInfo, rules: SystemIdentities, policies: Sequence[str]) -> None:
    cure = f"an administrator can set spec.as of access policy {', '.join(policies)}"
    if reserved := reserved_name_of(user, rules):
        raise Forbidden(f"{where}{reserved}; {cure}", "reserved-identity")
    try:
        size = len(identity_lines(user.name, user.groups, user.uid, user.extra))
    except Invalid as e:
        raise Forbidden(f"{where}{e}; {cure}", "access-policy") from None
    if size > NAMES_LIMIT:
        raise Forbidden(
            f"{where}the names of the user and the groups have {size} B, and {NAMES_LIMIT} are the limit; "
            f"{cure}",
            "access-policy",
        )


def _not_admitted(identity: Identity, cluster: str) -> Forbidden:
    """Return the refusal of a user without any policy; also for clusters that do not exist."""
    return Forbidden(
        f"{identity.user} is not admitted to cluster {cluster}: ask an administrator of Tower for an access "
        "policy, or for a kubeconfig",
        "access-policy",
    )


def _refusal(identity: Identity, cluster: str, asked: Asked, found: Grounds) -> Forbidden:
    """Return why no policy permits a request."""
    if not found.policies:
        return _not_admitted(identity, cluster)
    text = f"{identity.user} is not admitted to cluster {cluster} "
    if not found.open:
        windows = " and ".join(dict.fromkeys(str(policy.spec.window) for policy in found.policies))
        names = _named(found.policies, "admit")
        again = ""
        if found.until < inf:
            again = f"; the next time is {datetime.fromtimestamp(found.until, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return Forbidden(f"{text}now: {names} only {windows}{again}", "access-policy")
    if not any(policy.spec.has_target(asked.target) for policy in found.open):
        targets = dict.fromkeys(name for policy in found.open for name in policy.spec.targets)
        return Forbidden(
            f"{identity.user} must not use {asked.target or 'this path'} of cluster {cluster}: "
            f"{_named(found.open, 'permit')} only these targets: {', '.join(targets)}",
            "access-policy",
        )
    with_target = [policy for policy in found.open if policy.spec.has_target(asked.target)]
    access = dict.fromkeys(policy.spec.access for policy in with_target)
    return Forbidden(
        f"{identity.user} must not {asked.action()} in cluster {cluster}: "
        f"{_named(with_target, 'permit')} only {' and '.join(access)} access",
        "access-policy",
    )


def _named(policies: Sequence[AccessPolicy], verb: str) -> str:
    names = [policy.name for policy in policies]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"access policy {shown} {verb}s" if len(names) == 1 else f"access policies {shown} {verb}"
