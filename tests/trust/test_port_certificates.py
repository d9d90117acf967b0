"""Tests of `tower.trust.port_certificates`, with real TLS sessions in memory."""

from __future__ import annotations

import ssl
import time

from cryptography import x509
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, authority, client_context, shake
from tests.fakes.client_certificates import Company, subject
from tower.trust.port_certificates import PortCertificates
from tower.trust.serving_certificate import LIFETIME, ServingCertificate
from tower.trust.statedir import StateDir

NO_CLOCK = ssl.VerifyFlags(0x200000)


class PortCertificatesTests(SynchronousTestCase):
    """The ports of alpha and beta."""

    def setUp(self) -> None:
        """Begin without further names."""
        self.now = time.time()
        self.state = StateDir(self.mktemp())
        self.authority, self.users = authority("serving", now=self.now), authority("users", now=self.now)
        self.serving = ServingCertificate(
            self.state, self.authority, self.users, ["tower.example"], lambda: self.now
        )
        self.ports = PortCertificates(self.serving)

    def shown(self, context: ssl.SSLContext) -> x509.Certificate:
        """Return the certificate that a client sees; the test moves the clock."""
        client = client_context(self.authority)
        client.verify_flags |= NO_CLOCK
        der = shake(context, client, "tower.example")[1].getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)

    def is_accepted(self, cluster: str, host: str) -> bool:
        """Return whether a strict client accepts the port of a cluster under the name *host*."""
        try:
            shake(self.ports.context(cluster), client_context(self.authority), host)
        except ssl.SSLCertVerificationError:
            return False
        return True

    def test_without_names(self) -> None:
        """A port without further names has the front door's context."""
        self.assertIs(self.ports.context("alpha"), self.serving.context)
        self.assertIs(self.ports.open_context("alpha"), self.serving.open_context)

    def test_names(self) -> None:
        """Further names are accepted with the next connection, on that port only, with the usual ones."""
        self.ports.set_names("alpha", ["a.elb.example", "192.0.2.7", "fd00::1"])
        for host in ("tower.example", "a.elb.example", "192.0.2.7", "fd00::1"):
            self.assertTrue(self.is_accepted("alpha", host), host)
        self.assertFalse(self.is_accepted("beta", "a.elb.example"))
        self.ports.set_names("alpha", ["192.0.2.7"])
        self.assertFalse(self.is_accepted("alpha", "a.elb.example"))
        self.ports.set_names("alpha", [])
        self.assertFalse(self.is_accepted("alpha", "192.0.2.7"))
        self.ports.set_names("alpha", [])

    def test_address_as_host_name(self) -> None:
        """An IPv4 address is an address and a host name, as in KubeSphere Tower's certificates."""
        self.ports.set_names("alpha", ["192.0.2.7", "fd00::1"])
        found = self.shown(self.ports.context("alpha")).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        self.assertIn("192.0.2.7", found.value.get_values_for_type(x509.DNSName))
        self.assertEqual(len(found.value.get_values_for_type(x509.IPAddress)), 2)

    def test_issued_once(self) -> None:
        """One certificate serves all connections; equal names keep it, and no file stays."""
        self.ports.set_names("alpha", ["a.example"])
        context = self.ports.context("alpha")
        self.ports.set_names("alpha", ["a.example"])
        self.assertIs(self.ports.context("alpha"), context)
        self.assertEqual([path.name for path in self.state.path.iterdir()], ["serving.pem"])

    def test_renewed(self) -> None:
        """A certificate is replaced by a new one in the last third of its life."""
        self.ports.set_names("alpha", ["a.example"])
        first = self.shown(self.ports.context("alpha"))
        self.now += LIFETIME / 2
        self.assertEqual(self.shown(self.ports.context("alpha")), first)
        self.now += LIFETIME / 4
        later = self.shown(self.ports.context("alpha"))
        self.assertGreater(later.not_valid_after_utc, first.not_valid_after_utc)

    def test_rotated(self) -> None:
        """The certificate follows a new CA, and accepts users of a new users' CA."""
        self.ports.set_names("alpha", ["a.example"])
        self.ports.context("alpha")
        self.authority = authority("next", now=self.now)
        self.serving.sign_with(self.authority)
        self.assertTrue(self.is_accepted("alpha", "a.example"))
        context = self.ports.context("alpha")
        self.serving.trust_users(authority("users", now=self.now))
        self.assertIsNot(self.ports.context("alpha"), context)

    def test_client_certificates(self) -> None:
        """The port requests a client certificate; an open one does not."""
        self.ports.set_names("alpha", ["a.example"])
        issued = self.users.client_certificate("jane", [], "alpha", "uid", DAY, self.now)
        for context, is_shown in (
            (self.ports.context("alpha"), True),
            (self.ports.open_context("alpha"), False),
        ):
            near, _ = shake(context, client_context(self.authority, shows=issued), "a.example")
            self.assertEqual(near.getpeercert(binary_form=True) is not None, is_shown)

    def test_other_authorities(self) -> None:
        """The CAs of other client certificates are those of the front door, also after a change."""
        company = Company.root(now=self.now)
        jane = client_context(self.authority, shows=company.issue(subject("jane")))
        self.ports.set_names("alpha", ["a.example"])
        before = self.ports.context("alpha")
        for pem, is_accepted in ((b"", False), (company.pem, True), (b"", False)):
            self.serving.trust_clients(pem)
            try:
                shake(self.ports.context("alpha"), jane, "a.example")
            except ssl.SSLError:
                self.assertFalse(is_accepted)
            else:
                self.assertTrue(is_accepted)
        self.assertIsNot(self.ports.context("alpha"), before)

    def test_names_that_do_not_fit(self) -> None:
        """A name that no certificate can have is logged, and the others are used."""
        with capturedLogs() as logs:
            self.ports.set_names("alpha", ["not a name", "a.example"])
        self.assertIn("port of cluster alpha: 'not a name' is neither", eventAsText(logs[0]))
        self.assertTrue(self.is_accepted("alpha", "a.example"))

    def test_no_descriptor(self) -> None:
        """If no certificate can be issued, the port has the front door's, and the failure is logged."""
        self.ports.set_names("alpha", ["a.example"])

        def fail(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        self.patch(self.serving, "context_for", fail)
        self.assertIs(self.ports.context("alpha"), self.serving.context)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
