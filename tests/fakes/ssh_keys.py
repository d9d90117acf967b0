"""SSH keys of every type, and lines of known_hosts."""

from __future__ import annotations

from base64 import b64encode

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tower.conch.transport.keys import ED25519
from tower.conch.transport.signatures import (
    ECDSA_P256,
    ECDSA_P384,
    ECDSA_P521,
    RSA,
    PrivateKey,
)
from tower.nodes.ssh.client_key import ClientKey

PRIVATE: dict[bytes, PrivateKey] = {
    ED25519: ed25519.Ed25519PrivateKey.generate(),
    ECDSA_P256: ec.generate_private_key(ec.SECP256R1()),
    ECDSA_P384: ec.generate_private_key(ec.SECP384R1()),
    ECDSA_P521: ec.generate_private_key(ec.SECP521R1()),
    RSA: rsa.generate_private_key(65537, 2048),
}


KEYS = {kind: ClientKey(private) for kind, private in PRIVATE.items()}


def key_line(blob: bytes, kind: bytes = ED25519) -> str:
    """Return type and key as a file has them."""
    return f"{kind.decode()} {b64encode(blob).decode()}"
