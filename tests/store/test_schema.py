"""Stores of earlier versions: ``schema_1.db`` was written by Tower 1.0."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from twisted.internet import reactor as global_reactor
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.clusters.agent_keys import AgentKeys
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.v1_tokens import V1Tokens
from tower.errors import ConfigurationError
from tower.rotation.rotation import PREFIX, Rotation
from tower.store import sqlite_file
from tower.store.kinds import SETTINGS
from tower.store.sqlite import SQLiteStore
from tower.trust.vault import Vault

STORED = Path(__file__).parent / "schema_1.db"

#: Shortly after it was written.
NOW = 1_790_000_010.0
KEY = "SHA256:" + "A" * 43


class SchemaTests(SynchronousTestCase):
    """Each test has a copy of the file."""

    def setUp(self) -> None:
        """Copy it."""
        self.path = Path(self.mktemp())
        shutil.copy(STORED, self.path)
        self.path.chmod(0o600)
        self.clock: Any = Clock()
        self.clock.advance(NOW)

    def opened(self) -> SQLiteStore:
        """Open the copy with this version."""
        return SQLiteStore(cast(IReactorFromThreads, global_reactor), self.path)

    def schema(self) -> tuple[int, int]:
        """Return the schema in the file, and the number of its records."""
        with closing(sqlite3.connect(self.path)) as connection:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
        return schema, count

    def test_every_record(self) -> None:
        """Every kind of record in it can be read."""
        store = self.opened()
        accesses = MemberCredentials(store, Vault(Path(self.mktemp())))
        clusters = Clusters(store, range(6000, 6100), self.clock, accesses)
        self.addCleanup(clusters.stop)
        alpha, beta, gamma = clusters.list()
        self.assertEqual((alpha.name, alpha.labels, alpha.kubernetes_port), ("alpha", {"env": "prod"}, 6000))
        condition = alpha.condition("AgentAvailable")
        assert condition is not None
        self.assertEqual((condition.status, beta.enabled, gamma.type), ("True", False, "ssh"))
        facts = accesses.facts(gamma)
        assert facts is not None
        self.assertEqual(facts.credential, "token")
        tokens = JoinTokens(store, self.clock)
        self.assertTrue(tokens.is_enrolled("alpha", KEY))
        self.assertEqual(len(tokens.unspent(NOW)), 1)
        (key,) = AgentKeys(store, self.clock).all()
        self.assertEqual((key.connected, key.has("SHA256:" + "B" * 43)), (True, True))
        credentials = Credentials(store, self.clock, 86400.0)
        self.addCleanup(credentials.stop)
        (jane,), (root,) = credentials.list("alpha"), credentials.list("")
        self.assertEqual((jane.user, jane.groups, root.kind), ("jane", ("dev",), "cert"))
        v1_tokens = V1Tokens(store, self.clock)
        self.addCleanup(v1_tokens.stop)
        self.assertEqual(len(v1_tokens.tokens("beta")), 1)
        record = store.get(SETTINGS, PREFIX + "host-key")
        assert record is not None
        self.assertEqual(Rotation.decode(record).old, KEY)

    def test_migrated(self) -> None:
        """Steps to later schemas run once, in order, and keep the records."""
        steps = (("CREATE TABLE extra (x)",), (), ("INSERT INTO extra VALUES (1)",))
        before = self.schema()
        for _ in range(2):
            with patch.object(sqlite_file, "MIGRATIONS", steps), patch.object(sqlite_file, "SCHEMA", 4):
                self.assertEqual(len(self.opened().snapshot("clusters")), 3)
            self.assertEqual(self.schema(), (4, before[1]))
        with closing(sqlite3.connect(self.path)) as connection:
            self.assertEqual(connection.execute("SELECT x FROM extra").fetchall(), [(1,)])
        error = str(self.assertRaises(ConfigurationError, self.opened))
        for word in (str(self.path), "newer Tower", "layout 4", "backup"):
            self.assertIn(word, error)

    def test_failed_migration(self) -> None:
        """A step that fails leaves the earlier schema."""
        before = self.schema()
        steps = (("CREATE TABLE extra (x)", "INSERT INTO nothing VALUES (1)"),)
        with patch.object(sqlite_file, "MIGRATIONS", steps), patch.object(sqlite_file, "SCHEMA", 2):
            self.assertRaises(ConfigurationError, self.opened)
        self.assertEqual(self.schema(), before)
        self.assertEqual(len(self.opened().snapshot("clusters")), 3)
