"""The contract of all stores, on the one in memory."""

from __future__ import annotations

from tests import stores
from tower.store import MemoryStore


class MemoryStoreTests(stores.StoreContract):
    """The store that forgets keeps the contract of all stores."""

    def setUp(self) -> None:
        """Make a store."""
        self.store = MemoryStore()
        self.addCleanup(self.store.stop)
