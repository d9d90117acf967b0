"""Targets in OpenID Connect: tokens, claims, key sets, files of issuers, expressions."""

from __future__ import annotations

import json
import random
from typing import Any

from attrs import evolve

from tests.fakes.id_tokens import CLIENT, GOOD, ISSUER, NOW, id_token, jwk, key_set, rsa_key
from tests.fuzz.engine import Broken, Target
from tower.errors import Unauthorized
from tower.web.access.authentication.oidc.claimed_user import user_of
from tower.web.access.authentication.oidc.claims import check_claims_of
from tower.web.access.authentication.oidc.configuration import read_configuration
from tower.web.access.authentication.oidc.expression_values import ExpressionError
from tower.web.access.authentication.oidc.expressions import parsed_expression
from tower.web.access.authentication.oidc.issuer import ALGORITHMS, ClaimSource
from tower.web.access.authentication.oidc.key_set import read_key_set
from tower.web.access.authentication.oidc.tokens import parsed_json, received_token
from tower.web.access.authentication.reserved_names import check_foreign

_WORDS = (
    b"null",
    b"[",
    b"{",
    b"9" * 4400,
    b"NaN",
    b"1e999",
    b"\\ud800",
    b"\\u0000",
    b"system:masters",
    b"true",
)
_EMAIL = evolve(ISSUER, username=ClaimSource("email"), required=(("hd", "a"),), uid=ClaimSource("oid"))
_CLAIMS: dict[str, Any] = {
    **GOOD,
    "email": "j@a",
    "email_verified": True,
    "hd": "a",
    "oid": "1",
    "groups": ["a"],
}
_EXPRESSIONS = (
    b"claims.?email_verified.orValue(true) == true && has(claims.sub)",
    b"claims.roles.all(r, r.startsWith('a')) ? ['x'] + claims.roles : []",
    b"!('a' in claims.roles) || claims['b'].size() != 7",
)
_FILE = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "jwt": [
        {
            "issuer": {
                "url": "https://a",
                "audiences": ["x"],
                "certificateAuthority": "",
                "discoveryURL": "",
            },
            "claimValidationRules": [{"claim": "hd", "requiredValue": "a"}],
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "extra": [{"key": "a.b/c", "valueExpression": "claims.a"}],
            },
            "userValidationRules": [{"expression": "user.username != 'a'"}],
        }
    ],
}


def check_token(data: bytes, _chance: random.Random) -> None:
    """Only the good token has a user."""
    try:
        token = received_token(data)
        claims = None if token is None else _KEYS.verified(token, ALGORITHMS).claims
    except Unauthorized:
        return
    if claims is not None and claims != GOOD:
        raise Broken(f"a changed token was accepted: {claims}")


def check_claims(data: bytes, _chance: random.Random) -> None:
    """Claims make a user whose names are allowed, or are rejected."""
    try:
        claims = parsed_json(data)
    except ValueError:
        return
    if not isinstance(claims, dict):
        return
    for issuer in (ISSUER, _EMAIL):
        try:
            expiry = check_claims_of(issuer, claims, NOW)
            user = user_of(issuer, claims)
        except Unauthorized as e:
            if not (str(e) + e.reason).isprintable():
                raise Broken(f"not printable: {e!r}") from None
            continue
        check_foreign(user.name, user.groups)
        if expiry <= NOW or CLIENT not in claims["aud"]:
            raise Broken(f"accepted: {claims}")


def check_key_set(data: bytes, _chance: random.Random) -> None:
    """A key set can be used, or is rejected."""
    token = received_token(id_token())
    assert token is not None
    try:
        read_key_set(parsed_json(data)).verified(token, ALGORITHMS)
    except (ValueError, Unauthorized):
        pass


def check_issuers(data: bytes, _chance: random.Random) -> None:
    """A file of issuers can be used, or is rejected in one line."""
    try:
        issuers = read_configuration(data).issuers
    except ValueError as e:
        if "\n" in str(e) and b"\\n" not in data and b"\n" not in data:
            raise Broken(f"several lines: {e}") from None
        return
    for issuer in issuers:
        if not issuer.url.lower().startswith("https://") or not all(issuer.audiences):
            raise Broken(f"accepted: {issuer}")


def check_expression(data: bytes, _chance: random.Random) -> None:
    """An expression has a value, or is rejected."""
    try:
        found = parsed_expression(data.decode("utf-8", "surrogateescape"), "claims")
        found.evaluate("claims", {"sub": "a", "roles": ["a", "b"], "b": "c", "n": 7})
    except ExpressionError:
        pass


_KEYS = read_key_set({"keys": [*key_set("first")["keys"], jwk(rsa_key("second"), None)]})

TARGETS = (
    Target("id-token", (id_token(),), (b".", b"=", b"eyJ", b"e30", b"!", b"a" * 4000), check_token),
    Target("claims", (json.dumps(_CLAIMS).encode(), json.dumps(GOOD).encode()), _WORDS, check_claims),
    Target("key-set", (json.dumps(key_set("first")).encode(),), _WORDS, check_key_set),
    Target("issuers", (json.dumps(_FILE).encode(),), (*_WORDS, b"&a ", b"*a", b"!!", b"\n"), check_issuers),
    Target(
        "expression", _EXPRESSIONS, (b"(" * 100, b"[" * 100, b"!", b"'", b".?", b"orValue("), check_expression
    ),
)
