"""CAs of client certificates that Tower did not issue, and the check of a certificate's chain.

TLS checks with OpenSSL that one of all CAs of the port signed the certificate; `ClientAuthorities` finds out
whether it was one of these, with the rules of kube-apiserver: each CA in the file is trusted, root or not,
and every extended key usage in the chain must include clientAuth.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Self

from attrs import field, frozen
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

from tower.net.tls.published_authorities import REASON, is_published
from tower.trust.pki import load_certificates, public_key_hash

#: OpenSSL's X509_V_FLAG_PARTIAL_CHAIN and X509_V_FLAG_NO_CHECK_TIME.
_FLAGS = 0x80000 | 0x200000

#: Largest number of intermediate CAs that are remembered.
_INTERMEDIATES = 256

_CLIENT = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


#: Errors of both libraries for certificates that are malformed, or unusual.
MALFORMED = (
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    crypto.Error,
)


class NotTrusted(ValueError):
    """A certificate whose chain leads to none of the CAs; the text is Go's."""


@frozen
class VerifiedChain:
    """A certificate that one of the CAs signed, directly or not; its dates were not checked.

    :ivar anchor: SHA-256 of the CA's certificate, hexadecimal.
    :ivar not_before: when the chain becomes valid, s since the epoch.
    :ivar not_after: when it expires, likewise.
    """

    anchor: str
    not_before: float
    not_after: float


@frozen(eq=False)
class ClientAuthorities:
    """The CAs of one file.

    A resumed TLS session has the client's own certificate only, so the intermediate CAs of verified chains
    are remembered.  They serve resumed sessions only: for others, OpenSSL requires them in the handshake.

    :ivar certificates: those in the file.
    :ivar anchors: their SHA-256, hexadecimal.
    """

    certificates: Sequence[x509.Certificate]
    anchors: frozenset[str]
    _store: crypto.X509Store = field(repr=False)
    _is_own: Callable[[x509.Certificate], bool] = field(repr=False)
    _intermediates: dict[str, crypto.X509] = field(factory=dict, init=False, repr=False)

    @classmethod
    def of_pem(cls, pem: bytes, is_own: Callable[[x509.Certificate], bool]) -> Self:
        """Return the CAs in *pem*.

        :param is_own: returns whether a certificate has the key of Tower's CA of users' certificates.
        :raise ValueError: there is none, or one cannot be used; with kube-apiserver's text and the cure.
        """
        if not pem.strip():
            raise ValueError("missing content for CA bundle: give the CA's certificate in PEM format")
        store = crypto.X509Store()
        store.set_flags(_FLAGS)
        try:
            certificates = load_certificates(pem)
            keys = [public_key_hash(each) for each in certificates]
            for each in certificates:
                store.add_cert(crypto.X509.from_cryptography(each))
        except MALFORMED:
            problem = (
                "x509: malformed certificate"
                if b"-----BEGIN CERTIFICATE-----" in pem
                else "data does not contain any valid RSA or ECDSA certificates"
            )
            raise ValueError(f"{problem}: give the CA's certificate in PEM format") from None
        for each, key in zip(certificates, keys, strict=True):
            if is_published(key):
                raise ValueError(f"{REASON}: use another CA")
            if is_own(each):
                raise ValueError(
                    "has Tower's own CA of users' certificates, with which revoked credentials would stay "
                    "valid: remove that certificate"
                )
        return cls(certificates, frozenset(map(fingerprint, certificates)), store, is_own)

    @property
    def pem(self) -> bytes:
        """The certificates in the file."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.certificates)

    def verify(self, shown: bytes, sent: Sequence[bytes]) -> tuple[x509.Certificate, VerifiedChain]:
        """Return the certificate *shown*, and its chain.

        :param shown: DER.
        :param sent: the intermediate CAs that the client sent, DER; a resumed session has none.
        :raise NotTrusted: there is no chain to one of the CAs.
        :raise ValueError: the chain is not valid; the text is Go's, except for malformed certificates.
        """
        try:
            certificate = x509.load_der_x509_certificate(shown)
            chain = self._verify(certificate, sent)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of names longer than 64 characters
                certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)  # an error shows here
        except NotTrusted:
            raise
        except MALFORMED as e:
            text = str(e) if type(e) is ValueError else "x509: malformed certificate"
            raise ValueError(text) from None
        return certificate, chain

    def _verify(self, certificate: x509.Certificate, sent: Sequence[bytes]) -> VerifiedChain:
        others = [crypto.load_certificate(crypto.FILETYPE_ASN1, each) for each in sent]
        others = others or list(self._intermediates.values())
        leaf = crypto.X509.from_cryptography(certificate)
        context = crypto.X509StoreContext(self._store, leaf, others)
        try:
            chain = [each.to_cryptography() for each in context.get_verified_chain()]
        except crypto.X509StoreContextError:
            raise NotTrusted("x509: certificate signed by unknown authority") from None
        between = chain[1:-1]
        if any(map(self._is_own, between)):
            raise NotTrusted("Tower issued the certificate")
        if not all(map(_may_sign, between)):
            raise NotTrusted("x509: invalid certificate: CA is not authorized to sign certificates")
        if not all(map(_is_for_clients, chain)):
            raise ValueError("x509: certificate specifies an incompatible key usage")
        for each in between:
            self._remember(each)
        return VerifiedChain(
            fingerprint(chain[-1]),
            max(each.not_valid_before_utc.timestamp() for each in chain),
            min(each.not_valid_after_utc.timestamp() for each in chain),
        )

    def _remember(self, intermediate: x509.Certificate) -> None:
        digest = fingerprint(intermediate)
        if digest in self._intermediates:
            return
        if len(self._intermediates) >= _INTERMEDIATES:
            del self._intermediates[next(iter(self._intermediates))]
        self._intermediates[digest] = crypto.X509.from_cryptography(intermediate)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate's DER, hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return not _CLIENT.isdisjoint(usages)
