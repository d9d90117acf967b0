"""Tests of `tower.web.access.authentication.x509`."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define
from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW
from tests.fakes.client_certificates import SERVER, Company, sent, subject
from tower.errors import Unauthorized
from tower.trust.client_authorities import ClientAuthorities
from tower.trust.pki import Issued
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.x509 import (
    CERTIFICATE_LIMIT,
    CREDENTIAL_ID,
    UID,
    CertificateAuthenticator,
)


@define
class File:
    """The file of the CAs."""

    value: ClientAuthorities


def presented(issued: Issued) -> Presented:
    """Return what a client with a certificate presents."""
    chain = sent(issued)
    return Presented(chain[0], None, None, lambda: chain)


class CertificateAuthenticatorTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with one CA."""
        self.now = NOW
        self.company = Company.root()
        self.file = File(self.bundle(self.company))
        self.method = CertificateAuthenticator(self.file, lambda: self.now)

    def bundle(self, *companies: Company) -> ClientAuthorities:
        """Return the CAs of a file."""
        pem = b"".join(each.pem for each in companies)
        return ClientAuthorities.of_pem(pem, lambda _: False)

    def user(self, name: x509.Name, by: Company | None = None) -> Identity:
        """Return the user of a new certificate."""
        identity = self.method.authenticate(presented((by or self.company).issue(name)))
        assert identity is not None
        return identity

    def refusal(self, issued: Issued) -> Unauthorized:
        """Return the rejection of a certificate."""
        with self.assertRaises(Unauthorized) as caught:
            self.method.authenticate(presented(issued))
        error: Unauthorized = caught.exception
        return error

    def test_names(self) -> None:
        """The common name is the user, organizations are the groups, in their order."""
        issued = self.company.issue(subject("jane", ["dev", "qa"], (UID, "u-1")))
        identity = self.method.authenticate(presented(issued))
        assert identity is not None
        self.assertEqual((identity.user, identity.groups, identity.uid), ("jane", ("dev", "qa"), "u-1"))
        self.assertEqual(identity.extra, ((CREDENTIAL_ID, (f"X509SHA256={issued.digest}",)),))
        self.assertEqual((identity.method, identity.expires), ("x509", NOW + DAY))
        self.assertIsNone(identity.credential)
        self.assertIn(issued.digest, identity.session)

    def test_many_groups(self) -> None:
        """Groups of a directory are many; the header fields of a request have a limit."""
        groups = [f"group-{number}" for number in range(256)]
        self.assertEqual(self.user(subject("jane", groups)).groups, tuple(groups))
        refusal = self.refusal(self.company.issue(subject("jane", [*groups, "one-more"])))
        self.assertEqual(
            str(refusal),
            "the client certificate has 257 groups: the limit is 256: request another certificate",
        )

    def test_unicode(self) -> None:
        """Names may have letters of all scripts, but no characters that cannot be printed."""
        self.assertEqual(self.user(subject("Jürgen", ["開発"])).groups, ("開発",))
        for name in ("a\r\nImpersonate-Group: x", "a\0b", "\u202ejane", " jane", "jane ", "x" * 254):
            for made in (subject(name), subject("jane", [name])):
                self.assertIn("printable characters", str(self.refusal(self.company.issue(made))))

    def test_last_common_name(self) -> None:
        """The last of several common names counts, as in Go."""
        name = subject("first", ["dev"], (NameOID.COMMON_NAME, "second"))
        self.assertEqual(self.user(name).user, "second")

    def test_without_a_name(self) -> None:
        """A certificate without a common name, or an empty one, is rejected."""
        for name in (subject(None, ["dev"]), subject("", ["dev"])):
            refusal = self.refusal(self.company.issue(name))
            self.assertIn("no common name: request another certificate", str(refusal))

    def test_reserved(self) -> None:
        """Names of the cluster itself and of Tower are rejected; the group of all users is dropped."""
        self.assertEqual(self.user(subject("jane", ["system:authenticated", "dev"])).groups, ("dev",))
        for name in (
            subject("system:admin"),
            subject("tower:admin"),
            subject("jane", ["system:masters"]),
            subject("jane", ["dev", "tower:admins"]),
            subject("jane", ["kubeadm:cluster-admins"]),
        ):
            text = str(self.refusal(self.company.issue(name)))
            self.assertRegex(text, "(user|group) '.*': .*(reserved|administrator).*: request another certif")

    def test_uids(self) -> None:
        """A subject has one UID at most, which is not empty."""
        for more in (((UID, "a"), (UID, "b")), ((UID, ""),), ((UID, "a\nb"),)):
            self.assertIn("UID", str(self.refusal(self.company.issue(subject("jane", (), *more)))))

    def test_chain(self) -> None:
        """Certificates of CAs below the one in the file count; those of others are another method's."""
        self.assertEqual(self.user(subject("jane"), self.company.below().below("team")).user, "jane")
        for other in (Company.root(), Company.root("other")):
            self.assertIsNone(self.method.authenticate(presented(other.issue(subject("jane")))))
        self.assertIsNone(self.method.authenticate(Presented(None, b"token")))

    def test_dates(self) -> None:
        """The reasons in the log are those of kube-apiserver."""
        expired = self.refusal(self.company.issue(subject("jane"), NOW - DAY, NOW - 1))
        self.assertEqual(expired.kind, "expired")
        self.assertIn("of jane, or its CA, expired at 2023-11-14T22:13:19Z: request", str(expired))
        self.assertRegex(
            expired.reason,
            "^verifying certificate SN=[0-9]+, SKID=[0-9A-F:]{59}, AKID=[0-9A-F:]{59} failed: x509: "
            "certificate has expired or is not "
            "yet valid: current time 2023-11-14T22:13:20Z is after 2023-11-14T22:13:19Z$",
        )
        early = self.refusal(self.company.issue(subject("jane"), NOW + 1))
        self.assertEqual(early.kind, "not-yet-valid")
        self.assertIn("is before 2023-11-14T22:13:21Z", early.reason)

    def test_expired_authority(self) -> None:
        """The dates of every CA in the chain count."""
        self.file.value = self.bundle(old := Company.root(days=-0.5))
        self.assertEqual(self.refusal(old.issue(subject("jane"))).kind, "expired")

    def test_usage(self) -> None:
        """A server's certificate is rejected with Go's reason."""
        refusal = self.refusal(self.company.issue(subject("jane"), usages=(SERVER,)))
        self.assertEqual(refusal.reason, "x509: certificate specifies an incompatible key usage")

    def test_malformed(self) -> None:
        """Other bytes than a certificate, and very long ones, are rejected."""
        for shown in (b"certificate", b"x" * (CERTIFICATE_LIMIT + 1)):
            with self.assertRaises(Unauthorized):
                self.method.authenticate(Presented(shown, None))

    def test_expires_later(self) -> None:
        """An identity ends with its certificate."""
        identity = self.user(subject("jane"))
        self.method.check(identity)
        self.now = identity.expires + 1
        with self.assertRaises(Unauthorized) as caught:
            self.method.check(identity)
        self.assertEqual(caught.exception.kind, "expired")

    def test_removed_authority(self) -> None:
        """An identity ends when its CA leaves the file, also if one of the same name replaces it."""
        identity = self.user(subject("jane"))
        self.file.value = self.bundle(Company.root("other"), self.company)
        self.method.check(identity)
        replacements: Sequence[Company] = (Company.root("other"), Company.root())
        for each in replacements:
            self.file.value = self.bundle(each)
            with self.assertRaises(Unauthorized) as caught:
                self.method.check(identity)
            self.assertEqual(caught.exception.kind, "removed")
            self.assertIn("is not accepted any more: request another certificate", str(caught.exception))
