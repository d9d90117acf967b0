"""Credentials of an application instead of a secret: signed by its certificate, or a federated token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from tower.cloud.errors import CloudError
from tower.cloud.jwt import encode, signed_jwt

#: Lifetime of signed assertions, s; Azure requires a short one.
LIFE = 600

_FILE_LIMIT = 1 << 18  # B
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class BadAssertion(CloudError):
    """The certificate or the federated token cannot be used."""


def federated_token(path: str) -> str:
    """Return the token in a file, which its issuer keeps fresh.

    :raise BadAssertion: the file has no token; the error does not quote it.
    """
    text = _read(path).decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise BadAssertion(f"{path}: the file has no token")
    return text


def signed_assertion(path: str, password: str, client: str, audience: str, now: float) -> str:
    """Return an assertion for one login, signed by the client's certificate (RFC 7523, PS256).

    :param path: file with certificate and key, PKCS#12 or PEM.
    :param password: of that file; empty: none.
    :param audience: the token endpoint's URL.
    :param now: s since the epoch.
    :raise BadAssertion: the file cannot be used; the error does not quote it.
    """
    key, certificate = _load(path, password)
    header = {"alg": "PS256", "typ": "JWT", "x5t#S256": encode(certificate.fingerprint(SHA256()))}
    began = int(now)
    claims = {
        "aud": audience,
        "iss": client,
        "sub": client,
        "jti": str(uuid4()),
        "nbf": began,
        "exp": began + LIFE,
    }
    padding = PSS(MGF1(SHA256()), SHA256.digest_size)
    return signed_jwt(header, claims, lambda data: key.sign(data, padding, SHA256()))


def _load(path: str, password: str) -> tuple[RSAPrivateKey, x509.Certificate]:
    data, secret = _read(path), password.encode() or None
    key: Any
    certificate: x509.Certificate | None
    try:
        if b"-----BEGIN" in data:
            key = load_pem_private_key(data, secret)
            certificate = x509.load_pem_x509_certificate(data)
        else:
            key, certificate, _ = load_key_and_certificates(data, secret)
    except (ValueError, TypeError):
        raise BadAssertion(
            f"{path}: the file has no certificate with a key, or aadClientCertPassword is wrong"
        ) from None
    if not isinstance(key, RSAPrivateKey) or certificate is None:
        raise BadAssertion(f"{path}: the file must have a certificate and its RSA key")
    return key, certificate


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_FILE_LIMIT)
    except OSError as e:
        raise BadAssertion(f"{path}: {e.strerror}") from None
