"""What a `KubeAccess` means for a connection: where to, with which TLS, with which token."""

from __future__ import annotations

import json
import ssl
from base64 import urlsafe_b64decode
from urllib.parse import urlsplit

from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.net.tls.client_certificate import load_pair

#: Ends that lie behind this are no ends, s since the epoch (the year 9999).
_LATEST = 253402300799.0


def bearer_token(access: KubeAccess) -> str | None:
    """Return the token that *access* has, from its file if it names one.

    :raise ConfigurationError: the file cannot be read.
    """
    if access.token_file is None:
        return access.token
    try:
        return access.token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"cannot read the token file {access.token_file}: {e}") from e


def tls_context(access: KubeAccess) -> ssl.SSLContext:
    """Return what verifies the server of *access* and shows it the client's certificate.

    :raise ConfigurationError: a certificate or key in it is broken.
    """
    try:
        context = ssl.create_default_context(
            cadata=access.ca_data.decode("ascii") if access.ca_data else None
        )
        if access.client_certificate is not None and access.client_key is not None:
            load_pair(context, access.client_certificate, access.client_key)
    except (ssl.SSLError, ValueError) as e:
        raise ConfigurationError(
            f"the kubeconfig for {access.server} holds a broken certificate or key: {e}"
        ) from e
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def server_address(access: KubeAccess) -> tuple[str, int, bool]:
    """Return host, port and whether TLS is wanted of the server of *access*."""
    url = urlsplit(access.server)
    secure = url.scheme == "https"
    return url.hostname or "", url.port or (443 if secure else 80), secure


def end_of_token(token: bytes) -> float | None:
    """Return when a JWT ends (RFC 7519 section 4.1.4), s since the epoch; None if it does not say."""
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
