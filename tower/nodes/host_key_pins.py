"""The host keys that nodes had when we first came to them, in the store: one record for each node.

A node is told apart by its address, ``host:port``.
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
from tower.store.records import Create, Delete, Operation, Record, RecordChanged, Require

#: The kind of the records.
KIND = "hostkeys"

#: Most nodes of one cluster whose keys are kept; beyond them those that were learned first are forgotten.
PIN_LIMIT = 10_000

#: How often a write is tried again after the cluster's own record was changed in between.
_ATTEMPTS = 10


@frozen
class Pin:
    """One node's key.

    :ivar address: ``host:port``.
    :ivar name: what the node was called when the key was learned.
    :ivar blob: the public key in SSH's wire format.
    """

    address: str
    name: str
    blob: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Names the key, as OpenSSH prints it."""
        return fingerprint(self.blob)

    @property
    def describe_key(self) -> str:
        """Type and fingerprint of the key."""
        return describe_key(self.blob)

    def is_called(self, text: str) -> bool:
        """Tell whether *text* means this node: its name, address or host; brackets may be left out."""
        host = self.address.rpartition(":")[0]
        plain = str.maketrans("", "", "[]")
        return text.translate(plain) in (self.name, self.address.translate(plain), host.translate(plain))


class Pins:
    """The keys of one cluster's nodes.

    :param cluster: its name.
    :param uid: its uid.
    """

    _log = Logger()

    def __init__(self, store: IStore, cluster: str, uid: str) -> None:
        self._store = store
        self._cluster = cluster
        self._uid = uid
        # What is being written counts already: a node may come twice meanwhile.
        self._learning: dict[str, bytes] = {}

    def get(self, node: Node) -> bytes | None:
        """Return the key that *node* had at first; None: nothing is known."""
        record = self._store.get(KIND, self._name(node.address))
        return _pin(record).blob if record is not None else self._learning.get(node.address)

    def all(self) -> list[Pin]:
        """Return all, by address."""
        return sorted(map(_pin, self._records()), key=lambda pin: pin.address)

    def learn(self, node: Node, blob: bytes) -> None:
        """Keep the key of a node of which none is kept.

        One that cannot be written is logged, and learned anew when the node is next connected to.
        """
        if self.get(node) is not None:
            return
        self._learning[node.address] = blob
        writing = Deferred.fromCoroutine(self._learn(node, blob))
        writing.addErrback(
            lambda failure: self._log.warn(
                "the host key of {node} in cluster {cluster} cannot be kept: {reason}",
                node=node.name,
                cluster=self._cluster,
                reason=failure.getErrorMessage(),
            )
        )
        writing.addBoth(lambda _: self._learning.pop(node.address, None))

    def forget(self, text: str) -> Deferred[Sequence[Pin]]:
        """Forget the key of the node that *text* means, so that its next one is learned.

        Fails with `NotFound`.
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
            owner = self._store.get("clusters", self._cluster)
            if owner is None or owner.value["uid"] != self._uid:
                return  # it was removed meanwhile, and its keys with it
            operations: list[Operation] = [
                Require("clusters", self._cluster, owner.version),
                *self._room(),
                Create(KIND, self._name(node.address), value),
            ]
            try:
                await self._store.transact(operations)
            except RecordChanged:
                continue
            self._log.info(
                "learned the host key of {node} in cluster {cluster}: {key}",
                node=node.name,
                cluster=self._cluster,
                key=describe_key(blob),
            )
            return
        raise Conflict(f"cluster {self._cluster} changes too often")

    async def _forget(self, text: str) -> Sequence[Pin]:
        records = [record for record in self._records() if _pin(record).is_called(text)]
        if not records:
            raise NotFound(
                f"no host key of {text} was learned in cluster {self._cluster}: "
                f"'tower cluster show {self._cluster}' lists its nodes"
            )
        await self._store.transact([Delete(KIND, record.name) for record in records])
        return [_pin(record) for record in records]

    def _room(self) -> Iterable[Operation]:
        """Return what makes room for one more."""
        records = self._records()
        if len(records) >= PIN_LIMIT:
            oldest = min(records, key=lambda record: record.version)
            yield Delete(KIND, oldest.name)

    def _records(self) -> list[Record]:
        prefix = self._name("")
        return [record for name, record in self._store.snapshot(KIND).items() if name.startswith(prefix)]

    def _name(self, address: str) -> str:
        return f"{self._uid}/{address}"


def _pin(record: Record) -> Pin:
    value = record.value
    return Pin(value["address"], value["name"], base64.b64decode(value["key"]))
