"""Where records live: the interface, in memory, in SQLite; and the audit log's file.

Start with `tower.store.store` (`IStore`).  May import `tower.reactor` and `tower.errors`.
"""

from __future__ import annotations

from tower.store.store import (
    EVENT_LIMIT,
    IStore,
    MemoryStore,
)

__all__ = [
    "EVENT_LIMIT",
    "IStore",
    "MemoryStore",
]
