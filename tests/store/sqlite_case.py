"""Base of the tests of one store on disk."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from twisted.internet import reactor as global_reactor
from twisted.internet.interfaces import IReactorFromThreads
from twisted.trial.unittest import TestCase

from tower.store.sqlite import SQLiteStore

reactor = cast(IReactorFromThreads, global_reactor)


class SQLiteCase(TestCase):
    """Each test has a file and an open store."""

    def setUp(self) -> None:
        """Make a store."""
        self.path = Path(self.mktemp())
        self.store = self.opened()

    def opened(self, size_limit: int = 1 << 30) -> SQLiteStore:
        """Open the file once more."""
        store = SQLiteStore(reactor, self.path, size_limit)
        self.addCleanup(store.stop)
        return store
