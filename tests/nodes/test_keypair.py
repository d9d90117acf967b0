"""Tests of `tower.nodes.keypair`."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.ssh.client_key import KeyUnusable, check_owner


class KeyCase(SynchronousTestCase):
    """A directory."""

    def setUp(self) -> None:
        """Name a key in an empty directory."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.path = self.folder / "id"
        self.public = self.folder / "id.pub"
        self.keys = KeyPairFiles(self.path)

    def content(self) -> dict[str, bytes]:
        """Return all files."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def refused(self, keys: KeyPairFiles | None = None) -> str:
        """Return why the pair cannot be made, and see that nothing is touched by that."""
        before = self.content()
        with self.assertRaises(ConfigurationError) as caught:
            (keys or self.keys).ensure()
        self.assertEqual(self.content(), before)
        return str(caught.exception)


class GenerateTests(KeyCase):
    def test_ed25519(self) -> None:
        """The private key is as ssh-keygen writes it, and the public one a line for authorized_keys."""
        self.keys.ensure()
        self.assertTrue(self.path.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----\n"))
        line = self.keys.public_line()
        self.assertRegex(line, rb"^ssh-ed25519 [A-Za-z0-9+/]{68}\n$")
        self.assertEqual(self.public.read_bytes(), line)
        self.assertEqual(self.keys.private().authorized_key, line)

    def test_rsa(self) -> None:
        """Both files are as kube-apiserver writes them; the line is the same key."""
        keys = KeyPairFiles(self.path, "rsa")
        keys.ensure()
        self.assertTrue(self.path.read_bytes().startswith(b"-----BEGIN RSA PRIVATE KEY-----\n"))
        self.assertTrue(self.public.read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----\n"))
        public: Any = load_pem_public_key(self.public.read_bytes())
        self.assertEqual(public.key_size, 2048)
        line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
        self.assertEqual((keys.public_line(), keys.private().authorized_key), (line, line))

    def test_modes(self) -> None:
        """Only the owner reads them, whatever the umask, and nothing else is left in the directory."""
        old = os.umask(0)
        try:
            self.keys.ensure()
        finally:
            os.umask(old)
        self.assertEqual(set(self.content()), {"id", "id.pub"})
        for path in (self.path, self.public):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)

    def test_a_pair_is_left_alone(self) -> None:
        """A second call changes nothing, even with another type."""
        self.keys.ensure()
        before = self.content()
        self.keys.ensure()
        KeyPairFiles(self.path, "rsa").ensure()
        self.assertEqual(self.content(), before)

    def test_no_directory(self) -> None:
        """The error names the missing directory, and the directory is not created."""
        text = self.refused(KeyPairFiles(self.folder / "nowhere" / "id"))
        self.assertIn(str(self.folder / "nowhere"), text)

    def test_a_file_for_a_directory(self) -> None:
        """The error of a path that cannot be inspected has the reason."""
        (self.folder / "file").write_bytes(b"x")
        self.assertIn("Not a directory", self.refused(KeyPairFiles(self.folder / "file" / "id")))

    def test_no_file(self) -> None:
        """A path that is not a regular file, such as a device, is neither replaced nor read."""
        os.mkfifo(self.path)
        self.assertIn(
            f"SSH key {self.path}: not a regular file",
            str(self.assertRaises(ConfigurationError, self.keys.ensure)),
        )
        self.assertTrue(self.path.is_fifo())
        self.assertEqual([path.name for path in self.folder.iterdir()], ["id"])
        self.assertIn("not a regular file", str(self.assertRaises(KeyUnusable, self.keys.private)))

    def test_others_may_read(self) -> None:
        """A private key that others may read is not used, as by ssh, and the cure is named."""
        self.keys.ensure()
        for mode in (0o640, 0o604, 0o660, 0o601):
            self.path.chmod(mode)
            error = str(self.assertRaises(KeyUnusable, KeyPairFiles(self.path).private))
            self.assertIn(f"other users may read it (mode {mode:04o})': chmod 600 {self.path}", error)
        self.path.chmod(0o400)
        KeyPairFiles(self.path).private()

    def test_of_another_user(self) -> None:
        """Another user's key is not used; root's is, where Kubernetes mounts it for our group alone."""
        self.keys.ensure()
        status = list(self.path.stat())
        for owner, mode, group, is_good in (
            (1234, 0o600, 77, False),
            (0, 0o440, 77, True),
            (0, 0o440, 78, False),
            (0, 0o460, 77, False),
            (0, 0o444, 77, False),
        ):
            self.patch(os, "geteuid", lambda: 99)
            self.patch(os, "getgroups", lambda: [77])
            status[stat.ST_MODE], status[stat.ST_UID], status[stat.ST_GID] = mode, owner, group
            if is_good:
                check_owner(self.path, os.stat_result(status))
                continue
            error = self.assertRaises(KeyUnusable, check_owner, self.path, os.stat_result(status))
            self.assertIn(f"it belongs to uid {owner}, but this process runs as 99", str(error))
            self.assertIn(f"chown 99 {self.path} && chmod 600 {self.path}", str(error))

    def test_switch(self) -> None:
        """It can become another pair, which counts as a change; the one before is left alone."""
        self.keys.ensure()
        line = self.keys.public_line()
        self.keys.switch(self.path, "rsa")
        self.assertFalse(self.keys.changed())
        self.keys.switch(self.folder / "other", "rsa")
        self.assertTrue(self.keys.changed())
        self.keys.ensure()
        self.assertTrue(self.keys.public_line().startswith(b"ssh-rsa "))
        self.assertFalse(self.keys.changed())
        self.assertEqual(self.public.read_bytes(), line)

    def test_what_a_crash_left(self) -> None:
        """Drafts of an interrupted run do no harm."""
        for name in ("id.tmp", "id.pub.tmp"):
            (self.folder / name).write_bytes(b"half")
        self.keys.ensure()
        self.assertEqual(set(self.content()), {"id", "id.pub"})

    def test_a_draft_that_is_a_link(self) -> None:
        """Another user's link is not followed."""
        target = self.folder / "target"
        target.write_bytes(b"precious")
        (self.folder / "id.tmp").symlink_to(target)
        self.keys.ensure()
        self.assertEqual(target.read_bytes(), b"precious")


