"""Tokens of login sessions: signed by the client's own key, valid for minutes.

A token is a JWT (RFC 7519) after a prefix that scanners for leaked secrets can detect.  Its ``kid`` is the ID
of the session, and its claims are the times, and the only cluster that it is for.  The proxy has the public
key in the session's record.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWS
from jwt.exceptions import PyJWTError

#: Prefix of all bearer tokens that are for Tower.
BEARER_PREFIX = "towerk-"

#: Longest lifetime of a token that is accepted, s; clients use less.
LONGEST = 600.0

#: Lifetime of the tokens that clients make, s.
LIFETIME = 300.0

#: Tolerance for clocks, s.
LEEWAY = 60.0

#: Longest token that is read, B.
TOKEN_LIMIT = 1024

_ALGORITHM = "EdDSA"
_TYPE = "tower-session+jwt"
_KEY_SIZE = 32

_JWS = PyJWS(algorithms=[_ALGORITHM])
_PREFIX = BEARER_PREFIX.encode()


class BadSessionToken(ValueError):
    """A token is malformed, or another key has signed it."""


@frozen
class SessionTokenClaims:
    """Contents of a token.

    :ivar issued: s since the epoch, as *expires*.
    :ivar cluster: the only one that it is for; empty: all of the session.
    """

    issued: float
    expires: float
    cluster: str = ""


def new_token(
    session_id: str, key: Ed25519PrivateKey, now: float, lifetime: float = LIFETIME, cluster: str = ""
) -> str:
    """Return a token of the session whose private key is *key*; times are in s since the epoch.

    :param cluster: the only one that it is for; empty: all of the session.
    """
    claims = {"iat": int(now), "exp": int(now + lifetime), **({"cluster": cluster} if cluster else {})}
    token = _JWS.encode(json.dumps(claims).encode(), key, _ALGORITHM, {"kid": session_id, "typ": _TYPE})
    return BEARER_PREFIX + token


def is_session_token(bearer: bytes) -> bool:
    """Return whether *bearer* has the form of such a token."""
    return bearer.startswith(_PREFIX) and bearer.count(b".") == 2 and len(bearer) <= TOKEN_LIMIT


def session_of(bearer: bytes) -> str:
    """Return the ID of the session in a token, which is not verified.

    :raise BadSessionToken: it is malformed.
    """
    try:
        header = _JWS.get_unverified_header(bearer.removeprefix(_PREFIX))
    except PyJWTError:
        raise BadSessionToken("it is malformed") from None
    found = header.get("kid")
    if header.get("typ") != _TYPE or header.get("alg") != _ALGORITHM or not isinstance(found, str):
        raise BadSessionToken("it is malformed")
    return found


def verified_claims(bearer: bytes, key: str) -> SessionTokenClaims:
    """Return the contents of a token that the private key of the public *key* has signed.

    :raise BadSessionToken: it is malformed, or another key has signed it.
    """
    try:
        public = Ed25519PublicKey.from_public_bytes(_raw(key))
        payload = _JWS.decode(bearer.removeprefix(_PREFIX), public, [_ALGORITHM])
    except (PyJWTError, TypeError):
        raise BadSessionToken("another key has signed it") from None
    return _decoded(payload)


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public key of *key* as in a session's record."""
    return b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def check_public_text(text: object) -> str:
    """Return *text*, if it is a public key of `public_text`.

    :raise ValueError: it is not; with the cure.
    """
    if not isinstance(text, str) or len(text) > 2 * _KEY_SIZE:
        raise ValueError("must be an Ed25519 public key, 32 bytes in base64")
    _raw(text)
    return text


def _raw(text: str) -> bytes:
    try:
        raw = b64decode(text, validate=True)
    except ValueError:
        raw = b""
    if len(raw) != _KEY_SIZE:
        raise ValueError("must be an Ed25519 public key, 32 bytes in base64")
    return raw


def _decoded(payload: bytes) -> SessionTokenClaims:
    try:
        claims = json.loads(payload)
        issued, expires, cluster = claims["iat"], claims["exp"], claims.get("cluster", "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadSessionToken("it is malformed") from None
    if not isinstance(cluster, str):
        raise BadSessionToken("its cluster is malformed")
    if type(issued) is not int or type(expires) is not int or abs(issued) + abs(expires) > 1 << 50:
        raise BadSessionToken("its times are malformed")
    return SessionTokenClaims(float(issued), float(expires), cluster)
