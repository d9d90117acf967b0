"""Copies all records from one store to another."""

from __future__ import annotations

from tower.errors import Conflict
from tower.store.kinds import CLUSTERS, KINDS
from tower.store.records import encode
from tower.store.store import IStore


async def copy_records(source: IStore, target: IStore) -> int:
    """Copy all records; a copy that was interrupted can be repeated.

    :return: number of records that were written.
    :raise Conflict: the target has other clusters; nothing is written.
    :raise TowerError: a record cannot be written; those before are.
    """
    for name, record in target.snapshot(CLUSTERS).items():
        known = source.get(CLUSTERS, name)
        if known is None or known.value["uid"] != record.value["uid"]:
            raise Conflict(
                f"the target has a cluster {name} that is not in the source: copy to an empty store, or "
                "remove that cluster first"
            )
    count = 0
    for kind in KINDS:
        for name, record in list(source.snapshot(kind).items()):
            present = target.get(kind, name)
            if present is None:
                await target.create(kind, name, record.value)
            elif encode(present.value) == encode(record.value):
                continue
            else:
                await target.update(kind, name, record.value)
            count += 1
    return count
