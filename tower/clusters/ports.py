"""The clusters' own ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tower.clusters.cluster import Cluster
from tower.errors import Conflict, Invalid
from tower.store import IStore
from tower.store.kinds import PORTS
from tower.store.records import Create, Operation, Record, RecordExists


class ClusterPorts:
    """Assigns ports to clusters.

    :ivar range: of the ports; None: clusters get none.
    """

    def __init__(self, store: IStore, ports: range | None) -> None:
        self.range = ports
        self._store = store

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
                raise Conflict(
                    f"cluster {cluster.name} cannot get port {wanted}: "
                    f"{'cluster ' + owner.value['cluster'] if owner else 'another cluster'} has it: choose "
                    "another port, or none to get a free one"
                )
            if port is None:
                raise Conflict(
                    f"cluster {cluster.name} cannot get a port: all {len(self.range)} of --cluster-ports "
                    f"{self.range.start}-{self.range.stop - 1} are taken: set a larger range"
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
