"""A cluster's last list of nodes and its pinned host keys, kept in the store for the next start."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.conch.transport.keys import fingerprint
from tower.conch.transport.signatures import key_type
from tower.nodes.host_key_pins import Pins
from tower.nodes.ssh.host_keys import HostKeyRefused, HostKeys, HostKeyUnknown, describe_key, describe_node
from tower.store import IStore
from tower.store.kinds import CLUSTERS, NODES
from tower.store.records import Create, Operation, RecordChanged, RecordExists, RecordMissing, Require, Update

#: Most nodes that are kept: enough to find one that accepts a login and reaches the API, which lists the
#: others.
REMEMBERED = 1000


class RememberedNodes:
    """The remembered state of one cluster.

    :ivar cluster: its name.
    :ivar pins: the pinned host keys.
    """

    _log = Logger()

    def __init__(self, store: IStore, cluster: str, uid: str) -> None:
        self.cluster = cluster
        self.pins = Pins(store, cluster, uid)
        self._store = store
        self._uid = uid
        self._wanted: list[dict[str, Any]] | None = None
        self._writing: Deferred[None] | None = None
        self._is_failing = False

    def last(self) -> list[Node]:
        """Return the last list that was kept."""
        record = self._store.get(NODES, self._uid)
        return [] if record is None else [_node(value) for value in record.value["nodes"]]

    def remember(self, nodes: Sequence[Node]) -> None:
        """Keep `REMEMBERED` nodes of a list, if it differs from the last one.

        An empty list is not kept, because it would be useless.  A list that cannot be written is only
        logged.
        """
        wanted = [_value(node) for node in sorted(nodes, key=lambda node: node.address)[:REMEMBERED]]
        if not wanted:
            return
        record = self._store.get(NODES, self._uid)
        self._wanted = wanted if record is None or record.value["nodes"] != wanted else None
        if self._wanted is not None and self._writing is None:
            self._writing = Deferred.fromCoroutine(self._write())
            self._writing.addErrback(self._not_written)
            self._writing.addBoth(self._written)

    async def _write(self) -> None:
        while (wanted := self._wanted) is not None:
            self._wanted = None
            owner = self._store.get(CLUSTERS, self.cluster)
            if owner is None or owner.value["uid"] != self._uid:
                return  # the cluster was removed meanwhile
            value = {"cluster": self.cluster, "cluster_uid": self._uid, "nodes": wanted}
            write: Operation = Create(NODES, self._uid, value)
            if self._store.get(NODES, self._uid) is not None:
                write = Update(NODES, self._uid, value)
            try:
                await self._store.transact([Require("clusters", self.cluster, owner.version), write])
            except (RecordChanged, RecordExists, RecordMissing):
                return  # the cluster has just changed; the next list comes soon
            self._is_failing = False

    def _not_written(self, failure: Failure) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._log.warn(
                "cluster {cluster}: cannot store the list of nodes: {reason}",
                cluster=self.cluster,
                reason=failure.getErrorMessage(),
            )

    def _written(self, _: object) -> None:
        self._writing = None


class PinnedHostKeys(HostKeys):
    """``--ssh-host-keys=accept-new``: accepts the key of a node's first connection, and pins it.

    :param known_hosts: takes precedence; its nodes' keys are not pinned.
    """

    def __init__(self, remembered: RememberedNodes, known_hosts: HostKeys | None = None) -> None:
        self._remembered = remembered
        self._known_hosts = known_hosts

    def kinds(self, node: Node) -> Collection[bytes]:
        """See `HostKeys.kinds`."""
        if self._known_hosts is not None and self._known_hosts.knows(node):
            return self._known_hosts.kinds(node)
        pinned = self._remembered.pins.get(node)
        return () if pinned is None else (key_type(pinned),)

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`."""
        if self._is_in_file(node, blob):
            return
        pinned = self._remembered.pins.get(node)
        if pinned is not None and pinned != blob:
            raise HostKeyRefused(
                f"{describe_node(node)} presented the host key {describe_key(blob)}, but the key of its "
                f"first connection was {describe_key(pinned)}: either an attacker intercepts the connection, "
                "or the node was reinstalled; compare it with the output of `ssh-keygen -lf` on the node, "
                "and if it matches, run "
                f"'tower cluster forget-host-key {self._remembered.cluster} {node.address}'",
                fingerprint(blob),
            )

    def accepted(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.accepted`."""
        if not self._is_in_file(node, blob):
            self._remembered.pins.learn(node, blob)

    def _is_in_file(self, node: Node, blob: bytes) -> bool:
        """Return whether the known_hosts file lists this key for the node.

        :raise HostKeyRefused: the file lists another key.
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
