"""Secrets sealed by a key file."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.trust.vault import Vault, VaultError, new_key

SECRET = b"hush, a secret\0with a zero"


class VaultTests(SynchronousTestCase):
    """Each test has a folder for the key file."""

    def setUp(self) -> None:
        """Choose a path without a key file."""
        self.path = Path(self.mktemp())
        self.path.mkdir()
        self.path /= "secrets.key"
        self.vault = Vault(self.path)

    def refusal(self, sealed: str, about: str = "u1") -> str:
        """Return the error of `open`; it does not contain the secret."""
        error = self.assertRaises(VaultError, self.vault.open, sealed, about)
        self.assertIsInstance(error, ConfigurationError)
        self.assertNotIn("hush", str(error))
        return str(error)

    def test_sealed(self) -> None:
        """A sealed secret opens for its owner, and its ciphertext reveals nothing."""
        sealed = self.vault.seal(SECRET, "u1")
        self.assertNotIn("hush", sealed)
        self.assertNotEqual(sealed, self.vault.seal(SECRET, "u1"))
        self.assertEqual(self.vault.open(sealed, "u1"), SECRET)
        self.assertEqual(Vault(self.path).open(sealed, "u1"), SECRET)
        self.assertTrue(self.vault.is_current(sealed))

    def test_sealed_for_another(self) -> None:
        """A secret sealed for one owner does not open for another."""
        sealed = self.vault.seal(SECRET, "u1")
        for about in ("u2", "u", "u1 ", ""):
            self.assertIn("sealed for another owner", self.refusal(sealed, about))

    def test_changed(self) -> None:
        """A modified or foreign ciphertext does not open."""
        sealed = self.vault.seal(SECRET, "u1")
        middle = len(sealed) // 2
        other = "A" if sealed[middle] != "A" else "B"
        for text in (sealed[:middle] + other + sealed[middle + 1 :], sealed[:-4], "", "é", "x"):
            self.assertIn("holds no key for this secret", self.refusal(text))

    def test_file(self) -> None:
        """The key file is created when first needed, readable by its owner only, without other files."""
        self.assertFalse(self.path.exists())
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        self.vault.seal(SECRET, "u1")
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual([path.name for path in self.path.parent.iterdir()], ["secrets.key"])
        self.assertNotIn(self.path.read_text().strip(), repr(self.vault))

    def test_file_that_came_first(self) -> None:
        """A file created concurrently is not replaced."""
        key = new_key()
        self.path.write_bytes(key)
        self.path.chmod(0o600)
        self.vault._create()
        self.assertEqual(self.path.read_bytes(), key)
        self.assertEqual([path.name for path in self.path.parent.iterdir()], ["secrets.key"])

    def test_rotated(self) -> None:
        """A new key in front seals, and what the old ones sealed opens until they are taken out."""
        old = self.vault.seal(SECRET, "u1")
        key = self.path.read_bytes()
        self.path.write_bytes(b"# made today\n" + new_key() + b"\n\n" + key)
        new = self.vault.seal(SECRET, "u1")
        self.assertEqual([self.vault.is_current(sealed) for sealed in (old, new)], [False, True])
        self.assertEqual({self.vault.open(sealed, "u1") for sealed in (old, new)}, {SECRET})
        self.path.write_bytes(self.path.read_bytes().replace(key, b""))
        self.assertEqual(self.vault.open(new, "u1"), SECRET)
        self.assertIn("holds no key for this secret", self.refusal(old))

    def test_lost(self) -> None:
        """Without the file nothing opens, and the error names the cure; after a restore, secrets open."""
        sealed = self.vault.seal(SECRET, "u1")
        aside = self.path.rename(self.path.with_name("aside"))
        self.assertIn("not found", self.refusal(sealed))
        self.assertFalse(self.vault.is_current(sealed))
        aside.rename(self.path)
        self.assertEqual(self.vault.open(sealed, "u1"), SECRET)

    def test_foreign(self) -> None:
        """The key file of another installation opens nothing."""
        sealed = self.vault.seal(SECRET, "u1")
        self.path.write_bytes(new_key())
        self.assertIn("holds no key for this secret", self.refusal(sealed))

    def test_readable_by_others(self) -> None:
        """A file that others may read is refused, with the cure, even when it was good a moment ago."""
        sealed = self.vault.seal(SECRET, "u1")
        self.path.chmod(0o640)
        self.assertIn(f"chmod 600 {self.path}", self.refusal(sealed))
        self.assertRaises(VaultError, self.vault.seal, SECRET, "u1")

    def test_no_key(self) -> None:
        """A file that holds no key is refused by line, and its content is not shown."""
        sealed = self.vault.seal(SECRET, "u1")
        for content, text in (
            (b"", "holds no key"),
            (b"# nothing\n", "holds no key"),
            (b"hush\n", "line 1 is not a key"),
            (new_key() + b"\nhush\n", "line 2 is not a key"),
            (new_key()[:-4] + b"\n", "line 1 is not a key"),
            (b"\xff\xfe\n", "line 1 is not a key"),
            (b"#" * 65537 + b"\n" + new_key(), "holds no key"),
        ):
            self.path.write_bytes(content)
            self.assertIn(text, self.refusal(sealed))

    def test_nowhere_to_keep_it(self) -> None:
        """A file that cannot be made is an error that names it."""
        vault = Vault(self.path.parent / "nowhere" / "key")
        error = self.assertRaises(VaultError, vault.seal, SECRET, "u1")
        self.assertIn("nowhere/key", str(error))
        self.path.mkdir()
        self.assertIn("secrets.key", str(self.assertRaises(VaultError, self.vault.seal, SECRET, "u1")))

    def test_time(self) -> None:
        """A sealed secret contains the time of the given clock."""
        sealed = Vault(self.path, lambda: 1_790_000_000.9).seal(SECRET, "u1")
        moment = int.from_bytes(base64.urlsafe_b64decode(sealed)[1:9], "big")
        self.assertEqual(moment, 1_790_000_000)
        self.assertEqual(self.vault.open(sealed, "u1"), SECRET)

    def test_rotation(self) -> None:
        """A new first key seals; old ones open until they are dropped; comments stay."""
        sealed = self.vault.seal(SECRET, "u1")
        self.path.write_bytes(b"# from the safe\n" + self.path.read_bytes())
        first = self.vault.key_id
        self.vault.add_key(new_key())
        self.assertNotEqual(self.vault.key_id, first)
        self.assertEqual(self.vault.open(sealed, "u1"), SECRET)
        self.assertFalse(self.vault.is_current(sealed))
        again = self.vault.seal(SECRET, "u1")
        self.vault.drop_old_keys()
        self.assertEqual(self.vault.open(again, "u1"), SECRET)
        self.refusal(sealed)
        self.assertIn(b"# from the safe", self.path.read_bytes())
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual([path.name for path in self.path.parent.iterdir()], [self.path.name])

    def test_rotation_of_nothing(self) -> None:
        """Without a file, a new key makes one, and there is nothing to drop."""
        self.vault.drop_old_keys()
        self.assertEqual(self.vault.key_id, "")
        self.vault.add_key(new_key())
        self.assertNotEqual(self.vault.key_id, "")

    def test_same_key_twice(self) -> None:
        """A key that is in the file twice is not dropped with the old ones."""
        key = new_key()
        self.path.write_bytes(key + b"\n" + new_key() + b"\n" + key + b"\n")
        self.path.chmod(0o600)
        sealed = self.vault.seal(SECRET, "u1")
        self.vault.drop_old_keys()
        self.assertEqual(self.vault.open(sealed, "u1"), SECRET)
