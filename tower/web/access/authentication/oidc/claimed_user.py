"""The user that verified claims make: kube-apiserver's rules, order and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

from tower.kube.access.go_texts import mismatch, quoted
from tower.web.access.authentication.identity import Extra, UserInfo
from tower.web.access.authentication.oidc.expression_values import ExpressionError
from tower.web.access.authentication.oidc.expressions import Expression
from tower.web.access.authentication.oidc.issuer import ClaimSource, IssuerSettings, Source, ValidationRule
from tower.web.access.authentication.oidc.tokens import PROVIDER, TokenRejected
from tower.web.access.authentication.reserved_names import check_foreign

_Claims: TypeAlias = Mapping[str, Any]

#: Longest UID or additional fact, characters.
VALUE_LIMIT = 512

#: Extra with the ID of the token.
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"

_ASK = "ask an administrator for access"


def user_of(issuer: IssuerSettings, claims: _Claims) -> UserInfo:
    """Return the user with these claims, which were checked before.

    :raise TokenRejected: a claim is missing or malformed, a rule is not met, or a name is reserved.
    """
    _check_distributed(issuer, claims)
    name = _username(issuer.username, claims)
    groups = () if issuer.groups is None else _groups(issuer.groups, claims)
    uid = "" if issuer.uid is None else _text_of(issuer.uid, claims, "uid")
    extra = _extra(issuer, claims)
    for claim, value in issuer.required:
        _check_required(claims, claim, value)
    for rule in issuer.claim_rules:
        _check_rule(rule, "claims", claims, "claim validation expression")
    return _checked(issuer, UserInfo(name, groups, uid, extra))


def refreshed_user(issuer: IssuerSettings, before: UserInfo, claims: _Claims) -> UserInfo:
    """Return a user with the parts that *claims* have again, such as those of a userinfo endpoint.

    A missing claim changes nothing, and expressions about claims are not evaluated: they may use claims that
    only ID tokens have.

    :raise TokenRejected: a claim is malformed, a rule is not met, or a name is reserved.
    """

    def has(source: Source | None) -> TypeGuard[ClaimSource]:
        return isinstance(source, ClaimSource) and source.name in claims

    name = _username(issuer.username, claims) if has(issuer.username) else before.name
    groups = _groups(issuer.groups, claims) if has(issuer.groups) else before.groups
    uid = _text_of(issuer.uid, claims, "uid") if has(issuer.uid) else before.uid
    for claim, value in issuer.required:
        if claim in claims:
            _check_required(claims, claim, value)
    return _checked(issuer, UserInfo(name, groups, uid, before.extra))


def _username(source: Source, claims: _Claims) -> str:
    if not isinstance(source, ClaimSource):
        value = _evaluated(source, claims, "username claim expression")
        if not isinstance(value, str):
            raise _by_expression("username", "username claim expression must return a string")
        if not value:
            raise TokenRejected("oidc: empty username via CEL expression is not allowed", PROVIDER)
        return value
    where = f"oidc: parse username claims {quoted(source.name)}: "
    name = _string(claims, source.name, where)
    if source.name == "email" and "email_verified" in claims:
        verified = claims["email_verified"]
        if not isinstance(verified, bool):
            text = f"oidc: parse 'email_verified' claim: {mismatch(verified, 'value of type bool')}"
            raise TokenRejected(text, PROVIDER)
        if not verified:
            raise TokenRejected("oidc: email not verified", "verify the address at the provider")
    if not name:
        raise TokenRejected(f"{where}the claim is empty", PROVIDER)
    return source.prefix + name


def _groups(source: Source, claims: _Claims) -> tuple[str, ...]:
    if not isinstance(source, ClaimSource):
        value = _evaluated(source, claims, "group claim expression")
        return _texts(value, "group claim expression")
    if source.name not in claims:
        return ()
    value = claims[source.name]
    if isinstance(value, str):
        value = [value]
    elif value is None:
        value = []
    elif not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        text = f"oidc: parse groups claim {quoted(source.name)}: {mismatch(value, 'value of type string')}"
        raise TokenRejected(text, PROVIDER)
    return tuple(dict.fromkeys(source.prefix + each for each in value if each))


def _text_of(source: Source, claims: _Claims, what: str) -> str:
    if isinstance(source, ClaimSource):
        return _string(claims, source.name, f"oidc: parse {what} claim {quoted(source.name)}: ")
    value = _evaluated(source, claims, f"{what} claim expression")
    if not isinstance(value, str):
        raise _by_expression(what, f"{what} claim expression must return a string")
    return value


def _extra(issuer: IssuerSettings, claims: _Claims) -> Extra:
    found: dict[str, tuple[str, ...]] = {}
    token_id = claims.get("jti")
    if isinstance(token_id, str) and 0 < len(token_id) <= VALUE_LIMIT and _is_plain(token_id):
        found[CREDENTIAL_ID] = (f"JTI={token_id}",)
    for key, expression in issuer.extra:
        values = _texts(_evaluated(expression, claims, "extra claim expression"), "extra claim expression")
        if values:
            found[key] = values
    return tuple(found.items())


def _check_required(claims: _Claims, claim: str, wanted: str) -> None:
    if claim not in claims:
        text = f"oidc: required claim {claim} not present in ID token"
        raise TokenRejected(text, PROVIDER)
    value = _string(claims, claim, f"oidc: parse claim {claim}: ")
    if value != wanted:
        raise TokenRejected(
            f"oidc: required claim {claim} value does not match. Got = {value[:200]}, want = {wanted}",
            _ASK,
        )


def _check_rule(rule: ValidationRule, variable: str, value: _Claims, what: str) -> None:
    try:
        met = rule.expression.evaluate(variable, value)
    except ExpressionError as e:
        raise TokenRejected(f"oidc: error evaluating {what}: {e}", PROVIDER) from None
    if not isinstance(met, bool):
        problem = "validation expression must return a boolean"
    elif not met:
        problem = f"validation expression '{rule.expression.text}' failed: {rule.message}"
    else:
        return
    raise TokenRejected(f"oidc: error evaluating {what}: {problem}", _ASK)


def _check_distributed(issuer: IssuerSettings, claims: _Claims) -> None:
    """Reject groups that the provider keeps elsewhere: Tower does not get them from there."""
    names, source = claims.get("_claim_names"), issuer.groups
    if not isinstance(source, ClaimSource) or source.name in claims or not isinstance(names, dict):
        return
    if source.name in names:
        raise TokenRejected(
            f"oidc: could not expand distributed claims: the claim {quoted(source.name)} is not in the "
            "token, and Tower does not get it from another address",
            "let the provider put the groups into the token, such as only those of the application",
        )


def _checked(issuer: IssuerSettings, user: UserInfo) -> UserInfo:
    """Return the user, who meets the rules, with names that fit header fields and are not reserved."""
    if issuer.user_rules:
        shown = {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
        }
        for rule in issuer.user_rules:
            _check_rule(rule, "user", shown, "user info validation rule")
    values = [user.uid, *(value for _, each in user.extra for value in each)]
    if not all(len(value) <= VALUE_LIMIT and _is_plain(value) for value in values):
        raise TokenRejected("oidc: the uid or an extra value is not a short printable text", PROVIDER)
    try:
        return UserInfo(user.name, check_foreign(user.name, user.groups), user.uid, user.extra)
    except ValueError as e:
        raise TokenRejected(
            f"oidc: {e}", "change it at the provider, or configure a prefix (--oidc-groups-prefix)"
        ) from None


def _is_plain(text: str) -> bool:
    return text.isprintable() and text == text.strip()


def _evaluated(source: Expression, claims: _Claims, what: str) -> Any:
    try:
        return source.evaluate("claims", claims)
    except ExpressionError as e:
        raise TokenRejected(f"oidc: error evaluating {what}: {e}", PROVIDER) from None


def _texts(value: Any, what: str) -> tuple[str, ...]:
    """Return the texts of an expression's value, without empty ones."""
    values = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        text = f"oidc: error evaluating {what}: expression must return a string or a list of strings"
        raise TokenRejected(text, PROVIDER)
    return tuple(dict.fromkeys(each for each in values if each))


def _by_expression(what: str, problem: str) -> TokenRejected:
    return TokenRejected(f"oidc: error evaluating {what} claim expression: {problem}", PROVIDER)


def _string(claims: _Claims, name: str, where: str) -> str:
    """Return a claim that is a text; null is an empty one, as in Go."""
    if name not in claims:
        raise TokenRejected(f"{where}claim not present", PROVIDER)
    value = claims[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TokenRejected(f"{where}{mismatch(value, 'value of type string')}", PROVIDER)
    return value
