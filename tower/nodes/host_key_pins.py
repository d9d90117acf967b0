"""Pinned host keys: the key of each node's first connection, in the store.

There is one record for each node, found by its address, ``host:port``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters.node import Node
from tower.conch.transport.keys import fingerprint
from tower.errors import Conflict, NotFound
from tower.nodes.ssh.host_keys import describe_key
from tower.store import IStore
from tower.store.kinds import CLUSTERS, HOST_KEYS
from tower.store.records import Create, Delete, Operation, Record, RecordChanged, Require

#: Most pinned keys of one cluster; a new one replaces the oldest.
PIN_LIMIT = 10_000

#: Attempts to write while the cluster's record changes.
_ATTEMPTS = 10


@frozen
class Pin:
    """One node's key.

    :ivar address: ``host:port``.
    :ivar name: the node's name when the key was pinned.
    :ivar blob: the public key in SSH's wire format.
    """

    address: str
    name: str
    blob: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key, as OpenSSH prints it."""
        return fingerprint(self.blob)

    @property
    def described(self) -> str:
        """Type and fingerprint of the key."""
        return describe_key(self.blob)

    def is_called(self, text: str) -> bool:
        """Return whether *text* is the node's name, address or host; brackets are optional."""
        host = self.address.rpartition(":")[0]
        plain = str.maketrans("", "", "[]")
        return text.translate(plain) in (self.name, self.address.translate(plain), host.translate(plain))


class Pins:
    """The pinned keys of the cluster with the name *cluster*."""

    _log = Logger()

    def __init__(self, store: IStore, cluster: str, uid: str) -> None:
        self._store = store
        self._cluster = cluster
        self._uid = uid
        self._writing: dict[str, bytes] = {}  # valid already: a node may connect twice meanwhile

    def get(self, node: Node) -> bytes | None:
        """Return the pinned key of *node*, or None."""
        record = self._store.get(HOST_KEYS, self._name(node.address))
        return _pin(record).blob if record is not None else self._writing.get(node.address)

    def all(self) -> list[Pin]:
        """Return all, sorted by address."""
        return sorted(map(_pin, self._records()), key=lambda pin: pin.address)

    def require(self, text: str) -> Sequence[Pin]:
        """Return the pinned keys of the node named *text*.

        :raise NotFound: it has none.
        """
        return [_pin(record) for record in self._called(text)]

    def learn(self, node: Node, blob: bytes) -> None:
        """Pin the key of a node without a pinned one.

        If it cannot be written, this is logged, and the next connection pins it.
        """
        if self.get(node) is not None:
            return
        self._writing[node.address] = blob
        writing = Deferred.fromCoroutine(self._learn(node, blob))
        writing.addErrback(
            lambda failure: self._log.warn(
                "cluster {cluster}: cannot pin the host key of node {node}: {reason}",
                node=node.name,
                cluster=self._cluster,
                reason=failure.getErrorMessage(),
            )
        )
        writing.addBoth(lambda _: self._writing.pop(node.address, None))

    def forget(self, text: str) -> Deferred[Sequence[Pin]]:
        """Remove the key of the node named *text*; its next connection pins a new one.

        :return: the removed keys.
        :raise NotFound: through the Deferred: it has no pinned key.
        """
        return Deferred.fromCoroutine(self._forget(text))

    async def _learn(self, node: Node, blob: bytes) -> None:
        value = {
            "cluster": self._cluster,
            "cluster_uid": self._uid,
            "address": node.address,
            "name": node.name,
            "key": base64.b64encode(blob).decode("ascii"),
        }
        for _ in range(_ATTEMPTS):
            owner = self._store.get(CLUSTERS, self._cluster)
            if owner is None or owner.value["uid"] != self._uid:
                return  # the cluster was removed meanwhile
            operations: list[Operation] = [
                Require("clusters", self._cluster, owner.version),
                *self._evict(),
                Create(HOST_KEYS, self._name(node.address), value),
            ]
            try:
                await self._store.transact(operations)
            except RecordChanged:
                continue
            self._log.info(
                "cluster {cluster}: pinned the host key of node {node}: {key}",
                node=node.name,
                cluster=self._cluster,
                key=describe_key(blob),
            )
            return
        raise Conflict(f"cluster {self._cluster} changed in each of {_ATTEMPTS} attempts")

    async def _forget(self, text: str) -> Sequence[Pin]:
        records = self._called(text)
        await self._store.transact([Delete(HOST_KEYS, record.name) for record in records])
        return [_pin(record) for record in records]

    def _called(self, text: str) -> Sequence[Record]:
        records = [record for record in self._records() if _pin(record).is_called(text)]
        if not records:
            raise NotFound(
                f"cluster {self._cluster} has no pinned host key of {text}: "
                f"'tower cluster show {self._cluster}' lists its nodes"
            )
        return records

    def _evict(self) -> Iterable[Operation]:
        """Delete the oldest key if there is no room for another."""
        records = self._records()
        if len(records) >= PIN_LIMIT:
            oldest = min(records, key=lambda record: record.version)
            yield Delete(HOST_KEYS, oldest.name)

    def _records(self) -> list[Record]:
        prefix = self._name("")
        return [record for name, record in self._store.snapshot(HOST_KEYS).items() if name.startswith(prefix)]

    def _name(self, address: str) -> str:
        return f"{self._uid}/{address}"


def _pin(record: Record) -> Pin:
    value = record.value
    return Pin(value["address"], value["name"], base64.b64decode(value["key"]))