class HalfPairTests(KeyCase):
    def test_private_alone(self) -> None:
        """The public key is created from it; the private key is unchanged."""
        for kind in ("ed25519", "rsa"):
            keys = KeyPairFiles(self.path, kind)
            keys.ensure()
            before = self.content()
            self.public.unlink()
            keys.ensure()
            self.assertEqual(self.content(), before)
            self.path.unlink()

    def test_private_alone_of_another_kind(self) -> None:
        """Any key that can be used is completed."""
        private = ec.generate_private_key(ec.SECP256R1())
        self.path.touch(0o600)
        self.path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.keys.ensure()
        self.assertTrue(self.keys.public_line().startswith(b"ecdsa-sha2-nistp256 "))

    def test_public_alone(self) -> None:
        """It is useless without the private key: a new pair is created."""
        self.keys.ensure()
        before = self.keys.public_line()
        self.path.unlink()
        self.keys.ensure()
        self.assertNotEqual(self.keys.public_line(), before)
        self.assertEqual(self.keys.public_line(), self.keys.private().authorized_key)

    def test_an_empty_file_is_no_key(self) -> None:
        """A run that broke off on a full disk may leave one."""
        self.path.write_bytes(b"")
        self.public.write_bytes(b"")
        self.keys.ensure()
        self.assertEqual(self.keys.public_line(), self.keys.private().authorized_key)

    def test_protected_by_a_passphrase(self) -> None:
        """The error names the file, and nothing is overwritten."""
        private = Ed25519PrivateKey.generate()
        self.path.touch(0o600)
        self.path.write_bytes(
            private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        )
        self.assertIn("passphrase", self.refused())

    def test_something_else(self) -> None:
        """A file without a key is not overwritten either."""
        self.path.touch(0o600)
        self.path.write_bytes(b"my diary\n")
        self.assertIn("not a private key", self.refused())

    def test_a_link_that_leads_nowhere(self) -> None:
        """A dangling link is not replaced: its target may appear later, as with a Secret."""
        self.path.symlink_to(self.folder / "later")
        with self.assertRaises(ConfigurationError):
            self.keys.ensure()
        self.assertTrue(self.path.is_symlink())

    def test_a_link_to_a_key(self) -> None:
        """It is followed."""
        self.keys.ensure()
        linked = self.folder / "link"
        linked.symlink_to(self.path.name)
        keys = KeyPairFiles(linked)
        keys.ensure()
        self.assertTrue(linked.is_symlink())
        self.assertEqual(keys.public_line(), self.keys.public_line())


