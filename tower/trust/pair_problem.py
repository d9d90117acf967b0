"""Why a certificate and a key in PEM are not a pair, in the words of Go's crypto/tls."""

from __future__ import annotations

import re
import ssl

from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tower.net.tls.client_certificate import load_pair
from tower.trust.client_authorities import MALFORMED
from tower.trust.pki import load_certificates

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_CERTIFICATE, _KEY = "CERTIFICATE", "PRIVATE KEY"


def pair_problem(certificate: bytes, key: bytes) -> str:
    """Return the problem of a certificate file and a key file; empty: they are a pair."""
    blocks, keys = (
        [each[1].decode("ascii") for each in _BLOCK.finditer(content)] for content in (certificate, key)
    )
    if _CERTIFICATE not in blocks:
        return _without_certificate(blocks)
    if not any(each.endswith(_KEY) for each in keys):
        return _without_key(keys)
    try:
        public = load_certificates(certificate)[0].public_key()
    except MALFORMED:
        return "x509: malformed certificate"
    private = _private_key(key)
    if private is None:
        return "tls: failed to parse private key"
    if type(private.public_key()) is not type(public):
        return "tls: private key type does not match public key type"
    if private.public_key() != public:
        return "tls: private key does not match public key"
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    except ValueError:
        return "tls: OpenSSL rejects the certificate or the key, such as for a key that is too short"
    return ""


def _private_key(pem: bytes) -> PrivateKeyTypes | None:
    """Return the first private key; None: it is encrypted, malformed or of an unknown type."""
    block = next(each[0] for each in _BLOCK.finditer(pem) if each[1].decode("ascii").endswith(_KEY))
    try:
        return load_pem_private_key(block, None)
    except (*MALFORMED, TypeError):
        return None


def _without_certificate(blocks: list[str]) -> str:
    begin = "tls: failed to find"
    if not blocks:
        return f"{begin} any PEM data in certificate input"
    if len(blocks) == 1 and blocks[0].endswith(_KEY):
        return (
            f"{begin} certificate PEM data in certificate input, but did find a private key; PEM inputs may "
            "have been switched"
        )
    return (
        f'{begin} "{_CERTIFICATE}" PEM block in certificate input after skipping PEM blocks of the following '
        f"types: [{' '.join(blocks)}]"
    )


def _without_key(blocks: list[str]) -> str:
    if not blocks:
        return "tls: failed to find any PEM data in key input"
    if blocks == [_CERTIFICATE]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    return (
        f'tls: failed to find PEM block with type ending in "{_KEY}" in key input after skipping PEM blocks '
        f"of the following types: [{' '.join(blocks)}]"
    )
