"""Certificate authorities, and the certificates that they issue.

Tower has two CAs: one signs serving certificates, the other users' certificates.  So the holder of the
``--ca-cert`` key cannot become a user of Tower.  Keys that Tower creates are ECDSA P-256.  User, expiry and
revocation of a credential are in `tower.clusters.credentials`, looked up by the certificate's digest.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import warnings
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import attrs
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tower.errors import ConfigurationError, Invalid

SigningKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

#: How far another machine's clock may be behind ours, s.
CLOCK_SKEW = 300.0

#: URI name in certificates for Tower's own API.
API_AUDIENCE = "tower:api"

#: Prefix of an IP address that a certificate should have as a host name, for clients that compare texts.
AS_HOST_NAME = "DNS:"

_HOST_NAME = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)

#: Longest common name and organisation that fit a certificate, characters (RFC 5280 A.1).
_NAME_LIMIT = 64


@attrs.frozen
class Issued:
    """A new certificate with its key.

    :ivar certificate_pem: the certificate without its issuers.
    :ivar key_pem: its private key, PKCS #8.
    :ivar digest: SHA-256 of the certificate's DER, hexadecimal; its key in `tower.clusters.credentials`.
    :ivar not_after: expiry, s since the epoch.
    """

    certificate_pem: bytes
    key_pem: bytes = attrs.field(repr=False)
    digest: str
    not_after: float


def load_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates in *pem*.

    :raise ValueError: *pem* holds no certificate, or a malformed one.
    """
    with warnings.catch_warnings():
        # Serial number 0 is invalid, but kubeadm's CAs have it.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return tuple(x509.load_pem_x509_certificates(pem))


def public_key_hash(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate's SubjectPublicKeyInfo (DER), hexadecimal."""
    key = certificate.public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def ca_hash(certificate_pem: bytes) -> str:
    """Return the hash that pins a CA, in kubeadm's format: ``sha256:<hex of its SubjectPublicKeyInfo>``.

    Only the first certificate counts: it signs.
    """
    return "sha256:" + public_key_hash(load_certificates(certificate_pem)[0])


def audience(cluster_name: str, cluster_uid: str) -> str:
    """Return the URI name that restricts a certificate to one cluster, or without a name to Tower's API."""
    return f"tower:cluster:{cluster_name}:{cluster_uid}" if cluster_name else API_AUDIENCE


def moment(seconds: float) -> datetime:
    """Return the time *seconds* after the epoch, truncated to whole seconds as in certificates."""
    return datetime.fromtimestamp(int(seconds), UTC)


def pem_of_key(key: SigningKey) -> bytes:
    """Return the private *key* as PKCS #8 in PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@attrs.frozen
class Authority:
    """A certificate authority that can sign.

    :ivar certificates: its certificate, then those of its issuers up to a root.
    """

    certificates: Sequence[x509.Certificate]
    key: SigningKey = attrs.field(repr=False)

    @property
    def certificate(self) -> x509.Certificate:
        """The certificate that signs."""
        return self.certificates[0]

    @property
    def pem(self) -> bytes:
        """Its certificates, which clients need for verification."""
        return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.certificates)

    @property
    def hash(self) -> str:
        """The hash that pins it; see `ca_hash`."""
        return "sha256:" + public_key_hash(self.certificate)

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes that agents may pin; see `tower.trust.rotating_authority`."""
        return (self.hash,)

    @property
    def not_after(self) -> float:
        """Its expiry, s since the epoch."""
        return self.certificate.not_valid_after_utc.timestamp()

    def client_certificate(
        self, user: str, groups: Iterable[str], cluster_name: str, cluster_uid: str, ttl: float, now: float
    ) -> Issued:
        """Return a certificate for *user*, restricted to one cluster, or without a name to Tower's API.

        :param ttl: lifetime, s.
        :param now: s since the epoch.
        :raise Invalid: a name does not fit a certificate.
        """
        names = [_attribute(NameOID.COMMON_NAME, "user", user)]
        names += [_attribute(NameOID.ORGANIZATION_NAME, "group", group) for group in groups]
        subject = x509.Name(x509.RelativeDistinguishedName([name]) for name in names)
        uri = x509.UniformResourceIdentifier(audience(cluster_name, cluster_uid))
        return self._issue(subject, [uri], ExtendedKeyUsageOID.CLIENT_AUTH, ttl, now)

    def server_certificate(self, names: Sequence[str], lifetime: float, now: float) -> Issued:
        """Return a server certificate for *names* (host names and IP addresses).

        :param lifetime: s; ends no later than the CA.
        :param now: s since the epoch.
        :raise ConfigurationError: a name is neither a host name nor an IP address.
        """
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tower")])
        return self._issue(subject, general_names(names), ExtendedKeyUsageOID.SERVER_AUTH, lifetime, now)

    def issued(self, certificate: x509.Certificate) -> bool:
        """Return whether this CA signed *certificate*."""
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (InvalidSignature, TypeError, ValueError):
            return False
        return True

    def _issue(
        self,
        subject: x509.Name,
        names: Sequence[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        lifetime: float,
        now: float,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + lifetime, self.not_after)
        certificate = (
            _builder(subject, self.certificate.subject, key, now - CLOCK_SKEW, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_authority_key_identifier(self.certificate), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Issued(
            certificate.public_bytes(Encoding.PEM),
            pem_of_key(key),
            certificate.fingerprint(hashes.SHA256()).hex(),
            certificate.not_valid_after_utc.timestamp(),
        )


def general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    """Return host names and IP addresses (``[::1]`` too) as alternative names, without duplicates.

    :raise ConfigurationError: a name is neither a host name nor an IP address.
    """
    return list(dict.fromkeys(_general_name(name) for name in names))


def self_signed(subject: x509.Name, lifetime: float, now: float) -> Authority:
    """Return a new CA with a self-signed certificate.

    :param lifetime: s.
    :param now: s since the epoch.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key, now - CLOCK_SKEW, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority((certificate,), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: float, end: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment(begin))
        .not_valid_after(moment(end))
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier(
            x509.SubjectKeyIdentifier.from_public_key(issuer.public_key()).digest, None, None
        )
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _attribute(kind: x509.ObjectIdentifier, what: str, value: str) -> x509.NameAttribute[str]:
    if not 0 < len(value) <= _NAME_LIMIT or not value.isprintable():
        raise Invalid(
            f"{what} {value!r} does not fit a certificate, which takes 1 to {_NAME_LIMIT} printable "
            "characters: issue a token instead (--auth token)"
        )
    return x509.NameAttribute(kind, value)


def _general_name(name: str) -> x509.GeneralName:
    if name.startswith(AS_HOST_NAME):
        return x509.DNSName(name.removeprefix(AS_HOST_NAME))
    try:
        return x509.IPAddress(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    try:
        plain = name.rstrip(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        plain = ""
    if not _HOST_NAME.fullmatch(plain) or len(plain) > 253:
        raise ConfigurationError(
            f"{name!r} is neither a host name nor an IP address: no certificate can be issued for it"
        )
    return x509.DNSName(plain)
