"""Tests of `tower.control.state_files`."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.keys import load_or_create
from tower.control.state_files import (
    DATABASE,
    HOSTED,
    SERVING_CA,
    USERS_CA,
    check_database,
    check_keys,
    lost_database,
    open_database,
)
from tower.errors import ConfigurationError
from tower.rotation.host_key import FILE
from tower.store import MemoryStore
from tower.store.records import Create
from tower.trust.statedir import StateDir

NOW = 1e9


def credential(**changes: object) -> dict[str, object]:
    """Return the value of a user's valid credential."""
    valid = {"user": "jane", "kind": "cert", "revoked_at": None, "ended": False, "expires": NOW + 1}
    return {**valid, **changes}


class StateFilesTests(SynchronousTestCase):
    """Files that are usable, damaged or missing."""

    def setUp(self) -> None:
        """Start with an empty state directory and no agents."""
        self.state = StateDir(Path(self.mktemp()))
        self.store = MemoryStore()

    def error(self, *, new_allowed: bool = False) -> str:
        """Return the error of the check of the host key, or an empty text."""
        return self.keys_error(new_host_key=new_allowed, is_given=True)

    def keys_error(self, *, new_host_key: bool = False, new_ca: bool = False, is_given: bool = False) -> str:
        """Return the error of the check of keys, or an empty text."""
        try:
            check_keys(
                self.state, self.store, NOW, new_host_key=new_host_key, new_ca=new_ca, is_given=is_given
            )
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

    def test_missing_in_secret(self) -> None:
        """With keys from a Secret, the error names the Secret and its cure."""
        self.successResultOf(self.store.transact([Create("agentkeys", "a", {"cluster_uid": "1"})]))
        self.state.source = "Secret kubesphere-system/tower-state"
        text = self.error()
        self.assertTrue(text.startswith(f"Secret kubesphere-system/tower-state is missing, or lacks {FILE}"))
        self.assertIn("apply a saved copy of it with kubectl; without one, set --new-host-key", text)

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

    def test_authorities(self) -> None:
        """A new CA is created only if nothing valid depends on the lost one, or at the operator's request."""
        for key, value in (("user", "tower-admin"), ("revoked_at", 1.0), ("ended", True), ("expires", NOW)):
            self.successResultOf(self.store.create("credentials", key, credential(**{key: value})))
        self.assertEqual(self.keys_error(), "")
        self.successResultOf(self.store.create("credentials", "t", credential(kind="token")))
        text = self.keys_error()
        self.assertIn(f"CA {self.state.path / SERVING_CA} of the front door is missing", text)
        self.assertIn("is missing; 1 kubeconfig may trust only this CA: restore it from a backup", text)
        self.assertEqual(self.keys_error(is_given=True), "")
        self.assertEqual(self.keys_error(new_ca=True), "")
        self.successResultOf(self.store.create("credentials", "c", credential()))
        text = self.keys_error(is_given=True)
        self.assertIn(f"CA {self.state.path / USERS_CA} is missing, and 1 client certificate", text)
        self.assertIn("without a backup, set --new-ca", text)
        for name in (USERS_CA, SERVING_CA):
            self.state.write(name, b"")
        self.assertEqual(self.keys_error(), "")

    def test_database(self) -> None:
        """A state directory with keys but without a database is not new."""
        check_database(self.state)
        load_or_create(self.state, FILE)
        with self.assertRaises(ConfigurationError) as caught:
            check_database(self.state)
        self.assertIn(f"{self.state.path / 'tower.db'} with all clusters", str(caught.exception))
        self.assertIn(f"although the directory is not new (it has {FILE})", str(caught.exception))
        self.assertIn("restore it from a backup", str(caught.exception))
        self.state.write("tower.db", b"")
        check_database(self.state)

    def test_new(self) -> None:
        """A new installation is logged once its database exists, but not its next start, or a failed one."""
        reactor = cast(IReactorFromThreads, MemoryReactorClock())
        with capturedLogs() as events:
            (self.state.path / DATABASE).symlink_to("/nonexistent/database")
            self.assertRaises(ConfigurationError, open_database, reactor, self.state)
        self.assertEqual(list(events), [])
        (self.state.path / DATABASE).unlink()
        with capturedLogs() as events:
            for _ in range(2):
                open_database(reactor, self.state)
        (line,) = map(formatEvent, events)
        self.assertIn(f"no database in {self.state.path}: creating a new installation (keys, CAs", line)

    def test_host_cluster(self) -> None:
        """The directory of a proxy whose records are in a host cluster lacks no database, and is rejected."""
        self.state.write(FILE, b"a key")
        self.assertRaises(ConfigurationError, check_database, self.state)
        self.state.write(HOSTED, b"Secret kubesphere-system/tower-state")
        self.assertIsNone(lost_database(self.state.path, [FILE, HOSTED]))
        error = self.assertRaises(ConfigurationError, check_database, self.state)
        self.assertIn("a proxy with --store kubernetes: set another --state-dir", str(error))
