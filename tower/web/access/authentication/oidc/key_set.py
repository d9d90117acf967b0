"""The public keys of an issuer (JWKS, RFC 7517), and the verification of signatures with them."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import attrs
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK, PyJWS
from jwt.exceptions import DecodeError, InvalidSignatureError, PyJWTError

from tower.web.access.authentication.oidc.issuer import ALGORITHMS
from tower.web.access.authentication.oidc.tokens import (
    MALFORMED,
    PROVIDER,
    ReceivedToken,
    SignatureUnknown,
    TokenRejected,
    parsed_json,
)

#: Most keys of a set that are read.
KEYS_LIMIT = 100

#: Length of a key's thumbprint, characters.
THUMBPRINT = 16

# Shorter keys are not safe.
_SHORTEST_RSA = 2048

_CURVES = ("secp256r1", "secp384r1", "secp521r1")

# Fields of a public key: private ones are not read.
_FIELDS = ("kty", "n", "e", "crv", "x", "y")

# Parsers of key types by the first letters of algorithms.
_KINDS = {"RSA": ("RS", "PS"), "EC": ("ES",)}

_JWS = PyJWS(algorithms=ALGORITHMS)


@attrs.frozen
class _Key:
    """One key; *algorithm* is empty if the set does not name it."""

    id: str
    kind: str
    algorithm: str
    public: Any = attrs.field(repr=False)
    thumbprint: str

    def fits(self, token: ReceivedToken) -> bool:
        """Return whether this key may have signed *token*."""
        if token.key_id and token.key_id != self.id:
            return False
        if self.algorithm and self.algorithm != token.algorithm:
            return False
        return token.algorithm.startswith(_KINDS[self.kind])


class VerifiedToken(NamedTuple):
    """The claims of a token, and the thumbprint of the key that has signed it."""

    claims: dict[str, Any]
    thumbprint: str


@attrs.frozen
class KeySet:
    """The keys of one issuer."""

    _keys: tuple[_Key, ...]

    @classmethod
    def union(cls, sets: Iterable[KeySet]) -> KeySet:
        """Return the keys of all *sets*."""
        return cls(tuple(key for each in sets for key in each._keys))  # noqa: SLF001 - of the same class

    @property
    def thumbprints(self) -> list[str]:
        """Those of all keys, each of `THUMBPRINT` characters."""
        return [key.thumbprint for key in self._keys]

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, key_id: str) -> bool:
        """Return whether there is a key with this ID."""
        return any(key.id == key_id for key in self._keys)

    def verified(self, token: ReceivedToken, algorithms: tuple[str, ...]) -> VerifiedToken:
        """Return the claims of *token*, and the key that has made its signature.

        :param algorithms: that the issuer may use.
        :raise SignatureUnknown: none of the keys has.
        :raise TokenRejected: it cannot be verified with other keys either.
        """
        if not token.well_formed:
            raise TokenRejected(f"{MALFORMED}: its header is not a JSON object with texts alg and kid")
        if token.algorithm not in algorithms:
            expected = " ".join(f'"{each}"' for each in algorithms)
            raise TokenRejected(
                "oidc: verify token: oidc: id token signed with unsupported algorithm, "
                f'expected [{expected}] got "{token.algorithm[:20]}"',
                PROVIDER,
            )
        for key in self._keys:
            if key.fits(token):
                payload = _payload(token, key)
                if payload is not None:
                    return VerifiedToken(_claims(payload), key.thumbprint)
        raise SignatureUnknown


def key_set_of(keys: Iterable[RSAPublicKey | EllipticCurvePublicKey]) -> KeySet:
    """Return these keys, with the IDs that kube-apiserver gives to its own.

    :raise ValueError: one of them is too short, or of an unknown curve.
    """
    return KeySet(tuple(map(_named, keys)))


def _named(public: RSAPublicKey | EllipticCurvePublicKey) -> _Key:
    if isinstance(public, RSAPublicKey):
        if public.key_size < _SHORTEST_RSA:
            raise ValueError(f"has an RSA key of {public.key_size} bits, and {_SHORTEST_RSA} are required")
        kind = "RSA"
    elif public.curve.name in _CURVES:
        kind = "EC"
    else:
        raise ValueError(f"has a key on the curve {public.curve.name}, which is not supported")
    digest = hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    name = urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return _Key(name, kind, "", public, digest.hexdigest()[:THUMBPRINT])


def read_key_set(value: Any) -> KeySet:
    """Return the keys of a JWKS; those that cannot sign tokens are omitted.

    :raise ValueError: it is not a JWKS, or has no such key.
    """
    entries = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it has no keys")  # noqa: TRY004 - the type of a part of it
    keys = [key for entry in entries[:KEYS_LIMIT] if (key := _read(entry)) is not None]
    if not keys:
        raise ValueError("it has no key for signatures (RSA of 2048 bits or more, P-256, P-384 or P-521)")
    return KeySet(tuple(keys))


def _read(entry: Any) -> _Key | None:
    if not isinstance(entry, Mapping) or entry.get("use", "sig") != "sig":
        return None
    name, kind, algorithm = entry.get("kid", ""), entry.get("kty"), entry.get("alg", "")
    if not isinstance(name, str) or kind not in tuple(_KINDS) or algorithm not in ("", *ALGORITHMS):
        return None
    try:
        public = PyJWK({field: entry[field] for field in _FIELDS if field in entry}).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < _SHORTEST_RSA:
        return None
    public_bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    thumbprint = hashlib.sha256(public_bytes).hexdigest()[:THUMBPRINT]
    return _Key(name, kind, algorithm, public, thumbprint)


def _payload(token: ReceivedToken, key: _Key) -> bytes | None:
    """Return the payload; None: another key has signed it.

    :raise TokenRejected: the token is malformed, whichever key has signed it.
    """
    try:
        found = _JWS.decode_complete(token.text, key.public, [token.algorithm])
    except DecodeError as e:
        if isinstance(e, InvalidSignatureError):
            return None
        raise TokenRejected(f"{MALFORMED}: {e}") from None
    except (PyJWTError, TypeError):
        return None  # a key of another curve, or a header with an extension
    payload: bytes = found["payload"]
    return payload


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = parsed_json(payload)
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise TokenRejected("oidc: verify token: oidc: failed to unmarshal claims: not a JSON object")
    return claims
