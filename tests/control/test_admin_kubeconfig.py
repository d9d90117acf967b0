"""Tests of the administrator's kubeconfig in the state directory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import authenticated, authenticator
from tower.clusters.credentials import ADMINS, Credentials
from tower.control.admin_kubeconfig import CHECK_PERIOD, FILE, LIFETIME, RENEWAL, AdminKubeconfig
from tower.kube.kubeconfig import load_kubeconfig
from tower.store import MemoryStore
from tower.trust.authorities import own_authority
from tower.trust.statedir import StateDir
from tower.web.access.authorization.credential_scope import authorize_api

NOW = 1_800_000_000.0


class AdminKubeconfigTests(SynchronousTestCase):
    """The file and its renewal."""

    def setUp(self) -> None:
        """Start with a state directory and a store in memory."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, True)
        self.clock = Clock()
        self.clock.advance(NOW)
        self.state = StateDir(Path(folder) / "state")
        store = MemoryStore()
        self.credentials = Credentials(store, self.clock, 86400.0)
        self.access = AdminKubeconfig(
            self.state,
            self.credentials,
            own_authority(self.state, "users-ca", NOW),
            own_authority(self.state, "serving-ca", NOW),
            "https://127.0.0.1:8443",
            self.clock.seconds,
        )

    def renew(self) -> None:
        """Run the timer's call."""
        self.successResultOf(Deferred.fromCoroutine(self.access.try_to_renew()))

    def test_opens_the_api(self) -> None:
        """The file is private, and its credential short-lived, an administrator's, and for Tower's API."""
        self.successResultOf(Deferred.fromCoroutine(self.access.renew()))
        path = self.state.path / FILE
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        found = load_kubeconfig(path)
        self.assertEqual(found.server, "https://127.0.0.1:8443")
        (credential,) = self.credentials.list("")
        self.assertEqual((credential.groups, credential.expires), ((ADMINS,), NOW + LIFETIME))
        assert found.client_certificate is not None
        der = load_pem_x509_certificate(found.client_certificate).public_bytes(Encoding.DER)
        authorize_api(authenticated(authenticator(self.credentials, self.clock), der))

    def test_short(self) -> None:
        """A shorter --max-credential-ttl applies to it, and it is renewed accordingly."""
        self.credentials.max_ttl = 40.0
        self.renew()
        (credential,) = self.credentials.list("")
        self.assertEqual(credential.expires, NOW + 40.0)
        first = (self.state.path / FILE).read_bytes()
        self.clock.advance(10.0)
        self.renew()
        self.assertNotEqual((self.state.path / FILE).read_bytes(), first)

    def test_renewed(self) -> None:
        """It is renewed when it is due, and not before."""
        self.renew()
        first = (self.state.path / FILE).read_bytes()
        self.renew()
        self.assertEqual((self.state.path / FILE).read_bytes(), first)
        self.assertEqual(len(self.credentials.list("")), 1)
        self.clock.advance(LIFETIME * RENEWAL)
        self.renew()
        self.assertNotEqual((self.state.path / FILE).read_bytes(), first)

    def test_revoked(self) -> None:
        """A revocation of the file's credential renews the file at once; that of an earlier one does not."""
        self.renew()
        (first,) = self.credentials.list("")
        content = (self.state.path / FILE).read_bytes()
        self.successResultOf(self.credentials.revoke(first.id))
        second = next(each for each in self.credentials.list("") if not each.revoked)
        renewed = (self.state.path / FILE).read_bytes()
        self.assertNotEqual(renewed, content)
        found = load_kubeconfig(self.state.path / FILE)
        assert found.client_certificate is not None
        der = load_pem_x509_certificate(found.client_certificate).public_bytes(Encoding.DER)
        authorize_api(authenticated(authenticator(self.credentials, self.clock), der))
        self.clock.advance(LIFETIME * RENEWAL)
        self.renew()
        latest = (self.state.path / FILE).read_bytes()
        self.successResultOf(self.credentials.revoke(second.id))
        self.assertEqual((self.state.path / FILE).read_bytes(), latest)

    def test_revoked_with_a_full_disk(self) -> None:
        """If the file cannot be written after a revocation, the next check retries."""
        self.renew()
        (first,) = self.credentials.list("")
        self.state.path.rename(self.state.path.with_name("moved"))
        with capturedLogs() as events:
            self.successResultOf(self.credentials.revoke(first.id))
        self.assertIn("retrying", str(formatEvent(events[0])))
        self.state.path.with_name("moved").rename(self.state.path)
        before = (self.state.path / FILE).read_bytes()
        self.renew()
        self.assertNotEqual((self.state.path / FILE).read_bytes(), before)

    def test_removed(self) -> None:
        """A file that was removed is written again at the next check."""
        self.renew()
        (self.state.path / FILE).unlink()
        self.clock.advance(CHECK_PERIOD)
        self.renew()
        self.assertEqual(load_kubeconfig(self.state.path / FILE).server, "https://127.0.0.1:8443")
        self.assertEqual(len(self.credentials.list("")), 2)

    def test_clock_set_back(self) -> None:
        """It is renewed if the time was set back."""
        self.renew()
        first = (self.state.path / FILE).read_bytes()
        self.clock.rightNow -= 2 * LIFETIME
        self.renew()
        second = (self.state.path / FILE).read_bytes()
        self.assertNotEqual(second, first)
        self.renew()
        self.assertEqual((self.state.path / FILE).read_bytes(), second)

    def test_full_disk(self) -> None:
        """A failed write is logged and retried; the old file stays."""
        self.renew()
        first = (self.state.path / FILE).read_bytes()
        self.clock.advance(LIFETIME * RENEWAL)
        self.state.path.rename(self.state.path.with_name("moved"))
        with capturedLogs() as events:
            self.renew()
        (line,) = map(str, map(formatEvent, events))
        self.assertIn(f"cannot renew the administrator's kubeconfig in {self.state.path}; retrying: ", line)
        self.state.path.with_name("moved").rename(self.state.path)
        self.assertEqual((self.state.path / FILE).read_bytes(), first)
        self.renew()
        self.assertNotEqual((self.state.path / FILE).read_bytes(), first)
