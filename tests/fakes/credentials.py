"""Users with credentials and certificates that were issued."""

from __future__ import annotations

import hashlib
from typing import cast

from attrs import evolve
from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import Credential, Credentials
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.tower_credentials import CredentialAuthenticator
from tower.web.access.authentication.union import AuthenticatorUnion


def issue(
    user: str = "jane",
    *,
    cluster: str = "alpha",
    uid: str = "u-1",
    groups: tuple[str, ...] = ("dev", "qa"),
    expires: float = 100.0,
    revoked: bool = False,
) -> Credential:
    """Return a credential record."""
    return Credential(
        id=f"c-{user}",
        cluster=cluster,
        cluster_uid=uid,
        user=user,
        groups=groups,
        kind="token",
        digest="",
        issued=0.0,
        expires=expires,
        revoked_at=0.0 if revoked else None,
    )


def authenticator(credentials: Credentials, clock: IReactorTime) -> AuthenticatorUnion:
    """Return the authentication of a proxy without other methods."""
    return AuthenticatorUnion(CredentialAuthenticator(credentials, clock))


def authenticated(
    methods: AuthenticatorUnion, certificate: bytes | None, bearer: bytes | None = None
) -> Identity:
    """Return the user with these credentials, without waiting."""
    found = methods.authenticate(Presented(certificate, bearer))
    assert isinstance(found, Identity)
    return found


class Issues:
    """All credentials."""

    def __init__(self) -> None:
        self.all: dict[str, Credential] = {}

    def put(self, secret: bytes, credential: Credential) -> None:
        """Issue a credential, or change it."""
        digest = hashlib.sha256(secret).hexdigest()
        self.all[digest] = evolve(credential, digest=digest)

    def find(self, digest: str) -> Credential | None:
        """Return the credential with this digest."""
        return self.all.get(digest)

    def authenticator(self, clock: IReactorTime) -> AuthenticatorUnion:
        """Return an authenticator of these credentials."""
        return authenticator(cast(Credentials, self), clock)
