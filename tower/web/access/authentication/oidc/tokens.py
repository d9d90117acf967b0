"""ID tokens in compact form, before their signature is verified, and the texts of their rejections."""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from typing import Any

import attrs

from tower.errors import Unauthorized
from tower.escaping import escaped

#: Longest token, B: a provider may put 200 groups into it.
TOKEN_LIMIT = 16 * 1024

#: Google's issuer, and how it is also written in the claim.
_GOOGLE, _GOOGLE_SHORT = "https://accounts.google.com", "accounts.google.com"

#: Cures.
LOG_IN = "log in again"
PROVIDER = "correct the provider's configuration of this client, or Tower's of this issuer"

#: Text of tokens that have not the form of one.
MALFORMED = "oidc: verify token: oidc: malformed jwt"

# Every JSON object begins so in base64url.
_OBJECT = b"eyJ"

_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class TokenRejected(Unauthorized):
    """A token of a known issuer is not accepted.

    :param text: as kube-apiserver logs it; without the token.
    :param cure: for the user.
    """

    def __init__(self, text: str, cure: str = LOG_IN, kind: str = "other") -> None:
        shown = escaped(text)
        super().__init__(f"Unauthorized: {shown}: {cure}", shown, kind)


class KeysUnknown(TokenRejected):
    """The keys of the token's issuer are not known yet.

    :param cause: why, with a blank before it.
    """

    def __init__(self, cause: str = "") -> None:
        super().__init__(f"oidc: authenticator not initialized{cause}", "retry in some seconds")


class SignatureUnknown(TokenRejected):
    """No known key has made the signature; the provider may have newer keys.

    :param cause: why there are none, with a blank before it.
    """

    def __init__(self, cause: str = "") -> None:
        super().__init__(
            f"oidc: verify token: failed to verify signature: failed to verify id token signature{cause}"
        )


@attrs.frozen
class ReceivedToken:
    """A token whose signature is not verified yet.

    :ivar issuer: the claim ``iss``, to find the issuer's keys.
    :ivar well_formed: whether the header is.
    """

    text: bytes = attrs.field(repr=False)
    issuer: str
    algorithm: str
    key_id: str
    well_formed: bool = True


def received_token(bearer: bytes) -> ReceivedToken | None:
    """Return a token; None: it has not the form of one.

    :raise TokenRejected: it is too long.
    """
    if len(bearer) > TOKEN_LIMIT:
        if bearer.startswith(_OBJECT) and bearer.count(b".") == 2:
            raise TokenRejected(
                f"oidc: the token has {len(bearer)} B, and {TOKEN_LIMIT} B are the limit",
                "let the provider put fewer claims into it",
            )
        return None
    parts = bearer.split(b".")
    if len(parts) != 3:
        return None
    claims = _object(parts[1]) or {}
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        return None
    header = _object(parts[0])
    algorithm, key_id = ("", "") if header is None else (header.get("alg", ""), header.get("kid", ""))
    well_formed = header is not None and isinstance(algorithm, str) and isinstance(key_id, str)
    known = _GOOGLE if issuer == _GOOGLE_SHORT else issuer
    return ReceivedToken(bearer, known, str(algorithm), str(key_id), well_formed=well_formed)


def is_same_issuer(expected: str, claimed: str) -> bool:
    """Return whether a verified claim ``iss`` names the issuer."""
    return claimed == expected or (expected, claimed) == (_GOOGLE, _GOOGLE_SHORT)


def parsed_json(text: bytes) -> Any:
    """Return the JSON value of *text*.

    :raise ValueError: it has none, or one with NaN or Infinity.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _object(part: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a part of a token."""
    if not _ALPHABET.issuperset(part):
        return None
    try:
        value = parsed_json(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return None
    return value if isinstance(value, dict) else None
