"""Tests of `tower.control.host_key`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.keys import load_or_create
from tower.control.host_key import check_host_key
from tower.errors import ConfigurationError
from tower.rotation.host_key import FILE
from tower.store import MemoryStore
from tower.store.records import Create
from tower.trust.statedir import StateDir


class HostKeyTests(SynchronousTestCase):
    """A host key that is usable, damaged or missing."""

    def setUp(self) -> None:
        """Start with an empty state directory and no agents."""
        self.state = StateDir(Path(self.mktemp()))
        self.store = MemoryStore()

    def error(self, *, new_allowed: bool = False) -> str:
        """Return the error of the check, or an empty text."""
        try:
            check_host_key(self.state, self.store, new_allowed=new_allowed)
        except ConfigurationError as e:
            return str(e)
        return ""

    def test_missing(self) -> None:
        """A new key is created only if no agent has joined, or at the operator's request."""
        self.assertEqual(self.error(), "")
        self.successResultOf(self.store.transact([Create("agentkeys", "a", {"cluster_uid": "1"})]))
        text = self.error()
        for part in (
            str(self.state.path / FILE),
            "1 enrolled agent accepts",
            "backup",
            "--new-host-key",
            "join",
        ):
            self.assertIn(part, text)
        self.assertEqual(self.error(new_allowed=True), "")
        self.assertIsNone(self.state.read(FILE))
        load_or_create(self.state, FILE)
        self.assertEqual(self.error(), "")

    def test_damaged(self) -> None:
        """A damaged key is never replaced."""
        for content in (b"", b"rubbish"):
            self.state.write(FILE, content)
            for new_allowed in (False, True):
                text = self.error(new_allowed=new_allowed)
                for part in (
                    str(self.state.path / FILE),
                    "is damaged",
                    "backup",
                    "every agent has to join",
                ):
                    self.assertIn(part, text)
            self.assertEqual(self.state.read(FILE), content)
