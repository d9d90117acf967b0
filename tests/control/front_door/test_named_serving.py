"""Tests of `tower.control.front_door.named_serving`, with TLS in memory."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, authority, client_context, shake
from tests.fakes.client_certificates import Company, subject
from tests.fakes.log_lines import logged_lines
from tower.control.front_door.named_serving import NamedServing
from tower.control.front_door.public_certificate import PublicCertificate
from tower.errors import ConfigurationError
from tower.reactor.signals import Reloads
from tower.trust.named_certificates import NamedCertificate, PairFiles, read_pair
from tower.trust.pki import Authority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir


class NamedServingTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with a certificate of a public CA, for login.example and others."""
        self.now = time.time()
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.own, self.public = authority("own", now=self.now), authority("public", now=self.now)
        self.users = authority("users", now=self.now)
        self.serving = ServingCertificate(
            StateDir(self.mktemp()), self.own, self.users, ["tower.example", "localhost"], lambda: self.now
        )
        self.issue("login", "login.example", "DNS:*.apps.example", "tower.example")

    def issue(self, file: str, *names: str) -> None:
        """Write a certificate and its key."""
        issued = self.public.server_certificate(names, DAY, self.now)
        (self.folder / f"{file}.crt").write_bytes(issued.certificate_pem + self.public.pem)
        (self.folder / f"{file}.key").write_bytes(issued.key_pem)

    def named(self, *options: str) -> NamedServing:
        """Return the certificates of options; ``@`` is the folder."""
        self.reloads = Reloads()
        pairs = [read_pair(each.replace("@", str(self.folder))) for each in options]
        return NamedServing.of(pairs, self.serving, ["tower.example", "localhost"], self.reloads)

    def issuer(self, host: str, context: ssl.SSLContext | None = None) -> Authority | None:
        """Return the CA of the certificate that a client of *host* accepts."""
        for each in (self.own, self.public):
            try:
                shake(context or self.serving.context, client_context(each), host)
            except ssl.SSLCertVerificationError:
                continue
            return each
        return None

    def test_names(self) -> None:
        """Clients get the certificate for the requested name; Tower's own names keep Tower's."""
        self.named("@/login.crt,@/login.key")
        for host in ("login.example", "LOGIN.example", "a.apps.example"):
            self.assertIs(self.issuer(host), self.public, host)
        for host in ("tower.example", "localhost"):
            self.assertIs(self.issuer(host), self.own, host)
        self.assertIs(self.issuer("login.example", self.serving.open_context), self.public)
        port, _ = self.serving.context_for(["alpha.example"], is_open=False)
        self.assertIs(self.issuer("alpha.example", port), self.own)
        self.assertIs(self.issuer("login.example", port), self.public)

    def test_users(self) -> None:
        """Client certificates are verified the same for all names, also after other CAs are accepted."""
        self.named("@/login.crt,@/login.key")
        company = Company.root(now=self.now)
        self.serving.trust_clients(company.pem)
        jane = company.issue(subject("jane"), self.now - DAY, self.now + DAY)
        near, _ = shake(self.serving.context, client_context(self.public, shows=jane), "login.example")
        self.assertIsNotNone(near.getpeercert(binary_form=True))
        stranger = Company.root("x", now=self.now).issue(subject("jane"), self.now - DAY, self.now + DAY)
        with self.assertRaises(ssl.SSLError):
            shake(self.serving.context, client_context(self.public, shows=stranger), "login.example")
        near, _ = shake(self.serving.open_context, client_context(self.public, shows=jane), "login.example")
        self.assertIsNone(near.getpeercert(binary_form=True))

    def test_rotation(self) -> None:
        """The next CA of Tower's users is accepted for all names."""
        self.named("@/login.crt,@/login.key")
        following = authority("next", now=self.now)
        self.serving.trust_users(following)
        jane = following.client_certificate("jane", [], "alpha", "u", DAY, self.now)
        for host, trusted in (("login.example", self.public), ("tower.example", self.own)):
            near, _ = shake(self.serving.context, client_context(trusted, shows=jane), host)
            self.assertIsNotNone(near.getpeercert(binary_form=True))

    def test_changed(self) -> None:
        """A renewed pair is used once both files fit; until then, the last one is."""
        named = self.named("@/login.crt,@/login.key:login.example")
        lines = logged_lines(self)
        key = (self.folder / "login.key").read_bytes()
        self.public = authority("other", now=self.now)
        self.issue("login", "login.example")
        new_key = (self.folder / "login.key").read_bytes()
        (self.folder / "login.key").write_bytes(key)
        named.check_files()
        self.assertIsNone(self.issuer("login.example"))
        self.assertIn("private key does not match", lines[0])
        (self.folder / "login.key").write_bytes(new_key)
        named.check_files()
        self.assertIs(self.issuer("login.example"), self.public)

    def test_expired(self) -> None:
        """A certificate that has expired is used with a warning, at the start and when its file changes."""
        self.issue("other", "other.example")
        lines = logged_lines(self)
        options = "@/other.crt,@/other.key", "@/login.crt,@/login.key"
        self.named(*options)
        self.assertEqual(lines, [])
        self.now -= 3 * DAY
        self.issue("login", "login.example")
        self.now += 3 * DAY
        named = self.named(*options)
        (line,) = lines
        where = f"--tls-sni-cert-key {self.folder}/login.crt,{self.folder}/login.key"
        self.assertTrue(line.startswith(f"{where}: its certificate was valid until "), line)
        self.assertTrue(line.endswith("; until then, clients reject it"), line)
        self.assertIn(": renew the certificate, or ", line)
        self.issue("login", "login.example")
        named.check_files()
        self.assertEqual(lines[1:], [f"{where}: using its new content"])
        self.now -= 3 * DAY
        self.issue("login", "login.example")
        self.now += 3 * DAY
        named.check_files()
        self.assertEqual(lines[2:], [line, f"{where}: using its new content"])

    def test_separate(self) -> None:
        """A pair that cannot be used does not stop the renewal of another one, and stays a problem."""
        self.issue("other", "other.example")
        named = self.named("@/other.crt,@/other.key", "@/login.crt,@/login.key")
        lines = logged_lines(self)
        (self.folder / "other.crt").write_text("broken")
        self.public = authority("next", now=self.now)
        self.issue("login", "login.example")
        for _ in range(2):
            named.check_files()
        self.assertIs(self.issuer("login.example"), self.public)
        self.assertIsNone(self.issuer("other.example"))
        self.assertEqual(sum("other.crt" in line for line in lines), 1)
        lines.clear()
        self.reloads.run()
        self.assertIn("cannot reload the tls-sni-cert-key 1", lines[0])
        self.assertIn("tls-sni-cert-key 2 (unchanged)", lines[1])
        self.issue("other", "other.example")
        named.check_files()
        self.assertIs(self.issuer("other.example"), self.public)

    def test_together(self) -> None:
        """The renewal of both files at once, as of a Secret, logs no error."""
        named = self.named("@/login.crt,@/login.key:login.example")
        lines = logged_lines(self)
        self.public = authority("other", now=self.now)
        self.issue("login", "login.example")
        named.check_files()
        (line,) = lines
        self.assertIn(f"{self.folder}/login.crt,{self.folder}/login.key: using its new content", line)

    def test_failed_use(self) -> None:
        """A renewed pair that could not be loaded is loaded at the next check."""
        named = self.named("@/login.crt,@/login.key:login.example")
        self.public = authority("other", now=self.now)
        self.issue("login", "login.example")
        real, failing = self.serving.show_for_names, [ConfigurationError("no memory")]

        def show(certificates: Sequence[NamedCertificate], reserved: Sequence[str]) -> None:
            if failing:
                raise failing.pop()
            real(certificates, reserved)

        self.patch(self.serving, "show_for_names", show)
        named.check_files()
        self.assertIsNone(self.issuer("login.example"))
        named.check_files()
        self.assertIs(self.issuer("login.example"), self.public)

    def test_expiries(self) -> None:
        """Metrics have the expiry of each pair in use."""
        found = self.named("@/login.crt,@/login.key").expiries
        self.assertEqual(list(found), ["tls-sni-cert-key 1"])
        self.assertEqual(found["tls-sni-cert-key 1"], int(self.now + DAY))

    def test_hangup(self) -> None:
        """SIGHUP reads the files at once."""
        self.named("@/login.crt,@/login.key:login.example")
        self.public = authority("other", now=self.now)
        self.issue("login", "login.example")
        self.reloads.run()
        self.assertIs(self.issuer("login.example"), self.public)

    def test_problems(self) -> None:
        """Names of Tower itself, and files that do not fit together, are errors with the cure."""
        self.issue("other", "other.example")
        (self.folder / "bad.crt").write_text("hi")
        for option, text in (
            (
                "@/login.crt,@/login.key:tower.example",
                "require a certificate whose CA they know: use another name",
            ),
            ("@/login.crt,@/login.key:*.example", "the name *.example is that of --publish-service-address"),
            ("@/login.crt,@/other.key", "key: tls: private key does not match public key: give"),
            (
                "@/bad.crt,@/login.key",
                "cert and key: tls: failed to find any PEM data in certificate input: give",
            ),
            ("@/none.crt,@/login.key", ": no such file or directory"),
        ):
            with self.assertRaises(ConfigurationError) as caught:
                self.named(option)
            self.assertIn(text, str(caught.exception))
            self.assertIn("--tls-sni-cert-key", str(caught.exception))
        self.assertIs(self.issuer("tower.example"), self.own)


