"""The settings of one issuer of tokens."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import attrs

from tower.web.access.authentication.oidc.expressions import Expression

#: Signature algorithms that kube-apiserver and Tower know; none of them has a shared secret.
ALGORITHMS = ("ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")

#: The default of ``--oidc-signing-algs``.
DEFAULT_ALGORITHMS = ("RS256",)


@attrs.frozen
class ClaimSource:
    """A claim whose value, after a prefix, is a part of the user."""

    name: str
    prefix: str = ""


#: The source of a part of the user.
Source: TypeAlias = ClaimSource | Expression


@attrs.frozen
class ValidationRule:
    """An expression that must be true; *message* is the reason if it is not."""

    expression: Expression
    message: str = ""


@attrs.frozen
class IssuerSettings:
    """One issuer; equal settings are the same issuer.

    :ivar url: the claim ``iss``, and the issuer in the discovery document.
    :ivar audiences: the claim ``aud`` has one of them.
    :ivar extra: additional facts about the user, by key.
    :ivar required: claims that are texts with exactly these values.
    :ivar claim_rules: about the claims; `user_rules`, about the user that they make.
    :ivar discovery_url: of the discovery document; empty: below `url`.
    :ivar keys_url: of the keys; empty: the discovery document names it.
    :ivar ca_file: CAs of the provider's certificate, read for each request; `authorities` are such CAs in
        PEM.  Both empty: the system's CAs.
    :ivar algorithms: of signatures.
    """

    url: str
    audiences: tuple[str, ...]
    username: Source
    groups: Source | None = None
    uid: Source | None = None
    extra: tuple[tuple[str, Expression], ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[ValidationRule, ...] = ()
    user_rules: tuple[ValidationRule, ...] = ()
    discovery_url: str = ""
    ca_file: str = ""
    authorities: bytes = attrs.field(default=b"", repr=False)
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    keys_url: str = ""

    @property
    def document_url(self) -> str:
        """URL of the discovery document."""
        return self.discovery_url or self.url.removesuffix("/") + "/.well-known/openid-configuration"

    @property
    def key_source(self) -> tuple[str, str, str, bytes]:
        """Equal for settings with the same keys."""
        return self.url, self.keys_url or self.document_url, self.ca_file, self.authorities

    @property
    def fingerprint(self) -> str:
        """A short text that differs for other settings."""
        return hashlib.sha256(repr((self, self.authorities)).encode()).hexdigest()[:16]
