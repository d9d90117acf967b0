"""Certificate chains, and both ends of TLS sessions that present them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from tempfile import NamedTemporaryFile

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def issue(name: str, issuer: Pair | None = None, *, authority: bool = False, begin: float = -300.0) -> Pair:
    """Return a certificate for *name* and 127.0.0.1, signed by *issuer* or itself, and its key.

    :param begin: of its validity, which lasts a day, s from now.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(seconds=begin))
        .not_valid_after(now + timedelta(seconds=begin, days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(issuer[1] if issuer else key, SHA256())
    )
    return certificate, key


@cache
def family() -> tuple[Pair, Pair, Pair]:
    """Return a root, an intermediate and a server's certificate."""
    root = issue("root", authority=True)
    middle = issue("middle", root, authority=True)
    return root, middle, issue("tower.example", middle)


@contextmanager
def pem_file(*parts: bytes) -> Iterator[str]:
    """Write *parts* to a file."""
    with NamedTemporaryFile(delete=False) as file:
        file.write(b"".join(parts))
    try:
        yield file.name
    finally:
        os.unlink(file.name)


def pem(certificate: x509.Certificate) -> bytes:
    """Return the PEM form."""
    return certificate.public_bytes(Encoding.PEM)


def server_context(leaf: Pair, *others: x509.Certificate) -> ssl.SSLContext:
    """Return a server's context that shows *leaf* and *others*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = leaf[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pem_file(key, pem(leaf[0]), *map(pem, others)) as path:
        context.load_cert_chain(path)
    return context
