"""Authentication of service accounts of a Kubernetes cluster, by tokens that its API server has signed.

Claims, order and texts are those of kube-apiserver.  Tower does not see the cluster's objects, so a token
counts until it expires, and tokens that never do are rejected.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from twisted.internet.defer import Deferred

from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.kube.access.go_texts import mismatch, quoted_list
from tower.kube.access.service_accounts import are_names, groups_of_namespace, user_of_account
from tower.web.access.authentication.account_keys import AccountKeys
from tower.web.access.authentication.identity import FOREIGN_TOKEN_LIMIT, Extra, Identity
from tower.web.access.authentication.oidc.claimed_user import CREDENTIAL_ID, VALUE_LIMIT
from tower.web.access.authentication.oidc.issuer import ALGORITHMS
from tower.web.access.authentication.oidc.key_set import THUMBPRINT
from tower.web.access.authentication.oidc.tokens import (
    ReceivedToken,
    SignatureUnknown,
    TokenRejected,
    received_token,
)
from tower.web.access.authentication.presented import Presented

#: Issuer of tokens in Secrets, which never expire.
LEGACY = "kubernetes/serviceaccount"

#: Tolerance for all times, s.
LEEWAY = 60.0

#: Most tokens that are remembered, and the longest time, s.
REMEMBERED_LIMIT = 2048
REMEMBERED_TIME = 300.0

_OWN_PREFIX = PREFIX.encode()
_NEW = "request a new token (kubectl create token)"
_CLOCKS = "correct the clocks of the cluster and of the proxy"
_CLUSTER = "use a token of the cluster that Tower is configured for"
_NO_SIGNATURE = "go-jose/go-jose: error in cryptographic primitive"
_NO_DATE = "go-jose/go-jose/jwt: expected number value to unmarshal NumericDate"
_NO_AUDIENCE = "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience"
_EXTRA = "authentication.kubernetes.io"


class ServiceAccountAuthenticator:
    """Authenticates service accounts by tokens of *issuers* for one of *audiences*.

    :param seconds: returns the time, s since the epoch.
    """

    method = "service-account"

    def __init__(
        self,
        issuers: Sequence[str],
        audiences: Sequence[str],
        keys: AccountKeys,
        seconds: Callable[[], float],
    ) -> None:
        self._issuers, self._audiences = frozenset(issuers), tuple(audiences)
        self._keys, self._seconds = keys, seconds
        self._known: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity | None] | None:
        """Return the service account of a token; None: there is no token of these issuers.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        bearer = presented.bearer
        if bearer is None or len(bearer) > FOREIGN_TOKEN_LIMIT or bearer.startswith(_OWN_PREFIX):
            return None
        digest = hashlib.sha256(bearer).digest()
        known = self._known.get(digest)
        if known is not None and self._seconds() < known[1] and self._keys.has(_thumbprint(known[0])):
            self._known.move_to_end(digest)
            return known[0]
        token = received_token(bearer)
        if token is None or not token.well_formed:
            return None
        if token.issuer == LEGACY:
            raise TokenRejected(
                "tokens of service accounts in Secrets never expire and are not accepted", _NEW
            )
        if token.issuer not in self._issuers:
            return None
        try:
            return self._verified(token, digest)
        except SignatureUnknown as e:
            newer = self._keys.newer(token.issuer)
            if newer is None:
                raise TokenRejected(e.reason, _CLUSTER) from None
            return Deferred.fromCoroutine(self._with_newer_keys(newer, token, digest))

    def reads(self, bearer: bytes) -> bool:
        """Return whether one of the keys has signed a token of these issuers; it may have expired."""
        try:
            token = received_token(bearer)
            if token is None or token.issuer not in self._issuers:
                return False
            keys = self._keys.of(token.issuer)
            if keys is None or (token.key_id and not keys.has(token.key_id)):
                return False
            keys.verified(token, ALGORITHMS)
        except TokenRejected:
            return False
        return True

    def check(self, identity: Identity) -> None:
        """Check that *identity* of this method, cached on a connection, is still valid.

        :raise Unauthorized: its token has expired, or the key that has signed it was removed.
        """
        if self._seconds() >= identity.expires:
            raise TokenRejected("service account token has expired", _NEW, "expired")
        if not self._keys.has(_thumbprint(identity)):
            raise Unauthorized(
                f"Unauthorized: the key that has signed the token of {identity.user} was removed: {_NEW}",
                "the key of the service account token was removed",
                "removed",
            )

    async def _with_newer_keys(self, newer: Deferred[None], token: ReceivedToken, digest: bytes) -> Identity:
        await newer
        try:
            return self._verified(token, digest)
        except SignatureUnknown as e:
            problem = self._keys.problem(token.issuer)
            more = f" (fetching keys: {problem})" if problem else ""
            raise TokenRejected(f"{e.reason}{more}", _CLUSTER) from None

    def _verified(self, token: ReceivedToken, digest: bytes) -> Identity:
        """:raise SignatureUnknown: none of the current keys has signed the token."""
        keys = self._keys.of(token.issuer)
        if keys is None or not len(keys) or (token.key_id and not keys.has(token.key_id)):
            raise _NoSignature("invalid signature, no keys found")
        try:
            claims, thumbprint = keys.verified(token, ALGORITHMS)
        except SignatureUnknown:
            raise _NoSignature(_NO_SIGNATURE) from None
        except TokenRejected as e:
            raise TokenRejected(_NO_SIGNATURE, _NEW) from e
        identity = self._identity(claims, f"{thumbprint}:{digest.hex()}")
        self._known[digest] = (identity, min(identity.expires, self._seconds() + REMEMBERED_TIME))
        self._known.move_to_end(digest)
        if len(self._known) > REMEMBERED_LIMIT:
            self._known.popitem(last=False)
        return identity

    def _identity(self, claims: Mapping[str, Any], key: str) -> Identity:
        issuer, subject, token_id = (_text(claims, name) for name in ("iss", "sub", "jti"))
        audiences = _audiences(claims)
        expiry, begin, issued = (_date(claims, name) for name in ("exp", "nbf", "iat"))
        private = _object(claims, "kubernetes.io", "kubernetes")
        namespace = _text(private, "namespace")
        bound = {name: _object(private, name, "ref") for name in ("serviceaccount", "pod", "secret", "node")}
        names = {kind: (_text(value, "name"), _text(value, "uid")) for kind, value in bound.items()}
        warn = _date(private, "warnafter")
        if issuer not in self._issuers:
            raise TokenRejected(f"token issuer {quoted_list([issuer])[1:-1]} is invalid", _CLUSTER)
        found = audiences or self._audiences
        if not set(found) & set(self._audiences):
            raise TokenRejected(
                f"token audiences {quoted_list(found)} is invalid for the target audiences "
                f"{quoted_list(self._audiences)}",
                "request a token with an audience of Tower (kubectl create token --audience)",
            )
        expires = self._expiry(expiry, begin, issued, warn)
        name, uid = names["serviceaccount"]
        user = user_of_account(namespace, name)
        if not are_names(namespace, name) or subject != user or len(uid) > VALUE_LIMIT:
            raise TokenRejected("the token does not name a service account", _NEW)
        extra = _extra(names["pod"], names["node"], token_id)
        return Identity(
            user,
            groups_of_namespace(namespace),
            uid=uid,
            extra=extra,
            method=self.method,
            key=key,
            expires=expires,
        )

    def _expiry(
        self, expiry: float | None, begin: float | None, issued: float | None, warn: float | None
    ) -> float:
        """Return the end of a token's validity, s since the epoch."""
        now = self._seconds()
        if begin is not None and now + LEEWAY < begin:
            raise TokenRejected("service account token is not valid yet", _CLOCKS, "not-yet-valid")
        if expiry is not None and now - LEEWAY > expiry:
            raise TokenRejected("service account token has expired", _NEW, "expired")
        if issued is not None and now + LEEWAY < issued:
            raise TokenRejected("service account token is issued in the future", _CLOCKS, "not-yet-valid")
        if expiry is None:
            raise TokenRejected("the token never expires", _NEW)
        if warn:
            # the cluster would accept the token for a year, but only while its pod exists
            expiry = min(expiry, warn)
            if now - LEEWAY > expiry:
                raise TokenRejected(
                    "service account token has expired",
                    "let the program read its token file again",
                    "expired",
                )
        return expiry + LEEWAY


