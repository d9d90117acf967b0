"""Connection settings of a `KubeAccess`: address, TLS context and token."""

from __future__ import annotations

import json
import ssl
from base64 import urlsafe_b64decode
from urllib.parse import urlsplit

from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.net.tls.client_certificate import load_pair

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


def end_of_token(token: bytes) -> float | None:
    """Return the expiry of a JWT (RFC 7519 section 4.1.4), s since the epoch; None if unknown."""
    parts = token.split(b".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + b"==="))
    except (ValueError, RecursionError):
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 < end <= _LATEST:
        return None
    return float(end)
