"""The clusters there are: adding, changing and removing them, and a port for each."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

from attrs import evolve
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.clusters.cluster import (
    API_VERSION,
    Cluster,
    Condition,
    ConditionStatus,
    Live,
    check_metadata,
    check_name,
    decode,
    encode,
    timestamp,
    to_object,
)
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.ports import ClusterPorts, claim
from tower.clusters.ssh_spec import SSHSpec
from tower.clusters.ssh_spec_object import check_spec
from tower.errors import AlreadyExists, Conflict, Invalid, NotFound
from tower.kube.kubeconfig import KubeAccess
from tower.store import IStore
from tower.store.records import (
    CLUSTER_KINDS,
    Create,
    Delete,
    DeleteWhere,
    Event,
    EventType,
    Operation,
    RecordChanged,
    RecordExists,
    RecordMissing,
    Update,
    Watch,
)

__all__ = [
    "API_VERSION",
    "Cluster",
    "Clusters",
    "Condition",
    "ConditionStatus",
    "Live",
    "check_name",
    "timestamp",
    "to_object",
]

#: Most clusters that one proxy takes.
CLUSTER_LIMIT = 10_000

#: How often a change is tried again after somebody else changed the same record.
_ATTEMPTS = 10


class Clusters:
    """The clusters in a store.

    :param ports: what the clusters' own ports are taken from; None gives none.
    :param clock: its ``seconds()`` count from the epoch, as the reactor's do.
    :param accesses: keeps the credentials for clusters of type ssh; None: there can be no such clusters.
    """

    def __init__(
        self,
        store: IStore,
        ports: range | None,
        clock: IReactorTime,
        accesses: MemberCredentials | None = None,
    ) -> None:
        self._ports = ClusterPorts(store, ports)
        self._store = store
        self._clock = clock
        self._accesses = accesses
        # Decoding costs more than it looks on the path of every request.
        self._decoded: dict[str, Cluster] = {}
        self._watch = store.watch("clusters", self._forget)
        # Conflicts are for others who write; among ourselves they would only be work done for nothing.
        self._writing = DeferredLock()

    def get(self, name: str) -> Cluster | None:
        """Return the cluster of that name, or None."""
        record = self._store.get("clusters", name)
        if record is None:
            return None
        cluster = self._decoded.get(name)
        if cluster is None or cluster.resource_version != record.version:
            cluster = self._decoded[name] = decode(record)
        return cluster

    def require(self, name: str) -> Cluster:
        """Return the cluster of that name.

        :raise NotFound: there is none; the text names the cure.
        """
        cluster = self.get(name)
        if cluster is None:
            raise _missing(name)
        return cluster

    def list(self) -> list[Cluster]:
        """Return all clusters, by name."""
        return [self.require(name) for name in sorted(self._store.snapshot("clusters"))]

    @property
    def ports(self) -> range | None:
        """What the clusters' own ports are taken from; None: they have none."""
        return self._ports.range

    def listening_port(self, cluster: Cluster) -> int | None:
        """Return the port that is to be open for *cluster* now, if any."""
        return cluster.kubernetes_port if cluster.enabled and self.ports is not None else None

    def add(
        self,
        name: str,
        *,
        enabled: bool = True,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        port: int | None = None,
        ssh: SSHSpec | None = None,
        access: KubeAccess | None = None,
    ) -> Deferred[Cluster]:
        """Add a cluster, with a port of its own if there are ports.

        Fails with `Invalid`, `AlreadyExists`, `Conflict` when all ports are taken, and `VaultError` when
        *access* cannot be sealed.

        :param port: the one to give it, such as the one it had elsewhere; no other is taken instead.
        :param ssh: how its nodes are reached; None: it has an agent.
        :param access: with *ssh*, the credential for its API server, which is kept sealed.
        """
        cluster = Cluster(
            name,
            str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)),
            0,
            self._clock.seconds(),
            enabled=enabled,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            ssh=ssh,
        )
        return Deferred.fromCoroutine(self._add(cluster, access, port))

    def remove(self, name: str, uid: str | None = None) -> Deferred[Cluster]:
        """Remove a cluster, with its tokens, keys, credentials, port and nodes, in one transaction.

        Fails with `NotFound`.

        :param uid: remove only the cluster of this uid, else fail with `Conflict`.
        :return: what was removed.
        """
        return Deferred.fromCoroutine(self._remove(name, uid))

    def set_enabled(self, name: str, enabled: bool) -> Deferred[Cluster]:
        """Serve the cluster or not; fails with `NotFound`."""
        return self.change(name, lambda cluster: evolve(cluster, enabled=enabled))

    def set_condition(
        self, name: str, kind: str, status: ConditionStatus, reason: str, message: str
    ) -> Deferred[Cluster]:
        """Record an observation; the time of transition is kept as long as *status* is the same.

        Fails with `NotFound`.
        """

        def observed(cluster: Cluster) -> Cluster:
            old = cluster.condition(kind)
            when = old.last_transition if old and old.status == status else self._clock.seconds()
            new = Condition(kind, status, reason, message, when)
            if old is None:
                return evolve(cluster, conditions=(*cluster.conditions, new))
            return evolve(cluster, conditions=tuple(new if c is old else c for c in cluster.conditions))

        return self.change(name, observed)

    def change(
        self,
        name: str,
        edit: Callable[[Cluster], Cluster],
        version: int | None = None,
        access: KubeAccess | None = None,
    ) -> Deferred[Cluster]:
        """Replace what `edit` may change: ``enabled``, ``conditions``, ``labels``, ``annotations``, ``ssh``.

        Fails with `NotFound`, with `Invalid`, with `VaultError`, and with what *edit* raises.

        :param edit: a pure function; it is called again when somebody else was faster.
        :param version: change only this resource version, else fail with `Conflict`.
        :param access: takes the place of the credential for the cluster, in the same transaction.
        """
        return Deferred.fromCoroutine(self._change(name, edit, version, access))

    def assign_ports(self) -> Deferred[None]:
        """Give a port to each cluster that has none, as after ``--cluster-ports none``."""
        return Deferred.fromCoroutine(self._assign_ports())

    def watch(self, callback: Callable[[EventType, Cluster], None]) -> Watch:
        """Call *callback* for each cluster ADDED, MODIFIED or DELETED from now on."""
        return self._store.watch("clusters", lambda event: callback(event.type, decode(event.record)))

    def changes(self, since: int) -> Sequence[tuple[EventType, Cluster]]:
        """Return what happened after a resource version; see `IStore.changes`."""
        return [(event.type, decode(event.record)) for event in self._store.changes("clusters", since)]

    def stop(self) -> None:
        """Follow the store no longer."""
        self._watch.stop()
        self._decoded.clear()

    async def _add(self, cluster: Cluster, access: KubeAccess | None, wanted: int | None) -> Cluster:
        name = check_name(cluster.name)
        self._ports.check(wanted)
        if len(self._store.snapshot("clusters")) >= CLUSTER_LIMIT:
            raise Conflict(f"cluster {name} cannot be added: there are {CLUSTER_LIMIT}, the most allowed")
        check_metadata(cluster)
        if cluster.ssh is not None:
            check_spec(cluster.ssh)
        kept = self._kept(cluster, access)
        if cluster.ssh is not None and not kept:
            raise Invalid(
                f"cluster {name} needs a kubeconfig: what it is reached with through its nodes "
                "(spec.connection.kubeconfig, --member-kubeconfig)"
            )

        def write(port: int | None) -> list[Operation]:
            value = encode(evolve(cluster, kubernetes_port=port))
            return [Create("clusters", name, value), *claim(port, cluster), *kept]

        try:
            async with self._writing:
                record = await self._ports.write(cluster, write, wanted)
        except RecordExists as e:
            raise AlreadyExists(f"cluster {name} already exists: 'tower cluster show {name}' shows it") from e
        return decode(record)

    def _kept(self, cluster: Cluster, access: KubeAccess | None) -> Sequence[Operation]:
        """Return what keeps *access* for *cluster*."""
        if access is None:
            return []
        if cluster.ssh is None:
            raise Invalid(
                f"cluster {cluster.name} is of type proxy: the kubeconfig is its agent's, not the proxy's"
            )
        if self._accesses is None:
            raise Invalid(f"cluster {cluster.name} cannot be of type ssh: nothing here keeps its kubeconfig")
        return self._accesses.write_operations(cluster.uid, cluster.name, access)

    async def _remove(self, name: str, uid: str | None) -> Cluster:
        async def attempt() -> Cluster:
            cluster = self.require(name)
            if uid is not None and uid != cluster.uid:
                raise Conflict(f"cluster {name} is another one than was meant: its uid is {cluster.uid}")
            operations: list[Operation] = [Delete("clusters", name, cluster.resource_version)]
            operations += [DeleteWhere(kind, "cluster_uid", cluster.uid) for kind in CLUSTER_KINDS]
            (record, *_) = await self._store.transact(operations)
            assert record is not None
            return decode(record)

        return await self._persist(name, attempt)

    async def _change(
        self,
        name: str,
        edit: Callable[[Cluster], Cluster],
        version: int | None,
        access: KubeAccess | None,
    ) -> Cluster:
        async def attempt() -> Cluster:
            cluster = self.require(name)
            if version is not None and version != cluster.resource_version:
                raise Conflict(f"cluster {name} was changed in between: read it again and retry")
            edited = edit(cluster)
            if edited.type != cluster.type:
                raise Invalid(
                    f"cluster {name} is of type {cluster.type}, which cannot be changed: add it anew"
                )
            check_metadata(edited)
            if edited.ssh is not None and edited.ssh != cluster.ssh:
                check_spec(edited.ssh)
            update = Update("clusters", name, encode(edited), cluster.resource_version)
            (record, *_) = await self._store.transact([update, *self._kept(cluster, access)])
            assert record is not None
            return decode(record)

        return await self._persist(name, attempt)

    async def _persist(self, name: str, attempt: Callable[[], Awaitable[Cluster]]) -> Cluster:
        """Repeat *attempt*, which reads and writes, while others write in between."""
        async with self._writing:
            for _ in range(_ATTEMPTS):
                try:
                    return await attempt()
                except RecordMissing as e:
                    raise _missing(name) from e
                except RecordChanged:
                    continue
        raise Conflict(f"cluster {name} changes too often: try again")

    async def _assign_ports(self) -> None:
        if self.ports is None:
            return
        async with self._writing:
            for cluster in self.list():
                if cluster.kubernetes_port is None:
                    await self._assign_port(cluster)

    async def _assign_port(self, cluster: Cluster) -> None:
        def write(port: int | None) -> list[Operation]:
            value = encode(evolve(cluster, kubernetes_port=port))
            update = Update("clusters", cluster.name, value, cluster.resource_version)
            return [update, *claim(port, cluster)]

        await self._ports.write(cluster, write)

    def _forget(self, event: Event) -> None:
        if event.type == "DELETED":
            self._decoded.pop(event.record.name, None)


def _missing(name: str) -> NotFound:
    return NotFound(f"cluster {name} not found: 'tower cluster list' shows all, 'tower cluster add' adds one")
