"""CAs of an organization, and client certificates of its users, with every mistake that tests need."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tests.fakes.certificates import DAY, NOW
from tower.trust.pki import Issued, moment, pem_of_key

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


def subject(user: str | None, groups: Sequence[str] = (), *more: tuple[ObjectIdentifier, str]) -> x509.Name:
    """Return the name of a user in groups."""
    values = [(NameOID.ORGANIZATION_NAME, group) for group in groups]
    values += [] if user is None else [(NameOID.COMMON_NAME, user)]
    values += more
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of lengths that a certificate should not have
        return x509.Name(
            x509.RelativeDistinguishedName([x509.NameAttribute(kind, value, _validate=False)])
            for kind, value in values
        )


@attrs.frozen
class Company:
    """A CA and those above it.

    :ivar chain: its certificate, then those of the CAs above it.
    """

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def root(cls, name: str = "company", now: float = NOW, days: float = 3650) -> Company:
        """Return a CA that signed itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(
            (_signed(subject(name), subject(name), key, key, now - DAY, now + days * DAY, ca=True),), key
        )

    def below(
        self,
        name: str = "department",
        now: float = NOW,
        usages: Sequence[ObjectIdentifier] = (),
        days: float = 3650,
        *,
        ca: bool = True,
    ) -> Company:
        """Return an intermediate CA of this one."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _signed(
            subject(name),
            self.chain[0].subject,
            key,
            self.key,
            now - DAY,
            now + days * DAY,
            usages,
            ca=ca,
        )
        return Company((made, *self.chain), key)

    def issue(
        self,
        name: x509.Name,
        begin: float = NOW - DAY,
        end: float = NOW + DAY,
        usages: Sequence[ObjectIdentifier] = (CLIENT,),
    ) -> Issued:
        """Return a client certificate with the CAs above it, except for the root."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _signed(name, self.chain[0].subject, key, self.key, begin, end, usages)
        pem = b"".join(each.public_bytes(Encoding.PEM) for each in (made, *self.chain[:-1]))
        return Issued(pem, pem_of_key(key), made.fingerprint(hashes.SHA256()).hex(), end)

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        return self.chain[0].public_bytes(Encoding.PEM)

    @property
    def root_pem(self) -> bytes:
        """The certificate of the root above it."""
        return self.chain[-1].public_bytes(Encoding.PEM)


def sent(issued: Issued) -> tuple[bytes, ...]:
    """Return the certificates that a client sends, DER."""
    certificates = x509.load_pem_x509_certificates(issued.certificate_pem)
    return tuple(each.public_bytes(Encoding.DER) for each in certificates)


def _signed(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    begin: float,
    end: float,
    usages: Sequence[ObjectIdentifier] = (),
    *,
    ca: bool = False,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment(begin))
        .not_valid_after(moment(end))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