class FullDiskTests(KeyCase):
    def setUp(self) -> None:
        """A disk that may be full."""
        super().setUp()
        self.room = 100
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= 1
            real(descriptor)

        self.patch(os, "fsync", fsync)

    def test_nothing_is_lost(self) -> None:
        """Wherever the disk is full, the existing files stay, and no draft is left."""
        for writes in (0, 1):
            self.public.write_bytes(b"of some other private key")
            self.room = writes
            self.assertIn("No space left on device", self.refused())

    def test_the_public_key(self) -> None:
        """A private key without a public key file is enough, and is unchanged."""
        self.keys.ensure()
        line = self.keys.public_line()
        self.public.unlink()
        self.room = 0
        before = self.content()
        self.keys.ensure()
        self.assertEqual(self.keys.public_line(), line)
        self.assertEqual(self.content(), before)

    def test_it_is_tried_again(self) -> None:
        """With room again the pair is made."""
        self.room = 0
        self.refused()
        self.room = 100
        self.keys.ensure()
        self.keys.public_line()


class ReadTests(KeyCase):
    def setUp(self) -> None:
        """A key pair."""
        super().setUp()
        self.keys.ensure()

    def test_public_in_pem(self) -> None:
        """A public key in PEM is read for any kind, as well as a line with a comment."""
        line = self.keys.public_line()
        private = Ed25519PrivateKey.generate()
        self.path.touch(0o600)
        self.path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public = private.public_key()
        self.public.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        expected = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        self.assertEqual(self.keys.public_line(), expected + b"\n")
        self.assertNotEqual(self.keys.public_line(), line)
        self.public.write_bytes(expected + b" joe@example\n")
        self.assertEqual(self.keys.public_line(), expected + b"\n")

    def test_public_is_missing(self) -> None:
        """It is made again from the private one."""
        line = self.keys.public_line()
        self.public.unlink()
        self.assertEqual(self.keys.public_line(), line)
        self.assertTrue(self.public.exists())

    def test_no_pair(self) -> None:
        """Another key's public key is not returned."""
        other = KeyPairFiles(self.folder / "other")
        other.ensure()
        self.public.write_bytes(other.public_path.read_bytes())
        with self.assertRaisesRegex(KeyUnusable, "is not the public key of"):
            self.keys.public_line()

    def test_public_is_no_key(self) -> None:
        """The error names the invalid file."""
        for text in (b"x", b"-----BEGIN PUBLIC KEY-----\n", b"ssh-ed25519 !!!", b"\xff\xfe"):
            self.public.write_bytes(text)
            with self.assertRaises(KeyUnusable) as caught:
                self.keys.public_line()
            self.assertIn(f"error parsing SSH key {self.public}: ", str(caught.exception))

    def test_private_is_missing(self) -> None:
        """The error has upstream's text."""
        self.path.unlink()
        with self.assertRaisesRegex(KeyUnusable, "error reading SSH key .*no such file"):
            self.keys.private()

    def test_private_is_parsed_once(self) -> None:
        """An unchanged file is parsed once, a changed one again."""
        key = self.keys.private()
        self.assertIs(self.keys.private(), key)
        other = KeyPairFiles(self.folder / "other")
        other.ensure()
        other.path.replace(self.path)
        self.assertNotEqual(self.keys.private().fingerprint, key.fingerprint)

    def test_changed(self) -> None:
        """A pair has changed if a file was replaced since the last call of `public_line`."""
        self.assertFalse(self.keys.changed())
        self.keys.public_line()
        self.assertFalse(self.keys.changed())
        other = KeyPairFiles(self.folder / "other")
        other.ensure()
        other.path.replace(self.path)
        self.assertTrue(self.keys.changed())
        other.public_path.replace(self.public)
        self.assertTrue(self.keys.changed())
        self.keys.public_line()
        self.assertFalse(self.keys.changed())

    def test_changed_to_something_bad(self) -> None:
        """One that cannot be used counts once."""
        self.keys.public_line()
        self.path.write_bytes(b"no key")
        self.assertTrue(self.keys.changed())
        with self.assertRaises(KeyUnusable):
            self.keys.public_line()
        self.assertFalse(self.keys.changed())

    def test_no_secret(self) -> None:
        """Errors and reprs do not show the key."""
        secret = self.path.read_text().splitlines()[1]
        self.path.write_text(self.path.read_text().replace("END", "EMD"))
        with self.assertRaises(KeyUnusable) as caught:
            self.keys.private()
        self.assertNotIn(secret[:20], repr(caught.exception) + repr(self.keys))
