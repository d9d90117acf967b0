"""The clusters in the store: adding, changing and removing them, with a port for each."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from attrs import evolve
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.clusters.cluster import (
    Cluster,
    Condition,
    ConditionStatus,
    check_metadata,
    cluster_not_found,
    decode,
    encode,
)
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.object_meta import NEW, ObjectMeta, check_name
from tower.clusters.ports.cluster_ports import ClusterPorts, claim
from tower.clusters.ssh_spec import SSHSpec
from tower.clusters.ssh_spec_object import check_spec
from tower.errors import AlreadyExists, Conflict, Invalid
from tower.kube.kubeconfig import KubeAccess
from tower.reactor.coroutines import deferred
from tower.store import IStore
from tower.store.kinds import CLUSTER_KINDS, CLUSTERS, PORTS
from tower.store.records import (
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

#: Most clusters of one proxy.
CLUSTER_LIMIT = 10_000

#: Attempts of a change that conflicts with concurrent changes.
_ATTEMPTS = 10

#: Most changes of clusters at a time; the store writes them together.
_PARALLEL = 64


class Clusters:
    """The clusters in a store.

    :param ports: range of the clusters' own ports; None: clusters get none.
    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    :param credentials: of clusters of type ssh; None: such clusters cannot be added.
    :param quarantine: how long the port of a removed cluster is not assigned again, s; 0: not at all.
    :ivar ports: which ports are assigned to which clusters.
    """

    def __init__(
        self,
        store: IStore,
        ports: range | None,
        clock: IReactorTime,
        credentials: MemberCredentials | None = None,
        quarantine: float = 0.0,
    ) -> None:
        self.ports = ClusterPorts(store, ports, quarantine, clock)
        self._store = store
        self._clock = clock
        self._credentials = credentials
        # Every request needs its cluster, and decoding is slow.
        self._decoded: dict[str, Cluster] = {}
        self._watch = store.watch(CLUSTERS, self._forget)
        # Avoid conflicts between this object's own writes, by the clusters' names.
        self._writing = tuple(DeferredLock() for _ in range(_PARALLEL))

    def get(self, name: str) -> Cluster | None:
        """Return the cluster of that name, or None."""
        record = self._store.get(CLUSTERS, name)
        if record is None:
            return None
        cluster = self._decoded.get(name)
        if cluster is None or cluster.resource_version != record.version:
            cluster = self._decoded[name] = decode(record)
        return cluster

    def require(self, name: str) -> Cluster:
        """Return the cluster of that name.

        :raise NotFound: with the cure.
        """
        cluster = self.get(name)
        if cluster is None:
            raise cluster_not_found(name)
        return cluster

    def list(self) -> list[Cluster]:
        """Return all clusters, by name."""
        return [self.require(name) for name in sorted(self._store.snapshot(CLUSTERS))]

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
        meta: ObjectMeta = NEW,
    ) -> Deferred[Cluster]:
        """Add a cluster, with its own port if this proxy has ports.

        Fails with `Invalid`, `AlreadyExists`, `Conflict` if all ports are taken, and `VaultError` if
        *access* cannot be sealed.

        :param port: required port; None: any free one.
        :param ssh: SSH access to its nodes; None: it has an agent.
        :param access: with *ssh*, the credential for its API server, which is stored sealed.
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
            meta=meta,
        )
        return Deferred.fromCoroutine(self._add(cluster, access, port))

    @deferred
    async def remove(self, name: str, uid: str | None = None) -> Cluster:
        """Remove a cluster, with its tokens, keys, credentials, port and nodes, in one transaction.

        Fails with `NotFound`.

        :param uid: required uid; fails with `Conflict` if the cluster has another.
        :return: the removed cluster.
        """

        async def attempt() -> Cluster:
            cluster = self.require(name)
            if uid is not None and uid != cluster.uid:
                raise Conflict(
                    f"cluster {name} has uid {cluster.uid}, not {uid}: it was removed and added again"
                )
            (record, *_) = await self._store.transact(self._removal(cluster))
            assert record is not None
            return decode(record)

        return await self._persist(name, attempt)

    def set_enabled(self, name: str, enabled: bool) -> Deferred[Cluster]:
        """Enable or disable a cluster; fails with `NotFound`."""
        return self.change(name, lambda cluster: evolve(cluster, enabled=enabled))

    def set_condition(
        self, name: str, kind: str, status: ConditionStatus, reason: str, message: str
    ) -> Deferred[Cluster]:
        """Set a condition; see `set_conditions`."""
        return self.set_conditions(name, [Condition(kind, status, reason, message, 0.0)])

    def set_conditions(
        self, name: str, conditions: Sequence[Condition], removed: Collection[str] = ()
    ) -> Deferred[Cluster]:
        """Set conditions in one write; the transition time of each changes only with its status.

        Fails with `NotFound`.

        :param conditions: their transition times are ignored.
        :param removed: types of conditions to remove.
        """

        def observed(cluster: Cluster) -> Cluster:
            merged = {each.type: each for each in cluster.conditions if each.type not in removed}
            for new in conditions:
                old = merged.get(new.type)
                when = old.last_transition if old and old.status == new.status else self._clock.seconds()
                merged[new.type] = evolve(new, last_transition=when)
            return evolve(cluster, conditions=tuple(merged.values()))

        return self.change(name, observed)

    @deferred
    async def change(
        self,
        name: str,
        edit: Callable[[Cluster], Cluster],
        version: int | None = None,
        access: KubeAccess | None = None,
    ) -> Cluster:
        """Change ``enabled``, ``conditions``, ``labels``, ``annotations``, ``ssh`` or ``meta`` of a cluster.

        A cluster that is being deleted is removed with its last finalizer.

        Fails with `NotFound`, `Invalid`, `VaultError`, and the errors of *edit*.

        :param edit: a pure function; called again after a conflict.
        :param version: required resource version; fails with `Conflict` if the cluster has another.
        :param access: replaces the credential for the cluster, in the same transaction.
        """

        async def attempt() -> Cluster:
            cluster = self.require(name)
            if version is not None and version != cluster.resource_version:
                raise Conflict(f"cluster {name} was changed concurrently: read it again and retry")
            edited = edit(cluster)
            if edited.type != cluster.type:
                raise Invalid(
                    f"cluster {name}: type {cluster.type} cannot be changed: remove and add the cluster"
                )
            check_metadata(edited)
            if edited.ssh is not None and edited.ssh != cluster.ssh:
                check_spec(edited.ssh)
            if edited.meta.is_released:
                (record, *_) = await self._store.transact(self._removal(cluster))
                assert record is not None
                return evolve(edited, resource_version=record.version)
            if (edited.enabled, edited.ssh) != (cluster.enabled, cluster.ssh):
                edited = evolve(edited, meta=evolve(edited.meta, generation=cluster.meta.generation + 1))
            update = Update(CLUSTERS, name, encode(edited), cluster.resource_version)
            (record, *_) = await self._store.transact([update, *self._write_access(cluster, access)])
            assert record is not None
            return decode(record)

        return await self._persist(name, attempt)

    def lock_of(self, name: str) -> DeferredLock:
        """Return the lock that is held while a cluster's record is changed."""
        return self._writing[hash(name) % _PARALLEL]

    def watch(self, callback: Callable[[EventType, Cluster], None]) -> Watch:
        """Call *callback* for each cluster ADDED, MODIFIED or DELETED from now on."""
        return self._store.watch(CLUSTERS, lambda event: callback(event.type, decode(event.record)))

    def changes(self, since: int) -> Sequence[tuple[EventType, Cluster]]:
        """Return the events after a resource version; see `IStore.changes`."""
        return [(event.type, decode(event.record)) for event in self._store.changes("clusters", since)]

    def check(self, since: int) -> None:
        """Check that the changes after a resource version are known.

        :raise Expired: they are not.
        """
        self._store.changes("clusters", since)

    def stop(self) -> None:
        """Stop watching the store."""
        self._watch.stop()
        self._decoded.clear()

    async def _add(self, cluster: Cluster, access: KubeAccess | None, wanted: int | None) -> Cluster:
        name = check_name(cluster.name)
        self.ports.check(wanted)
        if len(self._store.snapshot(CLUSTERS)) >= CLUSTER_LIMIT:
            raise Conflict(
                f"cluster {name} cannot be added: the limit of {CLUSTER_LIMIT} clusters is reached"
            )
        check_metadata(cluster)
        if cluster.ssh is not None:
            check_spec(cluster.ssh)
        stored = self._write_access(cluster, access)
        if cluster.ssh is not None and not stored:
            raise Invalid(
                f"cluster {name} needs a kubeconfig for its API server, as seen from its nodes "
                "(spec.connection.kubeconfig, --member-kubeconfig)"
            )

        def write(port: int | None) -> list[Operation]:
            value = encode(evolve(cluster, kubernetes_port=port))
            return [Create(CLUSTERS, name, value), *claim(port, cluster), *stored]

        try:
            async with self.ports.writing:
                record = await self.ports.write(cluster, write, wanted)
        except RecordExists as e:
            raise AlreadyExists(f"cluster {name} already exists: 'tower cluster show {name}' shows it") from e
        return decode(record)

    def _write_access(self, cluster: Cluster, access: KubeAccess | None) -> Sequence[Operation]:
        """Return the operations that store *access* for *cluster*."""
        if access is None:
            return []
        if cluster.ssh is None:
            raise Invalid(
                f"cluster {cluster.name} is of type proxy: its agent has the kubeconfig, not the proxy"
            )
        if self._credentials is None:
            raise Invalid(f"cluster {cluster.name} cannot be of type ssh: its kubeconfig cannot be stored")
        return self._credentials.write_operations(cluster.uid, cluster.name, access)

    async def _persist(self, name: str, attempt: Callable[[], Awaitable[Cluster]]) -> Cluster:
        """Repeat *attempt*, which reads and writes, while it conflicts with other writes."""
        async with self.lock_of(name):
            for _ in range(_ATTEMPTS):
                try:
                    return await attempt()
                except RecordMissing as e:
                    raise cluster_not_found(name) from e
                except RecordChanged:
                    continue
        raise Conflict(f"cluster {name}: too many concurrent changes: retry")

    def _forget(self, event: Event) -> None:
        if event.type == "DELETED":
            self._decoded.pop(event.record.name, None)

    def _removal(self, cluster: Cluster) -> Sequence[Operation]:
        """Return the operations that remove *cluster* with everything that belongs to it."""
        return [
            Delete(CLUSTERS, cluster.name, cluster.resource_version),
            *(DeleteWhere(kind, "cluster_uid", cluster.uid) for kind in CLUSTER_KINDS if kind != PORTS),
            *self.ports.release(cluster.uid),
        ]
