"""The records of ports: which cluster has which.

The record of a port has its cluster and that cluster's uid.  With a quarantine, a port that is no longer used
keeps its record, without a uid, so that clients of its former cluster do not reach another one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.clusters.cluster import Cluster
from tower.errors import Conflict, Invalid
from tower.store import IStore
from tower.store.kinds import PORTS
from tower.store.records import Create, Delete, Operation, Record, RecordExists, Update


class ClusterPorts:
    """The records of ports: which cluster has which, and what assigns and releases them.

    :param quarantine: how long the port of a removed cluster is not assigned again, s; 0: not at all.
    :param clock: its ``seconds()`` are since the epoch.
    :ivar range: of the ports; None: clusters get none.
    :ivar writing: held while ports are assigned or released, to avoid conflicts between own writes.
    """

    def __init__(self, store: IStore, ports: range | None, quarantine: float, clock: IReactorTime) -> None:
        self.range = ports
        self.writing = DeferredLock()
        self._store = store
        self._quarantine = quarantine
        self._clock = clock

    def owns(self, cluster: Cluster) -> bool:
        """Return whether the port in the record of *cluster* is assigned to it, not to another cluster."""
        record = self._store.get(PORTS, str(cluster.kubernetes_port))
        return record is not None and bool(record.value["cluster_uid"] == cluster.uid)

    def listening(self, cluster: Cluster) -> int | None:
        """Return the port that must be open for *cluster*, if any."""
        is_open = cluster.enabled and self.range is not None and self.owns(cluster)
        return cluster.kubernetes_port if is_open else None

    def owner(self, port: int) -> str:
        """Return the name of the cluster to which *port* is assigned; empty: none."""
        record = self._store.get(PORTS, str(port))
        return "" if record is None or _is_released(record) else str(record.value["cluster"])

    def held(self, uid: str) -> int | None:
        """Return a port in the range that is assigned to the cluster *uid*; None: there is none."""
        found = (
            int(record.name)
            for record in self._store.snapshot(PORTS).values()
            if record.value["cluster_uid"] == uid
        )
        return next((port for port in found if self.range is not None and port in self.range), None)

    def claim_given(self, cluster: Cluster) -> Operation | None:
        """Return the operation that assigns the port in the record of *cluster* to it; None: impossible.

        The record may come from a program that does not know which ports are taken.
        """
        port = cluster.kubernetes_port
        if port is None or self.range is None or port not in self.range:
            return None
        record = self._store.get(PORTS, str(port))
        owner = {"cluster": cluster.name, "cluster_uid": cluster.uid}
        if record is None:
            return Create(PORTS, str(port), owner)
        if _is_released(record) and record.value["cluster"] == cluster.name:
            return Update(PORTS, record.name, owner, record.version)
        return None

    def problem(self, cluster: Cluster) -> str:
        """Return why *cluster* cannot have the port in its record, which it does not own."""
        port = cluster.kubernetes_port
        try:
            self.check(port)
        except Invalid as e:
            return str(e)
        record = self._store.get(PORTS, str(port))
        if record is None:
            return f"port {port}: it is not assigned"
        verb = "had it recently" if _is_released(record) else "has it"
        return f"port {port}: cluster {record.value['cluster']} {verb}"

    def release(self, uid: str, keep: int | None = None) -> list[Operation]:
        """Return the operations that release the ports of a cluster, except *keep*."""
        return [
            self._released(record)
            for record in self._store.snapshot(PORTS).values()
            if record.value["cluster_uid"] == uid and record.name != str(keep)
        ]

    def sweep(self, uids: Container[str]) -> list[Operation]:
        """Return the operations that release ports of other clusters than *uids*, and end quarantines."""
        now = self._clock.seconds()
        operations: list[Operation] = []
        for record in self._store.snapshot(PORTS).values():
            if not _is_released(record):
                if record.value["cluster_uid"] not in uids:
                    operations.append(self._released(record))
            elif not 0 <= now - record.value["released"] < self._quarantine:
                operations.append(Delete(PORTS, record.name, record.version))
        return operations

    def _released(self, record: Record) -> Operation:
        if not self._quarantine:
            return Delete(PORTS, record.name, record.version)
        value = {"cluster": record.value["cluster"], "cluster_uid": "", "released": self._clock.seconds()}
        return Update(PORTS, record.name, value, record.version)

    def check(self, port: int | None) -> None:
        """Raise `Invalid` unless *port* is in the range."""
        if port is None or (self.range is not None and port in self.range):
            return
        if self.range is None:
            raise Invalid(f"port {port}: clusters of this proxy have no ports (--cluster-ports none)")
        raise Invalid(
            f"port {port}: not in --cluster-ports {self.range.start}-{self.range.stop - 1}: "
            "choose a port in this range, or change the range"
        )

    async def write(
        self,
        cluster: Cluster,
        operations: Callable[[int | None], Sequence[Operation]],
        wanted: int | None = None,
    ) -> Record:
        """Transact *operations* with the port *wanted*, or with any free port; return their first record."""
        if self.range is None:
            (record, *_) = await self._store.transact(operations(None))
            assert record is not None
            return record
        tried: set[str] = set()
        while True:
            taken = self._store.snapshot(PORTS)
            ports = self.range if wanted is None else (wanted,)
            free = (port for port in ports if str(port) not in taken and str(port) not in tried)
            port = next(free, None)
            if port is None and wanted is not None:
                owner = self._store.get(PORTS, str(wanted))
                name = f"cluster {owner.value['cluster']}" if owner else "another cluster"
                verb = "had it recently" if owner is not None and _is_released(owner) else "has it"
                raise Conflict(
                    f"cluster {cluster.name} cannot get port {wanted}: {name} {verb}: choose another port, "
                    "or none to get a free one"
                )
            if port is None:
                released = sum(_is_released(record) for record in taken.values())
                some = f", {released} of them by clusters that were removed recently" if released else ""
                raise Conflict(
                    f"cluster {cluster.name} cannot get a port: all {len(self.range)} of --cluster-ports "
                    f"{self.range.start}-{self.range.stop - 1} are taken{some}: set a larger range"
                )
            try:
                (record, *_) = await self._store.transact(operations(port))
            except RecordExists as e:
                if e.kind != "ports":
                    raise
                tried.add(e.name)
            else:
                assert record is not None
                return record


def claim(port: int | None, cluster: Cluster) -> Iterable[Operation]:
    """Return the operation that assigns *port* to *cluster*; none without a port."""
    if port is not None:
        yield Create(PORTS, str(port), {"cluster": cluster.name, "cluster_uid": cluster.uid})


def _is_released(record: Record) -> bool:
    return "released" in record.value
