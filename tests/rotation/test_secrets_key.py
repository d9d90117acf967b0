"""Tests of `tower.rotation.secrets_key`."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from tests.fakes.members import SPEC, by_token
from tests.fakes.rotations import RotationTestCase
from tower.errors import Conflict
from tower.trust.vault import VaultError, new_key


class SecretsKeyTests(RotationTestCase):
    """Each test has a cluster of type ssh with a stored credential."""

    def setUp(self) -> None:
        """Add it."""
        super().setUp()
        self.gamma = self.successResultOf(self.clusters.add("gamma", ssh=SPEC, access=by_token()))

    def keys_in_file(self) -> int:
        """Return the number of keys in the file."""
        return len(self.vault.path.read_bytes().splitlines())

    def readable(self) -> bool:
        """Return whether the stored credential can be opened."""
        return self.member_credentials.get(self.gamma).token == by_token().token

    def test_rotated(self) -> None:
        """All credentials are sealed with the new key, and the old one is removed."""
        old = self.vault.path.read_bytes()
        rotation = self.begin("secrets-key")
        self.assertIsNotNone(rotation.finished)
        self.assertEqual(self.vault.key_id, rotation.new)
        self.assertNotEqual(rotation.old, rotation.new)
        self.assertEqual(self.keys_in_file(), 1)
        self.assertNotIn(old.strip(), self.vault.path.read_bytes())
        self.assertEqual(self.vault.path.stat().st_mode & 0o777, 0o600)
        self.restart()
        self.assertTrue(self.readable())

    def test_stopped(self) -> None:
        """After a stop with both keys in the file everything can be read, and the rotation goes on."""
        self.vault.add_key(new_key())
        self.restart()
        self.assertTrue(self.readable())
        self.assertEqual(self.keys_in_file(), 2)
        self.assertIsNotNone(self.begin("secrets-key").finished)
        self.assertTrue(self.readable())
        self.assertEqual(self.keys_in_file(), 1)

    def test_unreadable(self) -> None:
        """A credential that no key opens does not delay the rotation, and is unchanged."""
        self.vault.path.write_bytes(new_key() + b"\n")
        self.assertIsNotNone(self.begin("secrets-key").finished)
        self.assertRaises(VaultError, self.member_credentials.get, self.gamma)

    def test_comments(self) -> None:
        """Lines of the operator in the file stay."""
        self.vault.path.write_bytes(b"# from the safe\n" + self.vault.path.read_bytes())
        self.begin("secrets-key")
        self.assertIn(b"# from the safe", self.vault.path.read_bytes())
        self.assertTrue(self.readable())

    def test_cancel(self) -> None:
        """A finished rotation cannot be canceled."""
        self.begin("secrets-key")
        procedure = self.rotations._procedures["secrets-key"]
        self.failureResultOf(Deferred.fromCoroutine(procedure.cancel()), Conflict)
