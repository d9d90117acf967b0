"""Tests of `tower.net.tls.client_certificate`."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import Pair, issue, pem
from tower.net.tls.client_certificate import load_pair


class LoadPairTests(SynchronousTestCase):
    """Loads a certificate and its key."""

    def load(self, certificate: Pair, key: Pair) -> None:
        """Load them."""
        private = key[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pem(certificate[0]), private)

    def test_in_memory(self) -> None:
        """No file is made, and no descriptor is left, whether they can be used or not."""
        one, other = issue("one"), issue("other")
        self.patch(tempfile, "tempdir", self.mktemp())  # which does not exist
        before = len(os.listdir("/proc/self/fd"))
        self.load(one, one)
        error = self.assertRaises(ValueError, self.load, one, other)
        self.assertNotIsInstance(error, ssl.SSLError)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_elsewhere(self) -> None:
        """Without files in memory there is one for a moment, and none afterwards."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.patch(tempfile, "tempdir", str(folder))
        self.addCleanup(setattr, os, "memfd_create", os.memfd_create)
        del os.memfd_create
        one, other = issue("one"), issue("other")
        self.load(one, one)
        self.assertRaises(ValueError, self.load, one, other)
        self.assertEqual(list(folder.iterdir()), [])
