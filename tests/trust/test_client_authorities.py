"""Tests of `tower.trust.client_authorities`."""

from __future__ import annotations

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW, PUBLISHED, authority
from tests.fakes.client_certificates import CLIENT, SERVER, Company, sent, subject
from tower.trust.client_authorities import ClientAuthorities, NotTrusted, VerifiedChain, fingerprint
from tower.trust.pki import Issued
from tower.web.access.authentication.x509 import common_name


def bundle(*pems: bytes) -> ClientAuthorities:
    """Return the CAs in a file."""
    return ClientAuthorities.of_pem(b"".join(pems), lambda _: False)


def verify(authorities: ClientAuthorities, issued: Issued, *, resumed: bool = False) -> VerifiedChain:
    """Return the chain of a certificate."""
    certificates = sent(issued)
    return authorities.verify(certificates[0], [] if resumed else certificates[1:])[1]


def changed(data: bytes, chance: Random) -> bytes:
    """Return *data* with a byte changed, removed or added."""
    at, byte = chance.randrange(len(data)), bytes((chance.randrange(256),))
    return data[:at] + (byte if chance.random() < 0.8 else b"") + data[at + chance.randrange(2) :]


class ClientAuthoritiesTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with a root, two CAs below it, and another root."""
        self.root, self.other = Company.root(), Company.root("other")
        self.department = self.root.below()
        self.team = self.department.below("team", days=30)

    def test_directly_and_indirectly(self) -> None:
        """Certificates of the CA, and of CAs below it, are accepted; their dates are those of the chain."""
        authorities = bundle(self.other.pem, self.root.pem)
        for signer, end in ((self.root, 1), (self.department, 1), (self.team, 1)):
            chain = verify(authorities, signer.issue(subject("jane")))
            self.assertEqual(
                chain, VerifiedChain(fingerprint(self.root.chain[0]), NOW - DAY, NOW + end * DAY)
            )
        chain = verify(authorities, self.team.issue(subject("jane"), end=NOW + 60 * DAY))
        self.assertEqual(chain.not_after, NOW + 30 * DAY)

    def test_partial_chain(self) -> None:
        """A CA in the file need not be a root; the CAs above it are then not trusted."""
        authorities = bundle(self.department.pem)
        chain = verify(authorities, self.team.issue(subject("jane")))
        self.assertEqual(chain.anchor, fingerprint(self.department.chain[0]))
        self.assertRaises(NotTrusted, verify, authorities, self.root.issue(subject("jane")))

    def test_another_authority(self) -> None:
        """The same name by another CA, and a certificate without its intermediate CA, are not trusted."""
        authorities = bundle(self.root.pem)
        self.assertRaises(NotTrusted, verify, authorities, self.other.issue(subject("jane")))
        same_name = Company.root()
        self.assertRaises(NotTrusted, verify, authorities, same_name.issue(subject("jane")))
        issued = self.team.issue(subject("jane"))
        self.assertRaises(NotTrusted, verify, authorities, issued, resumed=True)

    def test_resumed(self) -> None:
        """A resumed session has no intermediate CAs: those that were verified before are used."""
        authorities = bundle(self.root.pem)
        issued = self.team.issue(subject("jane"))
        verify(authorities, issued)
        self.assertEqual(verify(authorities, issued, resumed=True).anchor, fingerprint(self.root.chain[0]))
        self.assertRaises(NotTrusted, verify, bundle(self.other.pem, self.root.pem), issued, resumed=True)

    def test_not_a_signer(self) -> None:
        """A user's certificate signs no other."""
        user = self.root.below("jane", ca=False)
        self.assertRaises(NotTrusted, verify, bundle(self.root.pem), user.issue(subject("admin")))

    def test_usages(self) -> None:
        """Every extended key usage in the chain must include clientAuth; none at all is accepted."""
        for inner, outer, is_accepted in (
            ((), (), True),
            ((CLIENT, SERVER), (CLIENT,), True),
            ((SERVER,), (), False),
            ((CLIENT,), (SERVER,), False),
        ):
            signer = self.root.below(usages=outer)
            issued = signer.issue(subject("jane"), usages=inner)
            if is_accepted:
                verify(bundle(self.root.pem), issued)
                continue
            with self.assertRaises(ValueError) as caught:
                verify(bundle(self.root.pem), issued)
            self.assertEqual(str(caught.exception), "x509: certificate specifies an incompatible key usage")

    def test_malformed(self) -> None:
        """A changed byte in a certificate, a CA or the file is a `ValueError`, or does not matter."""
        authorities, chance = bundle(self.root.pem), Random(1)
        leaf, between = sent(self.department.issue(subject("jane")))
        pem = self.root.pem
        self.assertRaises(ValueError, authorities.verify, b"", [])
        for _ in range(1500):
            first, second, file = (changed(each, chance) for each in (leaf, between, pem))
            for shown, below in ((first, between), (leaf, second)):
                try:
                    certificate, _ = authorities.verify(shown, [below])
                except ValueError:
                    continue
                self.assertEqual(common_name(certificate), "jane")
            try:
                bundle(file)
            except ValueError:
                pass

    def test_own(self) -> None:
        """Tower's own CA is not accepted in the file, nor below one in it."""
        own = authority("tower users").certificate
        with self.assertRaises(ValueError) as caught:
            ClientAuthorities.of_pem(self.department.pem, lambda each: each == self.department.chain[0])
        self.assertIn("revoked credentials would stay valid: remove", str(caught.exception))
        crossed = ClientAuthorities.of_pem(self.root.pem, lambda each: each != self.root.chain[0])
        self.assertRaises(NotTrusted, verify, crossed, self.department.issue(subject("jane")))
        self.assertNotIn(fingerprint(own), crossed.anchors)

    def test_files(self) -> None:
        """Files without a usable CA are rejected with kube-apiserver's texts and the cure."""
        for content, text in (
            (b" \n", "missing content for CA bundle: give"),
            (b"hi\n", "data does not contain any valid RSA or ECDSA certificates: give"),
            (
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "x509: malformed certificate: give",
            ),
            (PUBLISHED.encode(), "the private key of this CA is public"),
        ):
            with self.assertRaises(ValueError) as caught:
                bundle(content)
            self.assertIn(text, str(caught.exception))
        both = bundle(self.root.pem, b"some text\n", self.other.pem)
        self.assertEqual(len(both.anchors), 2)
        self.assertEqual(both.pem, self.root.pem + self.other.pem)
