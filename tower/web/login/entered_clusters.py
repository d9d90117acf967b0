"""The clusters that a user may enter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from tower.clusters import Cluster, Clusters
from tower.clusters.condition_types import AVAILABLE
from tower.clusters.policies.policy_index import PolicyIndex
from tower.errors import Forbidden
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.cluster_entry import Asked, grounds, member_of


@frozen(eq=False)
class EnteredClusters:
    """Lists them.

    :param seconds: returns the time, s since the epoch.
    """

    _clusters: Clusters
    _policies: PolicyIndex
    _seconds: Callable[[], float]

    def of(self, identity: Identity) -> list[dict[str, Any]]:
        """Return the clusters of a user, by name, as JSON objects."""
        if identity.credential is not None:
            found = self._clusters.get(identity.cluster) if identity.cluster else None
            return [] if found is None else [_object(found)]
        now = self._seconds()
        wanted = (each for each in self._clusters.list() if identity.scope in ("", each.name))
        listed = sorted(wanted, key=lambda each: each.name)
        return [shown for each in listed if (shown := self._entered(identity, each, now)) is not None]

    def _entered(self, identity: Identity, cluster: Cluster, now: float) -> dict[str, Any] | None:
        found = grounds(self._policies, identity, cluster, Asked(), now)
        if not found.policies:
            return None
        try:
            member_of(identity, found.policies, cluster)
        except Forbidden:
            return None  # no policy gives the user a name there
        access = dict.fromkeys(policy.spec.access for policy in found.open or found.policies)
        names = [policy.name for policy in found.policies]
        return {**_object(cluster), "access": list(access), "policies": names, "open": bool(found.open)}


def _object(cluster: Cluster) -> dict[str, Any]:
    condition = cluster.condition(AVAILABLE)
    available = "Unknown" if condition is None else condition.status
    return {"name": cluster.name, "available": available if cluster.enabled else "False"}
