"""The contract of all stores, on the one in memory."""

from __future__ import annotations

from tests.store import store_contract
from tower.store import MemoryStore


class MemoryStoreTests(store_contract.StoreContract):
    """The store that forgets keeps the contract of all stores."""

    def setUp(self) -> None:
        """Make a store."""
        self.store = MemoryStore()
        self.addCleanup(self.store.stop)
