"""Assigning ports to clusters that have none, or that other programs write, and releasing unused ones."""

from __future__ import annotations

from attrs import evolve, frozen

from tower.clusters.cluster import Cluster, encode
from tower.clusters.clusters import Clusters
from tower.clusters.ports.cluster_ports import claim
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import CLUSTERS
from tower.store.records import Operation, Require, Update


@frozen
class PortAssignment:
    """Brings the records of clusters and of their ports in line.

    :param store: that of *clusters*.
    """

    _store: IStore
    _clusters: Clusters

    @deferred
    async def assign_all(self) -> None:
        """Assign a port to each cluster without one, as after ``--cluster-ports none``."""
        ports = self._clusters.ports
        if ports.range is None:
            return
        async with ports.writing:
            for name in [cluster.name for cluster in self._clusters.list()]:
                async with self._clusters.lock_of(name):
                    cluster = self._clusters.get(name)
                    if cluster is not None and cluster.kubernetes_port is None:
                        await self._assign(cluster)

    @deferred
    async def settle(self, name: str) -> Cluster:
        """Assign a port to a cluster whose record has none, or one that it cannot have; return the cluster.

        It keeps a port in the range that it had before, unless the record has another one, which it gets if
        that is free; then the earlier one is released.  Fails with `NotFound`, and `Conflict` if no port is
        free or another program writes the cluster, too.
        """
        ports = self._clusters.ports
        async with ports.writing, self._clusters.lock_of(name):
            cluster = self._clusters.require(name)
            if ports.range is None:
                return cluster
            if not ports.owns(cluster):
                claimed, held = ports.claim_given(cluster), ports.held(cluster.uid)
                if claimed is None and held is None:
                    await self._assign(cluster)
                elif claimed is None:
                    value = encode(evolve(cluster, kubernetes_port=held))
                    await self._store.transact([Update(CLUSTERS, name, value, cluster.resource_version)])
                else:
                    await self._store.transact([Require(CLUSTERS, name), claimed])
                cluster = self._clusters.require(name)
            unused = ports.release(cluster.uid, keep=cluster.kubernetes_port)
            if unused:
                await self._store.transact(unused)
            return cluster

    @deferred
    async def release(self, uid: str) -> None:
        """Release the ports of a cluster that is being removed."""
        async with self._clusters.ports.writing:
            operations = self._clusters.ports.release(uid)
            if operations:
                await self._store.transact(operations)

    @deferred
    async def sweep(self) -> None:
        """Release the ports of clusters that another program removed, and end quarantines."""
        async with self._clusters.ports.writing:
            uids = {record.value["uid"] for record in self._store.snapshot(CLUSTERS).values()}
            operations = self._clusters.ports.sweep(uids)
            if operations:
                await self._store.transact(operations)

    async def _assign(self, cluster: Cluster) -> None:
        def write(port: int | None) -> list[Operation]:
            value = encode(evolve(cluster, kubernetes_port=port))
            update = Update(CLUSTERS, cluster.name, value, cluster.resource_version)
            return [update, *claim(port, cluster)]

        await self._clusters.ports.write(cluster, write)
