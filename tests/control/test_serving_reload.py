"""Tests of `tower.control.serving_reload`."""

from __future__ import annotations

import time
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tower.control.serving_reload import reload_serving
from tower.errors import ConfigurationError
from tower.rotation.assembly import ProxyKeys
from tower.trust.pki import Authority, load_certificates, self_signed
from tower.trust.serving_certificate import STATE_FILE, ServingCertificate
from tower.trust.statedir import StateDir

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "given")])
DAY = 86400.0


class ReloadTests(SynchronousTestCase):
    """The certificate in the state directory, and a CA given by options."""

    def begin(self, given: Authority | None = None) -> tuple[ProxyKeys, ServingCertificate]:
        """Return the keys and the serving certificate of a proxy."""
        self.state = StateDir(Path(self.mktemp()))
        keys = ProxyKeys.load(self.state, given, time.time())
        return keys, ServingCertificate(
            self.state, keys.authority.current, keys.users, ["127.0.0.1"], time.time
        )

    def serving(self) -> list[x509.Certificate]:
        """Return the certificates that are served."""
        return list(load_certificates(self.state.read(STATE_FILE) or b""))

    def test_own(self) -> None:
        """A certificate stays; a missing or damaged one is replaced."""
        keys, serving = self.begin()
        before = self.serving()
        self.assertIn("valid until", reload_serving(keys, serving, lambda: None))
        self.assertEqual(self.serving(), before)
        for content in (None, b"damaged"):
            if content is None:
                self.state.remove(STATE_FILE)
            else:
                self.state.write(STATE_FILE, content)
            reload_serving(keys, serving, lambda: None)
            self.assertNotEqual(self.serving()[0], before[0])
            self.assertEqual(self.serving()[1:], before[1:])

    def test_given(self) -> None:
        """A renewed CA is used at once, for join lines too; one with another key needs a restart."""
        given = self_signed(NAME, 30 * DAY, time.time())
        keys, serving = self.begin(given)
        before = self.serving()
        reload_serving(keys, serving, lambda: given)
        self.assertEqual(self.serving(), before)

        other = self_signed(NAME, 60 * DAY, time.time())
        error = self.assertRaises(ConfigurationError, reload_serving, keys, serving, lambda: other)
        self.assertIn(given.hash, str(error))
        self.assertIn("restart", str(error))
        self.assertEqual(self.serving(), before)

        renewed = Authority([*given.certificates, *other.certificates], given.key)
        reload_serving(keys, serving, lambda: renewed)
        self.assertEqual(self.serving()[1:], list(renewed.certificates))
        self.assertIs(keys.authority.current, renewed)
