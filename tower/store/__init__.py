"""The record store (interface, memory, SQLite, host cluster) and the audit log file.

Start with `tower.store.store` (`IStore`); records and operations are in `tower.store.records`.  `audit_log`
queues the audit log's lines, `audit_file` writes and rotates the file.  `backup` and `restore` copy a state
directory.  `kubernetes` has the store in a host cluster.  May import `tower.kube` and below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.deferred import deferred_names

if TYPE_CHECKING:
    from tower.store.store import EVENT_LIMIT, IStore, MemoryStore

__all__ = ["EVENT_LIMIT", "IStore", "MemoryStore"]

__getattr__ = deferred_names(__name__, dict.fromkeys(__all__, "store"))
