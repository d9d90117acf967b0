"""Tests of `tower.trust.certificate_directory`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.control.front_door.public_certificate import public_pair
from tower.errors import ConfigurationError
from tower.trust.certificate_directory import LIFETIME, make_pair, pair_in
from tower.trust.named_certificates import PairFiles
from tower.trust.pki import load_certificates

NOW = 1_700_000_000.0


class PairTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Name a directory that does not exist."""
        self.directory = Path(self.mktemp()) / "serving"
        self.files = pair_in(self.directory)

    def test_made(self) -> None:
        """The pair is usable for the host; its CA is at the end, and only the owner reads the key."""
        make_pair(self.directory, "tower.example", NOW)
        certificate, key = self.files
        self.assertEqual([path.stat().st_mode & 0o777 for path in self.files], [0o644, 0o600])
        public_pair(PairFiles(certificate, key, ("tower.example",)), for_agents=True)
        first, authority = load_certificates(certificate.read_bytes())
        first.verify_directly_issued_by(authority)
        self.assertEqual(first.not_valid_after_utc.timestamp(), NOW + LIFETIME)

    def test_kept(self) -> None:
        """A pair that exists is not changed."""
        make_pair(self.directory, "tower.example", NOW)
        before = [path.read_bytes() for path in self.files]
        make_pair(self.directory, "other.example", NOW + 1)
        self.assertEqual([path.read_bytes() for path in self.files], before)

    def test_half(self) -> None:
        """One file alone is an error that names the other; nothing is written."""
        make_pair(self.directory, "tower.example", NOW)
        for number in (0, 1):
            content = self.files[number].read_bytes()
            self.files[number].unlink()
            error = self.assertRaises(ConfigurationError, make_pair, self.directory, "tower.example", NOW)
            self.assertIn(f"has no {self.files[number].name}: certificate and key must be", str(error))
            self.assertFalse(self.files[number].exists())
            self.files[number].write_bytes(content)

    def test_not_writable(self) -> None:
        """A directory that cannot be made is an error with the cure."""
        self.directory.parent.mkdir()
        self.directory.touch()
        error = self.assertRaises(ConfigurationError, make_pair, self.directory, "tower.example", NOW)
        self.assertIn(f"--cert-dir {self.directory}: cannot write the certificate (", str(error))
        self.assertEqual(os.listdir(self.directory.parent), ["serving"])