class PublicCertificateTests(SynchronousTestCase):
    """The certificate of --tls-cert-file, for the name www.apps.example; agents use tower.apps.example."""

    def setUp(self) -> None:
        """Make Tower's certificate, and another CA."""
        self.now = time.time()
        self.own, self.company = (authority(name, now=self.now) for name in ("own", "company"))
        self.serving = ServingCertificate(
            StateDir(self.mktemp()),
            self.own,
            authority("users", now=self.now),
            ["tower.apps.example", "www.apps.example", "localhost"],
            lambda: self.now,
        )
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.pair = PairFiles(self.folder / "tls.crt", self.folder / "tls.key", ("www.apps.example",))

    def issue(self, *names: str, end: bytes | None = None, by: Authority | None = None) -> None:
        """Write the files."""
        by = by or self.company
        issued = by.server_certificate(names, DAY, self.now)
        self.pair.certificate.write_bytes(issued.certificate_pem + (by.pem if end is None else end))
        self.pair.key.write_bytes(issued.key_pem)

    def named(self) -> NamedServing:
        """Return the certificates."""
        self.reloads = Reloads()
        reserved = ["tower.apps.example", "localhost"]
        return NamedServing.of([], self.serving, reserved, self.reloads, PublicCertificate.of(self.pair))

    def accepts(self, host: str, by: Authority) -> bool:
        """Return whether a client of *host* with this CA connects."""
        try:
            shake(self.serving.context, client_context(by), host)
        except ssl.SSLCertVerificationError:
            return False
        return True

    def test_names(self) -> None:
        """Users of the name get the certificate; agents and clients without a name get Tower's."""
        self.issue("DNS:*.apps.example", "other.test")
        self.named()
        for host in ("www.apps.example", "WWW.apps.example", "other.test"):
            self.assertTrue(self.accepts(host, self.company), host)
        for host in ("tower.apps.example", "localhost"):
            self.assertTrue(self.accepts(host, self.own), host)
            self.assertFalse(self.accepts(host, self.company), host)

    def test_authority(self) -> None:
        """Kubeconfigs have Tower's CA and that at the end of the file; none if that is a public one."""
        self.issue("www.apps.example")
        self.assertEqual(self.named().kubeconfig_authority(self.own.pem), self.own.pem + self.company.pem)
        self.issue("www.apps.example", end=b"")
        self.assertEqual(self.named().kubeconfig_authority(self.own.pem), b"")
        none = NamedServing.of([], self.serving, [], Reloads())
        self.assertEqual(none.kubeconfig_authority(b"own"), b"own")

    def test_change(self) -> None:
        """Changed files are used; ones that do not fit are not, and are used once they do."""
        self.issue("www.apps.example")
        named = self.named()
        next_one = authority("next", now=self.now)
        old_key = self.pair.key.read_bytes()
        self.issue("www.apps.example", by=next_one)
        new_key = self.pair.key.read_bytes()
        self.pair.key.write_bytes(old_key)
        lines = logged_lines(self)
        named.check_files()
        self.assertIn("private key does not match", "".join(lines))
        self.assertTrue(self.accepts("www.apps.example", self.company))
        self.pair.key.write_bytes(new_key)
        named.check_files()
        self.assertTrue(self.accepts("www.apps.example", next_one))
        self.assertEqual(named.kubeconfig_authority(b""), next_one.pem)
        self.issue("other.example", by=next_one)
        named.check_files()
        self.assertIn(
            "is for tower, other.example, not for --external-hostname www.apps.example", "".join(lines)
        )
        self.assertTrue(self.accepts("www.apps.example", next_one))
        self.assertEqual(list(self.reloads._entries), ["tls-cert-file"])

    def test_wrong_files(self) -> None:
        """Files that cannot be used are errors at the start."""
        self.issue("DNS:*.other.example")
        with self.assertRaises(ConfigurationError) as caught:
            self.named()
        self.assertIn(
            "is for tower, *.other.example, not for --external-hostname www.apps.example",
            str(caught.exception),
        )
        self.pair.certificate.write_text("no certificate")
        with self.assertRaises(ConfigurationError) as caught:
            self.named()
        self.assertIn("tls: failed to find any PEM data in certificate input", str(caught.exception))
