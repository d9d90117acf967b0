"""Writes of the controller to ``Cluster`` objects, which several programs change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import asdict, define, field

from tower.clusters.cluster import Condition
from tower.clusters.host.host_conditions import HostConditions
from tower.clusters.host.host_object import TYPES, record_value
from tower.clusters.host.host_statuses import AGENT_VERSION, KUBERNETES_VERSION, HostStatuses
from tower.controller.objects.differences import difference
from tower.controller.objects.host_cluster import HostCluster
from tower.controller.objects.secret_objects import (
    APPLIED,
    EARLIER_TOKEN,
    KUBECONFIG,
    TOKEN,
    without_secrets,
)
from tower.errors import Conflict
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.kube.rest.well_known import CLUSTERS

_SECRETS = frozenset((KUBECONFIG, TOKEN, EARLIER_TOKEN))

_NOT_FOUND = 404


@define(eq=False)
class ClusterObject:
    """Writes with optimistic concurrency: a change by another program since the read makes a write fail.

    :param epoch: returns the time, s since the epoch.
    :param statuses: what Tower writes to the status, in addition to conditions.
    """

    _api: HostAPI
    _epoch: Callable[[], float]
    _statuses: HostStatuses
    _has_status: bool = field(default=True, init=False)

    async def check(self, name: str) -> None:
        """Check that the object can be a cluster of Tower.

        :raise Invalid: it cannot; with the field.
        :raise APIError: it cannot be read.
        """
        record_value(await self._api.get(CLUSTERS, name))

    async def set_finalizers(self, cluster: HostCluster, finalizers: Sequence[str]) -> HostCluster:
        """Set the finalizers; return the object as stored.

        :raise APIError: it cannot be written.
        """
        metadata = {"resourceVersion": cluster.resource_version, "finalizers": list(finalizers)}
        try:
            return HostCluster.of(await self._api.patch(CLUSTERS, cluster.name, {"metadata": metadata}))
        except APIError as e:
            if e.code == _NOT_FOUND and not finalizers:
                return cluster  # it was removed already
            raise

    async def apply(
        self,
        cluster: HostCluster,
        wanted: Mapping[str, Any],
        finalizers: Callable[[HostCluster], Sequence[str]] = lambda cluster: cluster.finalizers,
    ) -> HostCluster:
        """Give the object the fields of *wanted*, if it has them not; return it as stored.

        :param finalizers: returns the wanted ones.
        :raise Conflict: another program changed what the controller had read.
        :raise APIError: it cannot be written.
        """
        known = {
            "metadata": {"annotations": cluster.annotations},
            "spec": {"connection": cluster.connection},
        }
        if not difference(known, wanted) and finalizers(cluster) == cluster.finalizers:
            return cluster
        return await self._patch(cluster, wanted, finalizers)

    async def _patch(
        self,
        cluster: HostCluster,
        wanted: Mapping[str, Any],
        finalizers: Callable[[HostCluster], Sequence[str]],
    ) -> HostCluster:
        # Tower's own writes, such as that of the port, have changed the version since the controller's read.
        current = await self._api.get(CLUSTERS, cluster.name)
        fresh = HostCluster.of(current)
        if not fresh.is_same_wish(cluster):
            raise Conflict(f"cluster {cluster.name} was changed concurrently")
        patch = difference(current, wanted)
        annotations = current["metadata"].get("annotations") or {}
        secrets = _SECRETS.intersection((patch.get("spec") or {}).get("connection", {}))
        if secrets:
            redacted = without_secrets(annotations.get(APPLIED, ""), secrets)
            if redacted is not None:
                patch.setdefault("metadata", {}).setdefault("annotations", {})[APPLIED] = redacted
        if finalizers(fresh) != fresh.finalizers:
            patch.setdefault("metadata", {})["finalizers"] = list(finalizers(fresh))
        if not patch:
            return fresh
        patch.setdefault("metadata", {})["resourceVersion"] = fresh.resource_version
        return HostCluster.of(await self._api.patch(CLUSTERS, cluster.name, patch))

    async def set_conditions(self, cluster: HostCluster, own: Sequence[Condition]) -> None:
        """Give an object that has no record the conditions *own*, instead of all others of Tower.

        :raise APIError: it cannot be written.
        """
        current = await self._api.get(CLUSTERS, cluster.name)
        before = current.get("status") or {}
        conditions = HostConditions.read(before, TYPES, self._epoch())
        known = {each["type"]: each for each in conditions.own}
        new = [asdict(each) | {"last_transition": self._since(each, known.get(each.type))} for each in own]
        wanted = HostConditions(new, conditions.others).write(before, TYPES)
        if wanted == (before.get("conditions") or []):
            return
        version = {"resourceVersion": current["metadata"]["resourceVersion"]}
        patch: Object = {"metadata": version, "status": {"conditions": wanted}}
        await self._patch_status(cluster.name, patch)

    def _since(self, wanted: Condition, known: Mapping[str, Any] | None) -> float:
        """Return the time of a condition, which changes only with its status; the host has whole seconds."""
        is_same = known is not None and known["status"] == wanted.status
        return known["last_transition"] if is_same and known is not None else float(int(self._epoch()))

    async def write_facts(self, cluster: HostCluster) -> None:
        """Write the versions in the status if they differ, with the other facts.

        :raise APIError: it cannot be written.
        """
        facts = self._statuses.facts(cluster.name)
        version = facts.get(KUBERNETES_VERSION, cluster.versions.get(KUBERNETES_VERSION))
        agent = cluster.versions.get(AGENT_VERSION)  # a CRD of KubeSphere does not keep it
        is_current = agent is None or agent == facts.get(AGENT_VERSION, agent)
        if version == cluster.versions.get(KUBERNETES_VERSION) and is_current:
            return
        version = {"resourceVersion": cluster.resource_version}
        await self._patch_status(cluster.name, {"metadata": version, "status": facts})

    async def _patch_status(self, name: str, patch: Object) -> None:
        below = "status" if self._has_status else ""
        try:
            await self._api.patch(CLUSTERS, name, patch, subresource=below)
        except APIError as e:
            if e.code != _NOT_FOUND or not below:
                raise
            await self._api.patch(CLUSTERS, name, patch)
            self._has_status = False

    async def observe(self, cluster: HostCluster) -> None:
        """Write the generation of *cluster*, whose objects are right now.

        Without a status subresource each write is a new generation, so nothing is written.

        :raise APIError: it cannot be written.
        """
        if not self._has_status or cluster.observed_generation == cluster.generation:
            return
        version = {"resourceVersion": cluster.resource_version}
        patch: Object = {"metadata": version, "status": {"observedGeneration": cluster.generation}}
        try:
            stored = await self._api.patch(CLUSTERS, cluster.name, patch, subresource="status")
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
            self._has_status = False
        else:
            self._has_status = (
                HostCluster.of(stored).observed_generation is not None
            )  # else not in the schema
