"""Tests of `tower.trust.serving_certificate`, with real TLS sessions in memory."""

from __future__ import annotations

import errno
import os
import ssl
import time
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, authority, below, client_context, der, rsa_authority, shake
from tests.fakes.client_certificates import SERVER, Company, sent, subject
from tower.errors import ConfigurationError
from tower.net.tls.peer_chain import peer_chain
from tower.trust.named_certificates import NamedCertificate
from tower.trust.pki import Authority
from tower.trust.serving_certificate import LIFETIME, STATE_FILE, ServingCertificate, serving_names
from tower.trust.statedir import StateDir


class FullDisk(StateDir):
    """A state directory that can run full."""

    full = False

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Write, unless the disk is full."""
        if self.full:
            raise ConfigurationError("cannot write: No space left on device")
        super().write(name, data, mode)


class ServingTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with an empty state directory and two authorities."""
        # TLS clients look at the real clock.
        self.now = self.begin = time.time()
        self.files = StateDir(self.mktemp())
        self.authority = authority("serving", now=self.begin)
        self.users = authority("users", now=self.begin)

    def serving(
        self, names: Sequence[str] = ("localhost", "127.0.0.1"), by: Authority | None = None
    ) -> ServingCertificate:
        """Return a `ServingCertificate` over the test's state directory."""
        return ServingCertificate(self.files, by or self.authority, self.users, names, lambda: self.now)

    def shown(self, serving: ServingCertificate) -> bytes | None:
        """Return the certificate (DER) that a client is shown."""
        context = client_context(self.authority)
        context.verify_flags |= ssl.VerifyFlags(0x200000)  # no look at the clock: the test moves it
        return shake(serving.context, context)[1].getpeercert(binary_form=True)

    def test_accepted(self) -> None:
        """A strict client accepts the certificate for its names and addresses, and for no others."""
        serving = self.serving(serving_names("tower.example.com", "::1"))
        for host in ("tower.example.com", "localhost", "127.0.0.1", "::1"):
            shake(serving.context, client_context(self.authority), host)
        self.assertRaises(
            ssl.SSLCertVerificationError, shake, serving.context, client_context(self.authority), "other"
        )
        self.assertRaises(
            ssl.SSLCertVerificationError, shake, serving.context, client_context(self.users), "localhost"
        )

    def test_names(self) -> None:
        """The names are those of all certificates that clients are shown."""
        serving = self.serving()
        issued = self.users.server_certificate(["a.example"], DAY, self.now)
        named = NamedCertificate(issued.certificate_pem, issued.key_pem, ("*.example",), False)
        serving.show_for_names([named], [])
        self.assertEqual(serving.names, ["localhost", "127.0.0.1", "*.example"])

    def test_clients_choose_the_cipher(self) -> None:
        """The client's preference selects the cipher."""
        short, long = "AES128-GCM-SHA256", "AES256-GCM-SHA384"
        for wanted in ((short, long), (long, short)):
            context = client_context(self.authority)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(":".join(f"ECDHE-ECDSA-{cipher}" for cipher in wanted))
            cipher = shake(self.serving().context, context)[1].cipher()
            self.assertEqual(cipher and cipher[0], f"ECDHE-ECDSA-{wanted[0]}")

    def test_given_authorities(self) -> None:
        """The same with an RSA authority."""
        rsa = rsa_authority()
        context = client_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # it has no key identifiers, as old ones
        context.load_verify_locations(cadata=rsa.pem.decode())
        shake(self.serving(by=rsa).context, context)

    def test_way_up_is_sent(self) -> None:
        """A client that knows the root alone is shown the authority between."""
        root = rsa_authority()
        context = client_context(root)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        shake(self.serving(by=below(root)).context, context)

    def test_only_http_1_1(self) -> None:
        """ALPN chooses http/1.1 and no protocol of those we do not speak."""
        context = client_context(self.authority)
        context.set_alpn_protocols(["h2", "http/1.1"])
        self.assertEqual(shake(self.serving().context, context)[0].selected_alpn_protocol(), "http/1.1")
        context.set_alpn_protocols(["h2"])
        self.assertIsNone(shake(self.serving().context, context)[0].selected_alpn_protocol())

    def test_no_old_tls(self) -> None:
        """TLS 1.2 works, 1.1 does not."""
        context = client_context(self.authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        shake(self.serving().context, context)
        self.assertEqual(self.serving().context.minimum_version, ssl.TLSVersion.TLSv1_2)

    def test_user_certificate(self) -> None:
        """A user's certificate reaches us; a client without one comes in too; a foreign one does not."""
        serving = self.serving()
        jane = self.users.client_certificate("jane", [], "alpha", "u", 3600, self.now)
        near, _ = shake(serving.context, client_context(self.authority, shows=jane))
        self.assertEqual(near.getpeercert(binary_form=True), der(jane))
        near, _ = shake(serving.context, client_context(self.authority))
        self.assertIsNone(near.getpeercert(binary_form=True))
        for stranger in (authority("users", now=self.begin), self.authority):
            foreign = stranger.client_certificate("jane", [], "alpha", "u", 3600, self.now)
            context = client_context(self.authority, shows=foreign)
            self.assertRaises(ssl.SSLError, shake, serving.context, context)

    def test_server_certificate_is_no_users(self) -> None:
        """A certificate for a server, even by the users' authority, is not accepted from a client."""
        wrong = self.users.server_certificate(["jane"], DAY, self.now)
        context = client_context(self.authority, shows=wrong)
        self.assertRaises(ssl.SSLError, shake, self.serving().context, context)

    def test_expired_certificate_gets_in(self) -> None:
        """An expired user certificate passes TLS, so that the request is answered with a reason."""
        old = self.users.client_certificate("jane", [], "alpha", "u", 60, self.now - 3600)
        near, _ = shake(self.serving().context, client_context(self.authority, shows=old))
        self.assertEqual(near.getpeercert(binary_form=True), der(old))

    def test_resumed_sessions_know_the_user(self) -> None:
        """Resumed sessions carry the client's certificate, with both versions, repeatedly."""
        jane = self.users.client_certificate("jane", [], "alpha", "u", 3600, self.now)
        serving = self.serving()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(self.authority, shows=jane)
            context.maximum_version = version
            session = None
            for turn in range(4):
                near, far = shake(serving.context, context, session=session)
                session = far.session
                self.assertEqual(near.session_reused, turn > 0)
                self.assertEqual(near.getpeercert(binary_form=True), der(jane))

    def test_clients_of_other_authorities(self) -> None:
        """Certificates of given CAs, and of CAs below them, are accepted, also after they expired."""
        company, below = Company.root(now=self.begin), Company.root(now=self.begin).below(now=self.begin)
        serving = self.serving()
        serving.trust_clients(company.pem + below.pem)
        for signer in (company, company.below(now=self.begin), below):
            jane = signer.issue(subject("jane"), self.begin - DAY, self.begin - 1)
            near, _ = shake(serving.context, client_context(self.authority, shows=jane))
            self.assertEqual(peer_chain(near), sent(jane))
        own = self.users.client_certificate("jane", [], "alpha", "u", 3600, self.now)
        near, _ = shake(serving.context, client_context(self.authority, shows=own))
        self.assertEqual(near.getpeercert(binary_form=True), der(own))
        for refused in (
            Company.root(now=self.begin).issue(subject("jane")),
            company.issue(subject("jane"), usages=(SERVER,)),
        ):
            with self.assertRaises(ssl.SSLError):
                shake(serving.context, client_context(self.authority, shows=refused))

    def test_removed_authority(self) -> None:
        """A session with a certificate of a CA that was removed cannot be resumed, and no new one begins."""
        company, other = Company.root(now=self.begin), Company.root("other", now=self.begin)
        serving = self.serving()
        serving.trust_clients(company.pem + other.pem)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(self.authority, shows=company.issue(subject("jane")))
            context.maximum_version = version
            session = shake(serving.context, context)[1].session
            near, far = shake(serving.context, context, session=session)
            self.assertTrue(near.session_reused)
            self.assertEqual(peer_chain(near)[1:], ())
            generation = serving.generation
            serving.trust_clients(other.pem)
            self.assertNotEqual(serving.generation, generation)
            with self.assertRaises(ssl.SSLError):
                shake(serving.context, context, session=far.session)
            serving.trust_clients(company.pem + other.pem)
            self.assertFalse(shake(serving.context, context, session=far.session)[0].session_reused)

    def test_renewed_with_other_authorities(self) -> None:
        """The serving certificate is still renewed."""
        company = Company.root(now=self.begin)
        serving = self.serving()
        first = self.shown(serving)
        serving.trust_clients(company.pem)
        self.assertEqual(self.shown(serving), first)
        self.now += LIFETIME * 0.9
        serving.renew()
        self.assertNotIn(self.shown(serving), (first, None))

    def test_other_authorities_without_the_file(self) -> None:
        """A lost or damaged file of the certificate does not matter to a change of the clients' CAs."""
        serving = self.serving()
        first = self.shown(serving)
        (self.files.path / STATE_FILE).unlink()
        serving.trust_clients(Company.root(now=self.begin).pem)
        self.assertEqual(self.shown(serving), first)
        (self.files.path / STATE_FILE).write_bytes(b"")
        serving.trust_clients(b"")
        self.assertEqual(self.shown(serving), first)

    def test_failed_change(self) -> None:
        """Without descriptors, a change of CAs or of named certificates is an error that changes nothing."""
        company, other = Company.root(now=self.begin), Company.root("other", now=self.begin)
        serving = self.serving()
        serving.trust_clients(company.pem)
        first, contexts = self.shown(serving), (serving.context, serving.open_context)
        issued = self.users.server_certificate(["a.example"], DAY, self.now)
        named = NamedCertificate(issued.certificate_pem, issued.key_pem, ("a.example",), True)
        patch = self.patch(os, "memfd_create", self.no_descriptor)
        for change in (
            lambda: serving.trust_clients(other.pem),
            lambda: serving.show_for_names([named], []),
            lambda: serving.sign_with(self.users),
        ):
            error = self.assertRaises(ConfigurationError, change)
            self.assertIn("Too many open files", str(error))
        patch.restore()
        self.assertEqual((serving.context, serving.open_context), contexts)
        self.assertEqual(self.shown(serving), first)
        serving.show_for_names([], [])
        jane = company.issue(subject("jane"))
        near, _ = shake(serving.context, client_context(self.authority, shows=jane))
        self.assertEqual(peer_chain(near), sent(jane))

    def no_descriptor(self, *_: object) -> int:
        """Fail as `os.memfd_create` does."""
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def test_reload_of_a_damaged_file(self) -> None:
        """A reload of a certificate with another's key, on a full disk, leaves the last one in use."""
        self.files = FullDisk(self.files.path)
        serving = self.serving()
        first = self.shown(serving)
        names = "localhost", "127.0.0.1"
        other, issued = (self.authority.server_certificate(names, DAY, self.now) for _ in range(2))
        self.files.write(STATE_FILE, other.key_pem + issued.certificate_pem + self.authority.pem)
        self.files.full = True
        self.assertRaises(ConfigurationError, serving.reload)
        self.assertEqual(self.shown(serving), first)

    def test_kept(self) -> None:
        """A restart goes on with the same certificate."""
        self.assertEqual(self.shown(self.serving()), self.shown(self.serving()))

    def test_kept_only_if_it_fits(self) -> None:
        """Other names, another authority, a damaged or a foreign file: a new certificate."""
        first = self.shown(self.serving())
        second = self.shown(self.serving(["localhost", "tower.example.com"]))
        self.assertNotEqual(first, second)
        path = self.files.path / STATE_FILE
        whole = path.read_bytes()
        key, rest = whole[: whole.index(b"-----BEGIN CERT")], whole[whole.index(b"-----BEGIN CERT") :]
        other_key = self.authority.server_certificate(["x"], DAY, self.now).key_pem
        for damaged in (b"", whole[:500], key, rest, other_key + rest, b"\0" * 100, self.users.pem):
            path.write_bytes(damaged)
            third = self.shown(self.serving(["localhost", "tower.example.com"]))
            self.assertNotEqual(second, third)
        self.authority = authority("serving", now=self.begin)
        self.assertIsNotNone(self.shown(self.serving()))

    def test_renewed(self) -> None:
        """It is renewed when a third of its life is left, in the context that listeners have."""
        serving = self.serving()
        first = self.shown(serving)
        self.now = self.begin + LIFETIME * 0.65
        serving.renew()
        self.assertEqual(self.shown(serving), first)
        self.now = self.begin + LIFETIME * 0.67
        serving.renew()
        self.assertGreater(serving.not_after, self.now + LIFETIME - 60)
        self.assertNotEqual(self.shown(serving), first)

    def test_due_at_start(self) -> None:
        """One that is due, or from a future that the clock was in, is not used at a start."""
        self.serving()
        for offset in (LIFETIME * 0.7, -10 * DAY):
            self.now = self.begin + offset
            self.assertEqual(self.serving().not_after, int(self.now + LIFETIME))

    def test_near_the_authoritys_end(self) -> None:
        """A certificate that ends with its authority is not renewed over and over."""
        self.authority = authority("serving", lifetime=9 * DAY, now=self.begin)
        serving = self.serving()
        first = self.shown(serving)
        self.now = self.begin + 8 * DAY
        serving.renew()
        self.assertEqual(self.shown(serving), first)

    def test_failed_renewal(self) -> None:
        """A renewal that fails is logged, raises nothing, and the old certificate stays."""
        self.files = FullDisk(self.files.path)
        serving = self.serving()
        until = serving.not_after
        self.files.full = True
        self.now = self.begin + LIFETIME * 0.7
        serving.renew()
        self.assertEqual(serving.not_after, until)
        self.assertEqual(len(self.flushLoggedErrors(ConfigurationError)), 1)


class NamesTests(SynchronousTestCase):
    def test_own_names(self) -> None:
        """The machine's own names are always there; wildcards and absent names are not."""
        self.assertEqual(
            serving_names("t.example", "0.0.0.0", None, "", "[::]", "t.example", "localhost"),
            ["t.example", "localhost", "127.0.0.1", "::1"],
        )