class _NoSignature(SignatureUnknown):
    """The same, with the text for service accounts."""

    def __init__(self, text: str) -> None:
        TokenRejected.__init__(self, text)


def _thumbprint(identity: Identity) -> str:
    return identity.key[:THUMBPRINT]


def _extra(pod: tuple[str, str], node: tuple[str, str], token_id: str) -> Extra:
    found: list[tuple[str, str]] = []
    if all(pod):
        found += zip((f"{_EXTRA}/pod-name", f"{_EXTRA}/pod-uid"), pod, strict=True)
    if token_id:
        found.append((CREDENTIAL_ID, f"JTI={token_id}"))
    if node[0]:
        found += zip((f"{_EXTRA}/node-name", f"{_EXTRA}/node-uid"), node, strict=True)
    return tuple(
        (key, (value,)) for key, value in found if value and value.isprintable() and len(value) <= VALUE_LIMIT
    )


def _malformed(text: str) -> TokenRejected:
    return TokenRejected(text, _NEW)


def _text(owner: Mapping[str, Any], name: str) -> str:
    value = owner.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _malformed(mismatch(value, "value of type string"))
    return value


def _object(owner: Mapping[str, Any], name: str, kind: str) -> Mapping[str, Any]:
    value = owner.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _malformed(mismatch(value, f"value of type serviceaccount.{kind}"))
    return value


def _audiences(claims: Mapping[str, Any]) -> Sequence[str]:
    value = claims.get("aud", [])
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _malformed(_NO_AUDIENCE)
    return value


def _date(owner: Mapping[str, Any], name: str) -> float | None:
    value = owner.get(name)
    if value is None:
        return None
    try:
        seconds = None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        seconds = None
    if seconds is None or not isfinite(seconds):
        raise _malformed(_NO_DATE)
    return float(int(seconds))
