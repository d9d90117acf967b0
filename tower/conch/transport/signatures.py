# mypy: untyped-calls-exclude=twisted
"""Signatures with every key type that SSH servers and users have: make and verify.  No I/O.

ed25519 (RFC 8709), ECDSA over the three NIST curves (RFC 5656), and RSA with SHA-2 (RFC 8332).  SHA-1
(``ssh-rsa`` as a signature) and DSA are not supported.
"""

from __future__ import annotations

from attrs import frozen
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from twisted.conch.ssh.common import MP, NS

from tower.conch.transport import keys
from tower.conch.transport.fields import Malformed, MessageReader
from tower.conch.transport.keys import ED25519

#: The type of RSA keys, and their signature algorithms, the preferred one first.
RSA = b"ssh-rsa"
RSA_SHA2_512 = b"rsa-sha2-512"
RSA_SHA2_256 = b"rsa-sha2-256"

#: Smallest and largest RSA modulus, bits; a larger one takes seconds.
SMALLEST_RSA = 2048
LARGEST_RSA = 16384

PrivateKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | RSAPrivateKey


@frozen
class _Curve:
    """An ECDSA curve; :ivar size: of half a signature at most, B."""

    name: bytes
    curve: ec.EllipticCurve
    digest: HashAlgorithm
    size: int


#: The types of ECDSA keys, also the names of their signature algorithms.
ECDSA_P256 = b"ecdsa-sha2-nistp256"
ECDSA_P384 = b"ecdsa-sha2-nistp384"
ECDSA_P521 = b"ecdsa-sha2-nistp521"

_CURVES = {
    ECDSA_P256: _Curve(b"nistp256", ec.SECP256R1(), SHA256(), 33),
    ECDSA_P384: _Curve(b"nistp384", ec.SECP384R1(), SHA384(), 49),
    ECDSA_P521: _Curve(b"nistp521", ec.SECP521R1(), SHA512(), 67),
}
_RSA_DIGESTS: dict[bytes, HashAlgorithm] = {RSA_SHA2_512: SHA512(), RSA_SHA2_256: SHA256()}

#: Signature algorithms of each key type; requested in this order if the server's key is not known.
SIGNATURES: dict[bytes, tuple[bytes, ...]] = {
    ED25519: (ED25519,),
    ECDSA_P256: (ECDSA_P256,),
    ECDSA_P384: (ECDSA_P384,),
    ECDSA_P521: (ECDSA_P521,),
    RSA: (RSA_SHA2_512, RSA_SHA2_256),
}


def key_type(blob: bytes) -> bytes:
    """Return the type of a public key blob, for example ``ssh-ed25519``.

    :raise Malformed: it is not a key.
    """
    return MessageReader(blob).string()


def verify(algorithm: bytes, blob: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether *signature* (an SSH signature) of *data* was made by *algorithm* with the key *blob*.

    :param algorithm: the negotiated one: signatures of any other are not accepted.
    :raise Malformed: *blob* is not a key for *algorithm*, or *signature* is malformed.
    """
    if algorithm == ED25519:
        return keys.verify(blob, signature, data)
    if algorithm in _CURVES:
        return _verify_ecdsa(algorithm, blob, signature, data)
    if algorithm in _RSA_DIGESTS:
        return _verify_rsa(algorithm, blob, signature, data)
    raise Malformed("a signature algorithm that was not negotiated")


def _verify_ecdsa(algorithm: bytes, blob: bytes, signature: bytes, data: bytes) -> bool:
    curve = _CURVES[algorithm]
    public = _ecdsa_key(algorithm, curve, blob)
    fields = MessageReader(signature)
    kind, numbers = fields.string(), MessageReader(fields.string())
    fields.end()
    if kind != algorithm:
        return False
    r, s = _positive(numbers, curve.size), _positive(numbers, curve.size)
    numbers.end()
    try:
        public.verify(encode_dss_signature(r, s), data, ec.ECDSA(curve.digest))
    except InvalidSignature:
        return False
    return True


def _ecdsa_key(kind: bytes, curve: _Curve, blob: bytes) -> ec.EllipticCurvePublicKey:
    fields = MessageReader(blob)
    names, point = (fields.string(), fields.string()), fields.string()
    fields.end()
    if names != (kind, curve.name):
        raise Malformed(f"not a key for {kind.decode()}")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve.curve, point)
    except ValueError as error:
        raise Malformed(f"not a point of {curve.name.decode()}") from error


def _verify_rsa(algorithm: bytes, blob: bytes, signature: bytes, data: bytes) -> bool:
    public = _rsa_key(blob)
    fields = MessageReader(signature)
    kind, raw = fields.string(), fields.string()
    fields.end()
    if kind != algorithm:
        return False
    # RFC 8332 section 3 requires the modulus's length; old implementations may omit leading zeros
    raw = raw.rjust((public.key_size + 7) // 8, b"\0")
    try:
        public.verify(raw, data, PKCS1v15(), _RSA_DIGESTS[algorithm])
    except InvalidSignature:
        return False
    return True


def _rsa_key(blob: bytes) -> RSAPublicKey:
    fields = MessageReader(blob)
    kind = fields.string()
    if kind != RSA:
        raise Malformed("not an RSA key")
    longest = LARGEST_RSA // 8 + 1
    exponent, modulus = _positive(fields, 8), _positive(fields, longest)
    fields.end()
    if modulus.bit_length() < SMALLEST_RSA:
        raise Malformed(f"an RSA key of {modulus.bit_length()} bits; the least is {SMALLEST_RSA}")
    try:
        return RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError as error:
        raise Malformed("not an RSA key") from error


def _positive(fields: MessageReader, longest: int) -> int:
    """Return a positive multiple precision integer (RFC 4251 section 5) of at most *longest* bytes."""
    data = fields.string()
    number = int.from_bytes(data, "big", signed=True)
    if number <= 0 or len(data) > longest:
        raise Malformed("not a positive number of the right size")
    return number


def sign(private: PrivateKey, algorithm: bytes, data: bytes) -> bytes:
    """Return the SSH signature of *data*.

    :param algorithm: one of `SIGNATURES` for the type of the key.
    """
    if isinstance(private, Ed25519PrivateKey):
        raw = private.sign(data)
    elif isinstance(private, RSAPrivateKey):
        raw = private.sign(data, PKCS1v15(), _RSA_DIGESTS[algorithm])
    else:
        r, s = decode_dss_signature(private.sign(data, ec.ECDSA(_CURVES[algorithm].digest)))
        raw = MP(r) + MP(s)
    return NS(algorithm) + NS(raw)
