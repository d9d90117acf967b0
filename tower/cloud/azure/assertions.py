"""What vouches for a client at Azure in place of a secret: its certificate, or somebody whom Azure trusts."""

from __future__ import annotations

import base64
import json
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

#: How long what a certificate signs is good, s; Azure wants it short.
LIFE = 600

_FILE_LIMIT = 1 << 18  # B
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class BadAssertion(CloudError):
    """There is nothing that vouches for the client."""


def federated_token(path: str) -> str:
    """Return the token in a file, as whoever issues it keeps it fresh there.

    :raise BadAssertion: there is none; the text has nothing of the file.
    """
    text = _read(path).decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise BadAssertion(f"{path}: there is no token in it")
    return text


def signed_assertion(path: str, password: str, client: str, audience: str, now: float) -> str:
    """Return what a client's certificate signs for one login (RFC 7523, PS256).

    :param path: of certificate and key, PKCS#12 or PEM.
    :param password: of that file; empty: it has none.
    :param audience: the URL of whom it is for.
    :param now: s since the epoch.
    :raise BadAssertion: they cannot be used; the text has nothing of the file.
    """
    key, certificate = _load(path, password)
    head = {"alg": "PS256", "typ": "JWT", "x5t#S256": _encode(certificate.fingerprint(SHA256()))}
    began = int(now)
    claims = {
        "aud": audience,
        "iss": client,
        "sub": client,
        "jti": str(uuid4()),
        "nbf": began,
        "exp": began + LIFE,
    }
    signed = f"{_part(head)}.{_part(claims)}"
    signature = key.sign(signed.encode(), PSS(MGF1(SHA256()), SHA256.digest_size), SHA256())
    return f"{signed}.{_encode(signature)}"


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
            f"{path}: no certificate with its key, or aadClientCertPassword is wrong"
        ) from None
    if not isinstance(key, RSAPrivateKey) or certificate is None:
        raise BadAssertion(f"{path}: a certificate and its RSA key are wanted")
    return key, certificate


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_FILE_LIMIT)
    except OSError as e:
        raise BadAssertion(f"{path}: {e.strerror}") from None


def _part(said: dict[str, Any]) -> str:
    return _encode(json.dumps(said, separators=(",", ":")).encode())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
