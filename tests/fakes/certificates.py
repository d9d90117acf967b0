"""Authorities, certificates and TLS sessions in memory, for tests of trust."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
)
from cryptography.x509.oid import NameOID

from tower.trust.pki import Authority, Issued, SigningKey, moment, pem_of_key, self_signed

#: When the tests take place, s since the epoch (2023-11-14).
NOW = 1_700_000_000.0

DAY = 86400.0


def authority(name: str = "test", lifetime: float = 3650 * DAY, now: float = NOW) -> Authority:
    """Return a new authority with an elliptic curve key."""
    return self_signed(common_name(name), lifetime, now)


def rsa_authority(bits: int = 2048) -> Authority:
    """Return a new authority with an RSA key and nothing optional in its certificate."""
    key = rsa.generate_private_key(65537, bits)
    return Authority((signed("rsa", key, common_name("rsa"), key, ca=True),), key)


def below(above: Authority) -> Authority:
    """Return an intermediate authority under *above*, which comes with it."""
    key = rsa.generate_private_key(65537, 2048)
    certificate = signed("between", key, above.certificate.subject, above.key, ca=True)
    return Authority((certificate, *above.certificates), key)


def common_name(name: str) -> x509.Name:
    """Return a subject."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def signed(
    name: str, key: SigningKey, issuer: x509.Name, issuer_key: SigningKey, *, ca: bool | None
) -> x509.Certificate:
    """Return a certificate; *ca* None leaves the basic constraints out."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment(NOW - DAY))
        .not_valid_after(moment(NOW + 3650 * DAY))
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(issuer_key, hashes.SHA256())


def pair(folder: Path, of: Authority) -> tuple[Path, Path]:
    """Write certificate and key of an authority to two files; return their paths."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    certificate.write_bytes(of.pem)
    key.write_bytes(pem_of_key(of.key))
    return certificate, key


def der(issued: Issued) -> bytes:
    """Return the DER of a certificate."""
    return x509.load_pem_x509_certificate(issued.certificate_pem).public_bytes(Encoding.DER)


def client_context(*trusted: Authority, shows: Issued | None = None) -> ssl.SSLContext:
    """Return a strict client's context, the strictest that Python has (the default from 3.13 on)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    for each in trusted:
        context.load_verify_locations(cadata=each.certificate.public_bytes(Encoding.DER))
    if shows is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(shows.key_pem + shows.certificate_pem)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def shake(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    host: str = "localhost",
    session: ssl.SSLSession | None = None,
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return both ends of a TLS session after the handshake and one byte in each direction.

    :raise ssl.SSLError: one end refused.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = server.wrap_bio(to_server, to_client, server_side=True)
    far = client.wrap_bio(to_client, to_server, server_hostname=host, session=session)
    waiting = [far, near]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    near.write(b"s")
    far.read(1)
    far.write(b"c")
    near.read(1)
    return near, far


#: The certificate whose key is ``certs/ca.key`` in KubeSphere Tower's repository.
PUBLISHED = """\
-----BEGIN CERTIFICATE-----
MIICyDCCAbCgAwIBAgIBADANBgkqhkiG9w0BAQsFADAVMRMwEQYDVQQDEwprdWJl
c3BoZXJlMB4XDTIwMDMxNDA4MTIwMloXDTMwMDMxMjA4MTIwMlowFTETMBEGA1UE
AxMKa3ViZXNwaGVyZTCCASIwDQYJKoZIhvcNAQEBBQADggEPADCCAQoCggEBAMZ5
iQENWlNyB2CTq0IF72waeHjw4PbRhqLkHeKeqCv9Qw7u6+71/2glX5NiIGfXZjaF
W2fplq20Nrg6FP3kN94lzxQu4x7nCtsedgtKRgzETcrKdVkfU02z8IDZNiGAmztK
PDwHVZvXDiT1dgm+VtEHQ979D5UOm7ba7P6M2XzMnVrUmQ/BIXsbt3YYA7N46hct
jUgS1N/SFamBUNAk11eVOyPRy+Zgf5+xTFuui9QueGqONyxdk5ZPpd0F04iG8R85
vYt2kOkcvF7cwsWnGiToAUZP0g2BoRZA8RcGf3OJ5KBd6vadu9Z61pK0RlDnXV9E
9yKfRqOiyXeahvxbvgMCAwEAAaMjMCEwDgYDVR0PAQH/BAQDAgKkMA8GA1UdEwEB
/wQFMAMBAf8wDQYJKoZIhvcNAQELBQADggEBAHKwi2NIqSR0u5+C2lBUHOfDREND
2ZoEe/juN5i5vW6TWYMHDHq2C4An5vT5FFAk6CjX0pJQMHpCruEkWmuOBRp2Sw0P
RZzdHPOqICx31I2RoHza3dTZJNoraJxddk2fBec9E2A2lN2BnCjkbRYbNqpFJOE5
TsE9qW1ADbvWDi6k1SeYD1H0Eu5O0vlrUy/+wXt6kHXvTlgMoh+gTKrETb8gRlPg
4VWzfXea1mNZ3QcGbVkPhesI/hjsN2gNWMdPSQ7RVH7c9MP10LJOl+Vpa20iXBuQ
d5+S3uWJdamHKWp0GPUYQZYOlZIOoLzY7K5mjQ+VuCp7wyYETw8huA2ttEs=
-----END CERTIFICATE-----
"""
