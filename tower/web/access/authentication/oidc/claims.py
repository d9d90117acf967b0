"""The checks of verified claims: issuer, audience and lifetime, with kube-apiserver's order and texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tower.kube.access.go_texts import mismatch, quoted, quoted_list
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.access.authentication.oidc.tokens import LOG_IN, PROVIDER, TokenRejected, is_same_issuer

Claims: TypeAlias = Mapping[str, Any]

#: Tolerance for ``nbf``, s; ``exp`` has none.
LEEWAY = 60.0

# Latest time that can be shown, s since the epoch (the year 9999).
_LATEST = 253402300799.0

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")

# Longest number that is read from a text.
_NUMBER_LIMIT = 40


def check_claims_of(issuer: IssuerSettings, claims: Claims, now: float) -> float:
    """Check issuer, audience and lifetime; return the expiry, s since the epoch.

    :raise TokenRejected: one of them is not right.
    """
    claimed, expiry, begin = claims.get("iss"), _time(claims, "exp"), _time(claims, "nbf")
    audience = _audience(claims.get("aud"))
    _time(claims, "iat")
    if not isinstance(claims.get("sub", ""), str):
        raise _malformed(mismatch(claims["sub"], "struct field idToken.sub of type string"))
    if not isinstance(claimed, str) or not is_same_issuer(issuer.url, claimed):
        raise _rejected(
            f"oidc: id token issued by a different provider, expected {quoted(issuer.url)} "
            f"got {quoted(str(claimed))}",
            PROVIDER,
        )
    if not set(issuer.audiences) & set(audience):
        if len(issuer.audiences) == 1:
            expected = f"expected audience {quoted(issuer.audiences[0])}"
        else:
            expected = f"expected audience in {quoted_list(sorted(issuer.audiences))}"
        raise _rejected(f"oidc: {expected} got {quoted_list(audience)}", "use a token for this client")
    if expiry is None or expiry <= now:
        shown = "0001-01-01 00:00:00 +0000 UTC" if expiry is None else _date(expiry)
        raise _rejected(f"oidc: token is expired (Token Expiry: {shown})", LOG_IN, "expired")
    if begin is not None and now + LEEWAY < begin:
        raise _rejected(
            f"oidc: current time {_date(now)} before the nbf (not before) time: {_date(begin)}",
            "correct the clocks of the provider and of the proxy",
            "not-yet-valid",
        )
    return expiry


def audiences_of(claims: Claims) -> list[Any]:
    """Return the values of the claim ``aud``."""
    value = claims.get("aud")
    return value if isinstance(value, list) else [value]


def _audience(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _malformed(mismatch(value, "struct field idToken.aud of type []string"))
    for each in value:
        if not isinstance(each, str):
            raise _malformed(mismatch(each, "struct field idToken.aud of type string"))
    return value


def _time(claims: Claims, name: str) -> float | None:
    """Return a claim with a time, as Go's ``json.Number`` reads it; None: it is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        if len(value) > _NUMBER_LIMIT or not _NUMBER.fullmatch(value):
            literal = quoted(quoted(value))
            raise _malformed(f"json: invalid number literal, trying to unmarshal {literal} into Number")
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _malformed(mismatch(value, f"struct field idToken.{name} of type json.Number"))
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise _malformed(f"{name} is out of range")
    return float(int(seconds))


def _rejected(text: str, cure: str, kind: str = "other") -> TokenRejected:
    return TokenRejected(f"oidc: verify token: {text}", cure, kind)


def _malformed(problem: str) -> TokenRejected:
    return _rejected(f"oidc: failed to unmarshal claims: {problem}", PROVIDER)


def _date(seconds: float) -> str:
    if not -_LATEST / 10 < seconds <= _LATEST:
        return f"{seconds:.0f}"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
