"""Access policies in memory, for tests of entry into clusters."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from tests.cloud.pumped import CountingClock
from tower.clusters import Cluster, Clusters
from tower.clusters.policies.access_policies import AccessPolicies
from tower.clusters.policies.policy_index import PolicyIndex
from tower.store import MemoryStore
from tower.store.kinds import ACCESS_POLICIES
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.cluster_entry import ClusterEntry


def spec_of(
    group: str = "dev", *clusters: str, names: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the spec of a policy for a group, by default for the cluster alpha; *names* is ``as``."""
    subjects = [{"kind": "Group", "name": group}]
    where = {"names": list(clusters or ("alpha",))}
    return {"subjects": subjects, "clusters": where, **({"as": names} if names else {}), **more}


def cluster_of(name: str = "alpha", **labels: str) -> Cluster:
    """Return a cluster."""
    return Cluster(name, f"u-{name}", 1, 0.0, labels=labels)


def user_of(user: str = "jane", *groups: str, **more: Any) -> Identity:
    """Return a user that another method authenticated, by default of the group dev."""
    return Identity(user, groups or ("dev",), method="test", key=f"test:{user}", **more)


class Policies:
    """Policies, and what depends on them.

    :param now: the time, s since the epoch.
    """

    def __init__(self, store: MemoryStore | None = None, now: float = 1_700_000_000.0) -> None:
        self.store = store or MemoryStore()
        self.clock = Clock()
        self.clock.advance(now)
        clock: Any = self.clock
        self.records = AccessPolicies(self.store, clock)
        self.index = PolicyIndex(self.records)
        self.entry = ClusterEntry(self.index, self.clock.seconds)

    def put(self, name: str, spec: dict[str, Any]) -> None:
        """Add or replace a policy, at once."""
        value = {"uid": f"u-{name}", "created": 0.0, "spec": spec}
        if self.store.get(ACCESS_POLICIES, name) is None:
            self.store.create(ACCESS_POLICIES, name, value)
        else:
            self.store.update(ACCESS_POLICIES, name, value)

    def drop(self, name: str) -> None:
        """Remove a policy, at once."""
        self.store.delete(ACCESS_POLICIES, name)


class ManyClusters(Policies):
    """Policies, and the clusters c000, c001 and so on, for tests of work in pieces.

    :ivar timers: the clock of timers; it counts the turns of the reactor.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.timers: Any = CountingClock()
        self.clusters = Clusters(self.store, None, self.timers)
        for number in range(count):
            self.clusters.add(f"c{number:03}")  # at once
