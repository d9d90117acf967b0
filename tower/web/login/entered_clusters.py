"""The clusters that a user may enter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.clusters.condition_types import AVAILABLE
from tower.clusters.policies.policy_index import PolicyIndex
from tower.errors import Forbidden
from tower.kube.system_identities import SystemIdentities
from tower.reactor.cooperate import map_cooperatively
from tower.web.access.authentication.identity import Identity, UserInfo
from tower.web.access.authorization.cluster_entry import Asked, Grounds, grounds, member_of

#: Most decisions that are kept: of one user for one cluster.
KEPT = 50_000

#: Clusters that are decided about at a time: with 1,000 policies for the user, they take 4 ms.
CLUSTERS = 10


@frozen
class _KeptEntry:
    """A decision that is kept, and the parts of the cluster's record that it depends on.

    :ivar parts: those of the cluster's object; None: the user does not enter.
    :ivar since: when this began to hold, s since the epoch.
    :ivar until: when it may change, s since the epoch.
    """

    parts: Mapping[str, Any] | None
    labels: Mapping[str, str]
    identities: SystemIdentities
    since: float
    until: float

    def holds(self, cluster: Cluster, now: float) -> bool:
        return (
            self.since <= now < self.until
            and self.labels == cluster.labels
            and self.identities == cluster.identities
        )


@define(eq=False)
class EnteredClusters:
    """Lists them; keeps the decisions until a policy, a time window or the cluster changes.

    :param clock: runs long decisions in pieces.
    :param seconds: returns the time, s since the epoch.
    """

    _clusters: Clusters
    _policies: PolicyIndex
    _clock: IReactorTime
    _seconds: Callable[[], float]
    _generation: int = field(default=-1, init=False)
    _kept: dict[UserInfo, dict[str, _KeptEntry]] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)

    async def of(self, identity: Identity) -> list[dict[str, Any]]:
        """Return the clusters of a user, by name, as JSON objects."""
        if identity.credential is not None:
            found = self._clusters.get(identity.cluster) if identity.cluster else None
            return [] if found is None else [_object(found)]
        wanted = (each for each in self._clusters.list() if identity.scope in ("", each.name))
        listed = sorted(wanted, key=lambda each: each.name)
        generation, now = self._policies.generation, self._seconds()
        if generation != self._generation:
            self._kept.clear()
            self._count, self._generation = 0, generation
        user = UserInfo(identity.user, identity.groups, identity.uid, identity.extra)
        kept = self._kept.get(user, {})
        held = {
            each.uid: entry
            for each in listed
            if (entry := kept.get(each.uid)) is not None and entry.holds(each, now)
        }
        missing = [each for each in listed if each.uid not in held]
        if missing:
            decide = partial(self._decided, identity, now)
            decided = await map_cooperatively(self._clock, missing, decide, CLUSTERS)
            held |= {each.uid: entry for each, entry in zip(missing, decided, strict=True)}
            if not identity.scope and generation == self._policies.generation == self._generation:
                self._keep(user, held)
        return [
            {**_object(each), **entry.parts} for each in listed if (entry := held[each.uid]).parts is not None
        ]

    def _keep(self, user: UserInfo, entries: dict[str, _KeptEntry]) -> None:
        self._count += len(entries) - len(self._kept.pop(user, ()))
        self._kept[user] = entries
        while self._count > KEPT:
            self._count -= len(self._kept.pop(next(iter(self._kept))))

    def _decided(self, identity: Identity, now: float, cluster: Cluster) -> _KeptEntry:
        found = grounds(self._policies, identity, cluster, Asked(), now)
        parts = _parts(identity, cluster, found) if found.policies else None
        return _KeptEntry(parts, cluster.labels, cluster.identities, found.since, found.until)


def _parts(identity: Identity, cluster: Cluster, found: Grounds) -> dict[str, Any] | None:
    """Return the parts that policies add to a cluster's object; None: the user has no name there."""
    try:
        member_of(identity, found.policies, cluster)
    except Forbidden:
        return None
    access = dict.fromkeys(policy.spec.access for policy in found.open or found.policies)
    names = [policy.name for policy in found.policies]
    return {"access": list(access), "policies": names, "open": bool(found.open)}


def _object(cluster: Cluster) -> dict[str, Any]:
    condition = cluster.condition(AVAILABLE)
    available = "Unknown" if condition is None else condition.status
    return {"name": cluster.name, "available": available if cluster.enabled else "False"}
