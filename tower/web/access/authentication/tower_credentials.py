"""Authentication of users with credentials that Tower issued.

A client presents a certificate (known by its digest) or a bearer token.  A connection caches the `Identity`;
`CredentialAuthenticator.check`, a look-up in a dictionary, runs before each request, so that expiry and
revocation also apply to kept-alive connections and resumed TLS sessions.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import PREFIX, Credential, Credentials
from tower.errors import Unauthorized
from tower.web.access.authentication.identity import TOKEN_LIMIT, Identity
from tower.web.access.authentication.presented import Presented

_CERTIFICATE, _BEARER = "client certificate", "bearer token"

# As kube-apiserver.
_INVALID = "invalid bearer token"

_PREFIX = PREFIX.encode()


class CredentialAuthenticator:
    """Authenticates users by the credentials that Tower issued; *clock* counts from the epoch."""

    method = "tower"

    def __init__(self, credentials: Credentials, clock: IReactorTime) -> None:
        self._credentials = credentials
        self._clock = clock

    def authenticate(self, presented: Presented) -> Identity | None:
        """Return the user of the certificate or, if it is not valid, of the token; None: there is neither.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        refusal: Unauthorized | None = None
        for what, secret in (
            (_CERTIFICATE, presented.certificate),
            (_BEARER, presented.bearer),
        ):
            if secret is None:
                continue
            try:
                return self._known(what, secret)
            except Unauthorized as e:
                refusal = refusal or e
        if refusal is not None:
            raise refusal
        return None

    def check(self, identity: Identity) -> None:
        """Check that *identity*, cached on a connection, is still valid.

        :raise Unauthorized: its credential has expired, or was revoked or removed.
        """
        shown = identity.credential
        assert shown is not None, "another method authenticated the user"
        credential = self._credentials.find(shown.digest)
        if credential is None or not credential.valid(self._clock.seconds()):
            raise self._refusal(credential, shown)

    def _known(self, what: str, secret: bytes) -> Identity:
        if len(secret) > TOKEN_LIMIT:
            raise Unauthorized(
                f"the {what} is longer than any that Tower issues: use an unchanged kubeconfig",
                f"{what} of {len(secret)} B",
                "unknown",
            )
        digest = hashlib.sha256(secret).hexdigest()
        credential = self._credentials.find(digest)
        if credential is None and what == _BEARER and not secret.startswith(_PREFIX):
            raise Unauthorized(
                "Unauthorized: invalid bearer token: no method of authentication accepts it; request another "
                "token, or a kubeconfig",
                _INVALID,
                "unknown",
            )
        if credential is None:
            raise Unauthorized(
                f"the {what} is unknown: it was issued by another Tower, its cluster was removed, "
                "or it expired long ago; request a new kubeconfig",
                _INVALID if what == _BEARER else f"unknown {what}",
                "unknown",
            )
        if not credential.valid(self._clock.seconds()):
            raise self._refusal(credential, credential)
        return Identity(credential.user, credential.groups, credential)

    def _refusal(self, kept: Credential | None, shown: Credential) -> Unauthorized:
        """Return why a credential is not valid, from its current record and the one when it was presented."""
        what, now = _described(shown), self._clock.seconds()
        if kept is not None and kept.revoked:
            text = f"{what} was revoked: request a new kubeconfig"
            return Unauthorized(text, f"{shown.id} was revoked", "revoked")
        if now >= shown.expires:
            end = datetime.fromtimestamp(shown.expires, UTC)
            return Unauthorized(
                f"{what} expired at {end:%Y-%m-%dT%H:%M:%SZ}: request a new kubeconfig",
                f"{shown.id} expired",
                "expired",
            )
        if kept is None:
            return Unauthorized(
                f"{what} was removed, or its cluster was: request a new kubeconfig",
                f"{shown.id} was removed",
                "removed",
            )
        return Unauthorized(
            f"{what} was issued in the future: the proxy's clock was set back; request a new kubeconfig",
            f"{shown.id} was issued in the future",
            "not-yet-valid",
        )


def _described(credential: Credential) -> str:
    scope = f"cluster {credential.cluster}" if credential.cluster else "Tower's own API"
    return f"the credential of {credential.user} for {scope}"
