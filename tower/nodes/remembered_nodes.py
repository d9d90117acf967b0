"""What is remembered of a cluster's nodes, for the next start: the last list of them, and their host keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.conch.transport.keys import fingerprint
from tower.conch.transport.signatures import key_type
from tower.nodes.host_key_pins import Pins
from tower.nodes.ssh.host_keys import (
    HostKeyRefused,
    HostKeyUnknown,
    describe_key,
    describe_node,
    preferred_algorithms,
)
from tower.nodes.ssh.known_hosts import KnownHosts, KnownHostsFiles
from tower.store import IStore
from tower.store.records import Create, Operation, RecordChanged, RecordExists, RecordMissing, Require, Update

#: The kind of the records.
KIND = "nodes"

#: How many nodes are remembered: enough to find one that lets us in and says which others there are.
REMEMBERED = 1000


class RememberedNodes:
    """:param uid: of the cluster.
    :ivar cluster: its name.
    :ivar pins: the host keys that its nodes had at first.
    """

    _log = Logger()

    def __init__(self, store: IStore, cluster: str, uid: str) -> None:
        self.cluster = cluster
        self.pins = Pins(store, cluster, uid)
        self._store = store
        self._uid = uid
        self._wanted: list[dict[str, Any]] | None = None
        self._writing: Deferred[None] | None = None
        self._complained = False

    def last(self) -> list[Node]:
        """Return the last list that was remembered."""
        record = self._store.get(KIND, self._uid)
        return [] if record is None else [_node(value) for value in record.value["nodes"]]

    def remember(self, nodes: Sequence[Node]) -> None:
        """Keep a list, if it is another one than the last.

        Of a long one `REMEMBERED` nodes are kept.  An empty one is not: by none nobody gets anywhere.
        A list that cannot be written is logged, and that is all.
        """
        wanted = [_value(node) for node in sorted(nodes, key=lambda node: node.address)[:REMEMBERED]]
        if not wanted:
            return
        record = self._store.get(KIND, self._uid)
        self._wanted = wanted if record is None or record.value["nodes"] != wanted else None
        if self._wanted is not None and self._writing is None:
            self._writing = Deferred.fromCoroutine(self._write())
            self._writing.addErrback(self._not_written)
            self._writing.addBoth(self._written)

    async def _write(self) -> None:
        while (wanted := self._wanted) is not None:
            self._wanted = None
            owner = self._store.get("clusters", self.cluster)
            if owner is None or owner.value["uid"] != self._uid:
                return  # it was removed meanwhile, and its nodes with it
            value = {"cluster": self.cluster, "cluster_uid": self._uid, "nodes": wanted}
            write: Operation = Create(KIND, self._uid, value)
            if self._store.get(KIND, self._uid) is not None:
                write = Update(KIND, self._uid, value)
            try:
                await self._store.transact([Require("clusters", self.cluster, owner.version), write])
            except (RecordChanged, RecordExists, RecordMissing):
                return  # the cluster was changed just now; the next list comes soon
            self._complained = False

    def _not_written(self, failure: Failure) -> None:
        if not self._complained:
            self._complained = True
            self._log.warn(
                "the nodes of cluster {cluster} cannot be remembered: {reason}",
                cluster=self.cluster,
                reason=failure.getErrorMessage(),
            )

    def _written(self, _: object) -> None:
        self._writing = None


class PinnedHostKeys:
    """``--ssh-host-keys=accept-new``: the key that a node has when we first come to it is the right one.

    A `tower.nodes.ssh.host_keys.HostKeys`.

    :param known_hosts: what it says of a node counts first, and then nothing is learned.
    """

    def __init__(
        self, known: RememberedNodes, known_hosts: KnownHosts | KnownHostsFiles | None = None
    ) -> None:
        self._known = known
        self._known_hosts = known_hosts

    def algorithms(self, node: Node) -> list[bytes]:
        """See `HostKeys.algorithms`."""
        if self._known_hosts is not None and self._known_hosts.knows(node):
            return self._known_hosts.algorithms(node)
        pinned = self._known.pins.get(node)
        return preferred_algorithms(() if pinned is None else (key_type(pinned),))

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`."""
        if self._is_in_file(node, blob):
            return
        pinned = self._known.pins.get(node)
        if pinned is not None and pinned != blob:
            raise HostKeyRefused(
                f"{describe_node(node)} showed the host key {describe_key(blob)}, not {describe_key(pinned)}, which it had "
                "when it was first connected to: either somebody is in between, or the node was made anew; "
                "compare it with what `ssh-keygen -lf` says on the node itself, and if it is right: "
                f"tower cluster forget-host-key {self._known.cluster} {node.address}",
                fingerprint(blob),
            )

    def accepted(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.accepted`."""
        if not self._is_in_file(node, blob):
            self._known.pins.learn(node, blob)

    def _is_in_file(self, node: Node, blob: bytes) -> bool:
        """Tell whether the file has this key of the node.

        :raise HostKeyRefused: it has another one.
        """
        if self._known_hosts is None:
            return False
        try:
            self._known_hosts.judge(node, blob)
        except HostKeyUnknown:
            return False
        return True


def _value(node: Node) -> dict[str, Any]:
    return {"host": node.host, "port": node.port, "name": node.name, "aliases": sorted(node.aliases)}


def _node(value: dict[str, Any]) -> Node:
    return Node(value["host"], value["port"], value["name"], frozenset(value["aliases"]))
