"""Tests of `tower.clusters.records`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.records import Records
from tower.store import MemoryStore
from tower.trust.vault import Vault


class RecordsTests(SynchronousTestCase):
    """The records of one store."""

    def test_of(self) -> None:
        """All kinds are in the same store; after the stop, nothing follows it."""
        clock: Any = Clock()
        store, vault = MemoryStore(), Vault(Path(self.mktemp()), clock.seconds)
        records = Records.of(store, vault, range(6000, 6002), clock, 3600.0)
        self.successResultOf(records.clusters.add("alpha"))
        token = self.successResultOf(records.tokens.mint("alpha"))
        self.successResultOf(records.tokens.enrol("alpha", token, "SHA256:x", b"blob"))
        self.assertEqual([each.cluster for each in records.agent_keys.all()], ["alpha"])
        other = Records.of(store, vault, None, clock, 3600.0)
        self.assertEqual([each.name for each in other.clusters.list()], ["alpha"])
        self.assertTrue(any(store._watches.values()))
        records.stop()
        other.stop()
        self.assertFalse(any(store._watches.values()))
