"""Users with credentials and certificates that were issued."""

from __future__ import annotations

import hashlib
from typing import cast

from attrs import evolve
from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import Credential, Credentials
from tower.web.access.authentication import Authenticator


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

    def authenticator(self, clock: IReactorTime) -> Authenticator:
        """Return an authenticator of these credentials."""
        return Authenticator(cast(Credentials, self), clock)
