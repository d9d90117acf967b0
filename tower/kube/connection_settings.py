"""Connection settings of a `KubeAccess`: address, TLS context and token; lifetimes of credentials."""

from __future__ import annotations

import json
import ssl
from base64 import urlsafe_b64decode
from typing import Any
from urllib.parse import urlsplit

from attrs import field, frozen

from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.net.tls.client_certificate import load_pair
from tower.trust.expiry import credential_ends_soon

#: Latest plausible expiry, s since the epoch (the year 9999).
_LATEST = 253402300799.0


def bearer_token(access: KubeAccess) -> str | None:
    """Return the token of *access*, from its token file if it has one.

    :raise ConfigurationError: the file cannot be read.
    """
    if access.token_file is None:
        return access.token
    try:
        return access.token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"cannot read the token file {access.token_file}: {e}") from e


def tls_context(access: KubeAccess) -> ssl.SSLContext:
    """Return a TLS context with the CAs and client certificate of *access*.

    :raise ConfigurationError: a certificate or key is invalid.
    """
    try:
        context = ssl.create_default_context(
            cadata=access.ca_data.decode("ascii") if access.ca_data else None
        )
        if access.client_certificate is not None and access.client_key is not None:
            load_pair(context, access.client_certificate, access.client_key)
    except (ssl.SSLError, ValueError) as e:
        raise ConfigurationError(
            f"the kubeconfig for {access.server} has an invalid certificate or key: {e}"
        ) from e
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def server_address(access: KubeAccess) -> tuple[str, int, bool]:
    """Return host, port and whether to use TLS for the server of *access*."""
    url = urlsplit(access.server)
    secure = url.scheme == "https"
    return url.hostname or "", url.port or (443 if secure else 80), secure


@frozen
class Lifetime:
    """The period in which a credential is valid, s since the epoch; None: unlimited, or unknown."""

    begin: float | None = None
    end: float | None = None


def end_of_token(token: bytes) -> float | None:
    """Return the expiry of a JWT, s since the epoch; None if unknown."""
    return lifetime_of_token(token).end


def lifetime_of_token(token: bytes) -> Lifetime:
    """Return the lifetime of a JWT (RFC 7519 sections 4.1.4 and 4.1.6)."""
    claims = claims_of_token(token)
    return Lifetime(_moment(claims.get("iat")), _moment(claims.get("exp")))


def claims_of_token(token: bytes) -> dict[str, Any]:
    """Return the claims of a JWT, which are not verified; none if it is another token."""
    parts = token.split(b".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + b"==="))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _moment(claim: object) -> float | None:
    if isinstance(claim, bool) or not isinstance(claim, int | float) or not 0 < claim <= _LATEST:
        return None
    return float(claim)


def lifetime_of_certificate(pem: bytes) -> Lifetime:
    """Return the lifetime of the first certificate in *pem*.

    :raise ValueError: *pem* holds no certificate, or a malformed one.
    """
    from tower.trust.pki import load_certificates  # slow to import; most commands do not need it

    certificate = load_certificates(pem)[0]
    return Lifetime(certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())


@frozen
class CredentialFacts:
    """The public facts of a credential.

    :ivar kind: ``token``, ``client certificate``, or empty without a credential.
    :ivar problem: why changed credential files are not used; empty if they are.
    """

    kind: str = ""
    lifetime: Lifetime = field(factory=Lifetime)
    problem: str = ""

    @classmethod
    def of(cls, certificate: bytes, token: bytes, problem: str = "") -> CredentialFacts:
        """Return the facts of a client certificate (PEM), which API servers check first, or of a token."""
        if certificate:
            try:
                lifetime = lifetime_of_certificate(certificate)
            except ValueError:
                lifetime = Lifetime()
            return cls("client certificate", lifetime, problem)
        if token:
            return cls("token", lifetime_of_token(token), problem)
        return cls(problem=problem)

    def expires_soon(self, now: float) -> bool:
        """Return whether the credential ends soon; see `tower.trust.expiry`."""
        return credential_ends_soon(self.lifetime.begin, self.lifetime.end, now)
