"""Options of the front door's certificates and of TLS, in a program."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from pathlib import Path

from tests.fakes.certificates import DAY, authority
from tests.integration import harness
from tests.integration.programs import LOOPBACK, PATIENCE, wait_for
from tower.trust.certificate_directory import pair_in

_SUITE = "ECDHE-ECDSA-AES128-GCM-SHA256"


class ServingOptionsTests(harness.TowerTestCase):
    """A proxy with a directory of certificates, two further certificates, and one cipher suite."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with the options."""
        tower = super().new_tower()
        self.authorities = {name: self.issue(name) for name in ("one", "two")}
        tower.proxy = tower.proxy_program(
            "--external-hostname=localhost",
            f"--cert-dir={self.folder / 'serving'}",
            "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            *(f"--tls-sni-cert-key={','.join(map(str, self.files(name)))}" for name in self.authorities),
        )
        return tower

    def files(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate and its key."""
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def issue(self, name: str) -> bytes:
        """Write a certificate of a new CA for ``NAME.example``; return the CA."""
        ca, now = authority(name, now=time.time()), time.time()
        issued = ca.server_certificate([f"{name}.example"], DAY, now)
        certificate, key = self.files(name)
        certificate.write_bytes(issued.certificate_pem)
        key.write_bytes(issued.key_pem)
        return ca.pem

    def cipher(self, ca: bytes, host: str, *suites: str) -> str:
        """Return the cipher suite of a connection of TLS 1.2; empty: the client rejects the certificate.

        :param suites: those of the client; none: OpenSSL's.
        """
        context = ssl.create_default_context(cadata=ca.decode())
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        if suites:
            context.set_ciphers(":".join(suites))
        with socket.create_connection((LOOPBACK, self.tower.secure_port), PATIENCE) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=host) as connection:
                    found = connection.cipher()
            except ssl.SSLCertVerificationError:
                return ""
        return "" if found is None else found[0]

    def check_rejected_certificate(self) -> None:
        """The log has the address of a client whose certificate TLS rejects, and the reason."""
        context = ssl.create_default_context(cadata=self.authorities["one"].decode())
        context.load_cert_chain(*self.files("two"))
        with socket.create_connection((LOOPBACK, self.tower.secure_port), PATIENCE) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="one.example") as connection:
                    self.assertEqual(connection.recv(1), b"")
            except ssl.SSLError as e:
                self.assertIn("alert", str(e))
        expected = (
            f"client certificate from {LOOPBACK} rejected in the TLS handshake: certificate verify failed: "
        )
        wait_for("the rejected certificate", lambda: expected in self.tower.proxy.output())

    def test_options(self) -> None:
        """The made certificate is shown; only the suite is used; a broken pair does not stop another one."""
        made, key = pair_in(self.folder / "serving")
        self.assertEqual((made.stat().st_mode & 0o777, key.stat().st_mode & 0o777), (0o644, 0o600))
        self.assertEqual(self.cipher(made.read_bytes(), "localhost"), _SUITE)
        with self.assertRaises(ssl.SSLError):
            self.cipher(made.read_bytes(), "localhost", "ECDHE-ECDSA-AES256-GCM-SHA384")
        for name, ca in self.authorities.items():
            self.assertEqual(self.cipher(ca, f"{name}.example"), _SUITE)
        self.check_rejected_certificate()
        self.files("one")[0].write_text("broken")
        following = self.issue("two")
        wait_for("the next certificate", lambda: self.cipher(following, "two.example") == _SUITE)
        self.assertEqual(self.cipher(self.authorities["one"], "one.example"), _SUITE)
        self.tower.proxy.signal(signal.SIGHUP)
        wait_for("the error", lambda: "cannot reload the tls-sni-cert-key 1" in self.tower.proxy.output())
        before = made.read_bytes()
        self.tower.proxy.stop()
        self.issue("one")
        self.tower.start()
        self.assertEqual(made.read_bytes(), before)
