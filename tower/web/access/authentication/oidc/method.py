"""Authentication of users by the ID tokens of OpenID Connect providers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.oidc.claimed_user import user_of
from tower.web.access.authentication.oidc.claims import audiences_of, check_claims_of
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.access.authentication.oidc.key_set import THUMBPRINT, KeySet
from tower.web.access.authentication.oidc.provider import Documents, OIDCProvider
from tower.web.access.authentication.oidc.tokens import (
    LOG_IN,
    KeysUnknown,
    ReceivedToken,
    SignatureUnknown,
    TokenRejected,
    received_token,
)
from tower.web.access.authentication.presented import Presented

#: Most tokens that are remembered, and the longest time, s: a signature is not verified again meanwhile.
REMEMBERED_LIMIT = 2048
REMEMBERED_TIME = 300.0

# An identity's key begins with `OIDCProvider.fingerprint` and the thumbprint of the issuer's key.
_FINGERPRINT = 16
_PREFIX = _FINGERPRINT + 1 + THUMBPRINT

_OWN_PREFIX = PREFIX.encode()


def settings_of(identity: Identity) -> str:
    """Return `OIDCProvider.fingerprint` of the issuer that authenticated a user of this method."""
    return identity.key[:_FINGERPRINT]


class OIDCMethod(MultiService):
    """The method ``oidc``: a service that keeps the keys of its issuers.

    :param clock: of timers; *epoch* returns Unix time, s.
    :ivar login_clients: client IDs by issuer whose ID tokens can only begin login sessions.
    :ivar on_change: called after an issuer's keys have changed: users of a removed key lose their access.
    """

    method = "oidc"

    def __init__(
        self,
        issuers: Iterable[IssuerSettings],
        clock: IReactorTime,
        epoch: Callable[[], float],
        documents: Documents,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._epoch = epoch
        self._documents = documents
        self._providers: dict[str, OIDCProvider] = {}  # by issuer
        self.login_clients: Mapping[str, str] = {}
        self._fingerprints: frozenset[str] = frozenset()
        self._keys_in_use: frozenset[str] = frozenset()  # `_PREFIX` characters each
        self.on_change: Callable[[], object] = lambda: None
        self._known: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()
        self.use(issuers)

    def use(self, issuers: Iterable[IssuerSettings]) -> None:
        """Replace all issuers; the same ones keep their users, and those of the same source their keys.

        With the keys, the discovery document stays: `SessionRequests` decides by it.
        """
        kept = {each.issuer: each for each in self._providers.values()}
        sources = {each.issuer.key_source: each for each in self._providers.values()}
        self._providers = {}
        for issuer in issuers:
            provider = kept.pop(issuer, None)
            if provider is None:
                provider = self._new_provider(issuer, sources.get(issuer.key_source))
            self._providers[issuer.url] = provider
        for each in kept.values():
            each.disownServiceParent()  # type: ignore[no-untyped-call]
            self._forget(each.fingerprint)
        self._fingerprints = frozenset(each.fingerprint for each in self._providers.values())
        self._note_keys()

    @property
    def providers(self) -> list[OIDCProvider]:
        """The providers of all issuers."""
        return list(self._providers.values())

    @property
    def issuers(self) -> list[IssuerSettings]:
        """The issuers that are configured."""
        return [each.issuer for each in self._providers.values()]

    def provider(self, url: str) -> OIDCProvider | None:
        """Return the provider of the issuer *url*, if it is configured."""
        return self._providers.get(url)

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity | None] | None:
        """Return the user of an ID token; None: there is none of these issuers.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        bearer = presented.bearer
        if bearer is None or bearer.startswith(_OWN_PREFIX):
            return None
        now = self._epoch()
        digest = hashlib.sha256(bearer).digest()
        known = self._known.get(digest)
        if known is not None and now < known[1]:
            self._known.move_to_end(digest)
            return known[0]
        token = received_token(bearer)
        provider = None if token is None else self._providers.get(token.issuer)
        if token is None or provider is None:
            return None
        if provider.keys is None:
            cause = f" ({provider.problem})" if provider.problem else ""
            raise KeysUnknown(cause)
        try:
            return self._identity(provider, provider.keys, token, digest)
        except SignatureUnknown:
            return Deferred.fromCoroutine(self._with_newer_keys(provider, token, digest))

    def reads(self, bearer: bytes) -> bool:
        """Return whether a token names one of the issuers; it is not verified."""
        try:
            token = received_token(bearer)
        except TokenRejected:
            return False
        return token is not None and token.issuer in self._providers

    def check(self, identity: Identity) -> None:
        """Check that *identity*, cached on a connection, is still valid.

        :raise Unauthorized: the token has expired, or its issuer, or the key of its signature, was removed.
        """
        if identity.key[:_PREFIX] not in self._keys_in_use:
            raise self._removed(identity)
        if self._epoch() >= identity.expires:
            raise TokenRejected("oidc: verify token: oidc: token is expired", LOG_IN, "expired")

    def _new_provider(self, issuer: IssuerSettings, former: OIDCProvider | None) -> OIDCProvider:
        changed = partial(self._keys_changed, issuer.fingerprint)
        provider = OIDCProvider(issuer, self._clock, self._documents(issuer), changed)
        if former is not None:
            provider.keys, provider.document = former.keys, former.document
        provider.setServiceParent(self)  # type: ignore[no-untyped-call]
        return provider

    async def _with_newer_keys(self, provider: OIDCProvider, token: ReceivedToken, digest: bytes) -> Identity:
        before = provider.keys
        await provider.newer_keys()
        keys = provider.keys
        if keys is None or keys is before or provider.fingerprint not in self._fingerprints:
            cause = f" (fetching keys: {provider.problem})" if provider.problem else ""
            raise SignatureUnknown(cause)
        return self._identity(provider, keys, token, digest)

    def _identity(
        self, provider: OIDCProvider, keys: KeySet, token: ReceivedToken, digest: bytes
    ) -> Identity:
        issuer, now = provider.issuer, self._epoch()
        claims, thumbprint = keys.verified(token, issuer.algorithms)
        expires = check_claims_of(issuer, claims, now)
        user = user_of(issuer, claims)
        identity = Identity(
            user.name,
            user.groups,
            uid=user.uid,
            extra=user.extra,
            method=self.method,
            key=f"{provider.fingerprint}:{thumbprint}:{digest.hex()}",
            expires=expires,
            begins_sessions=self.login_clients.get(issuer.url, "") in audiences_of(claims),
        )
        self._known[digest] = (identity, min(expires, now + REMEMBERED_TIME))
        self._known.move_to_end(digest)
        if len(self._known) > REMEMBERED_LIMIT:
            self._known.popitem(last=False)
        return identity

    def _removed(self, identity: Identity) -> Unauthorized:
        what = "OIDC issuer"
        if identity.key[:_FINGERPRINT] in self._fingerprints:
            what = "OIDC issuer's key"
        text = f"the {what} of {identity.user} was changed or removed"
        return Unauthorized(f"Unauthorized: {text}: {LOG_IN}", text, "removed")

    def _keys_changed(self, fingerprint: str) -> None:
        self._forget(fingerprint)
        self._note_keys()
        self.on_change()

    def _note_keys(self) -> None:
        self._keys_in_use = frozenset(
            f"{each.fingerprint}:{thumbprint}"
            for each in self._providers.values()
            if each.keys is not None
            for thumbprint in each.keys.thumbprints
        )

    def _forget(self, fingerprint: str) -> None:
        """Verify all tokens of an issuer again."""
        for digest, (identity, _) in list(self._known.items()):
            if identity.key.startswith(fingerprint):
                del self._known[digest]
