# mypy: untyped-calls-exclude=twisted
"""ECDSA host keys (RFC 5656), which deployed proxies have: read, and used to check.  No I/O."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from tower.conch.fields import Fields, Malformed

#: The key type and signature algorithm, and its curve's name in a key.
ECDSA_P256 = b"ecdsa-sha2-nistp256"
_CURVE = b"nistp256"

#: Longest half of a signature, B: 32, and one that keeps it positive.
_LONGEST_NUMBER = 33


def verify_ecdsa(blob: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether *signature* (an SSH signature) of *data* was made with the P-256 key *blob*.

    :raise Malformed: *blob* is no such key, or *signature* is none of one.
    """
    public = _public_key(blob)
    fields = Fields(signature)
    kind, numbers = fields.string(), Fields(fields.string())
    fields.end()
    if kind != ECDSA_P256:
        return False
    r, s = _number(numbers), _number(numbers)
    numbers.end()
    try:
        public.verify(encode_dss_signature(r, s), data, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _public_key(blob: bytes) -> ec.EllipticCurvePublicKey:
    fields = Fields(blob)
    kind, curve, point = fields.string(), fields.string(), fields.string()
    fields.end()
    if (kind, curve) != (ECDSA_P256, _CURVE):
        raise Malformed("not an ECDSA P-256 key")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except ValueError as error:
        raise Malformed("not a point of P-256") from error


def _number(fields: Fields) -> int:
    """Return a positive multiple precision integer (RFC 4251 section 5)."""
    data = fields.string()
    number = int.from_bytes(data, "big", signed=True)
    if number <= 0 or len(data) > _LONGEST_NUMBER:
        raise Malformed("not half a signature")
    return number
