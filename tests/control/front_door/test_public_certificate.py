"""Tests of `tower.control.front_door.public_certificate`, with TLS in memory."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, authority, client_context, shake
from tests.fakes.log_lines import logged_lines
from tower.control.front_door.named_serving import NamedServing
from tower.control.front_door.public_certificate import PublicCertificate, public_pair
from tower.errors import ConfigurationError
from tower.reactor.signals import Reloads
from tower.trust.named_certificates import PairFiles
from tower.trust.pki import Authority
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir

HOST = "tower.example"


class CertificateForAgentsTests(SynchronousTestCase):
    """A certificate of another CA at the name that users and agents connect to."""

    def setUp(self) -> None:
        """Write the files."""
        self.now = time.time()
        self.own, self.company = (authority(name, now=self.now) for name in ("own", "company"))
        self.front = RotatingAuthority(self.own)
        self.serving = ServingCertificate(
            StateDir(self.mktemp()), self.own, authority("users", now=self.now), [HOST], lambda: self.now
        )
        folder = Path(self.mktemp())
        folder.mkdir()
        self.pair = PairFiles(folder / "tls.crt", folder / "tls.key", (HOST,))
        self.issue(self.company)

    def issue(self, by: Authority, *names: str, end: bytes | None = None) -> None:
        """Write a certificate."""
        issued = by.server_certificate(names or (HOST,), DAY, self.now)
        self.pair.certificate.write_bytes(issued.certificate_pem + (by.pem if end is None else end))
        self.pair.key.write_bytes(issued.key_pem)

    def named(self, accepted: str = "") -> NamedServing:
        """Return the certificates."""
        public = PublicCertificate.of(self.pair, self.front, accepted)
        return NamedServing.of([], self.serving, [HOST, "localhost"], Reloads(), public)

    def is_shown(self, by: Authority) -> bool:
        """Return whether a client of the name with this CA connects."""
        try:
            shake(self.serving.context, client_context(by), HOST)
        except ssl.SSLCertVerificationError:
            return False
        return True

    def test_switch(self) -> None:
        """Both CAs are trusted at once; the certificate is shown when its CA is accepted."""
        named = self.named()
        self.assertEqual(self.front.hashes, (self.own.hash, self.company.hash))
        self.assertEqual(named.kubeconfig_authority(self.front.pem), self.own.pem + self.company.pem)
        self.assertEqual((named.accepted, named.pending), ("", self.company.hash))
        self.assertTrue(self.is_shown(self.own) and not self.is_shown(self.company))
        named.accept(self.company.hash)
        self.assertEqual((named.accepted, named.pending), (self.company.hash, ""))
        self.assertTrue(self.is_shown(self.company) and not self.is_shown(self.own))
        self.assertEqual(named.expiries["tls-cert-file"], int(self.now + DAY))

    def test_expired(self) -> None:
        """A certificate that has expired, or is not valid yet, is used with a warning that names the file."""
        lines = logged_lines(self)
        self.named(self.company.hash)
        self.assertEqual(lines, [])
        where = f"--tls-cert-file {self.pair.certificate}: its certificate "
        for days, text in ((2, "was valid until "), (-2, "is valid from ")):
            self.now += days * DAY
            self.named(self.company.hash)
            self.now -= days * DAY
            self.assertTrue(lines[-1].startswith(where + text), lines[-1])

    def test_renewal(self) -> None:
        """A renewed certificate is shown at once; with another CA, Tower's own is shown meanwhile."""
        named = self.named(self.company.hash)
        self.issue(self.company)
        named.check_files()
        self.assertTrue(self.is_shown(self.company))
        other = authority("other", now=self.now)
        self.issue(other)
        named.check_files()
        self.assertEqual(named.pending, other.hash)
        self.assertEqual(self.front.hashes, (self.own.hash, other.hash))
        self.assertTrue(self.is_shown(self.own))
        self.assertFalse(self.is_shown(self.company) or self.is_shown(other))

    def test_broken_meanwhile(self) -> None:
        """While the files do not fit, the last certificate is shown once its CA is accepted."""
        named = self.named()
        self.pair.key.write_text("rubbish")
        named.check_files()
        self.assertEqual(named.pending, self.company.hash)
        named.accept(self.company.hash)
        self.assertTrue(self.is_shown(self.company))

    def test_failed_switch(self) -> None:
        """A CA whose certificate cannot be loaded is not accepted."""
        named = self.named()

        def fail(*_: object) -> None:
            raise ConfigurationError("no memory")

        self.patch(self.serving, "show_for_names", fail)
        self.assertRaises(ConfigurationError, named.accept, self.company.hash)
        self.assertEqual(named.accepted, "")

    def test_problems(self) -> None:
        """Agents require the root CA in the file, and the name."""
        other = authority("other", now=self.now)
        for names, end, text in (
            ((), b"", "has no root CA at its end"),
            ((), other.pem, "has not issued the certificate before it"),
            (("www.example",), None, "not for --publish-service-address tower.example"),
        ):
            self.issue(self.company, *names, end=end)
            with self.assertRaises(ConfigurationError) as caught:
                self.named()
            self.assertIn(text, str(caught.exception))
            with self.assertRaises(ConfigurationError):
                public_pair(self.pair, for_agents=True)
        self.issue(self.company, end=b"")
        public_pair(self.pair, for_agents=False)
