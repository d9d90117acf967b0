"""Names of cipher suites and versions of TLS, as for kube-apiserver, and their application to a context."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen

_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}

# Always on: neither Go nor Python chooses among them.
_SUITES_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")

#: Accepted by kube-apiserver, but without forward secrecy, or with RC4, 3DES or CBC and SHA-256 (Go's list).
_INSECURE = frozenset(
    {
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_RC4_128_SHA",
    }
)

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("VersionTLS10", "VersionTLS11")

#: Names of cipher suites in OpenSSL; empty: none before TLS 1.3.
Suites: TypeAlias = Sequence[str]


def read_suites(text: str) -> Suites:
    """Return the cipher suites in a comma-separated list.

    :raise ValueError: one is unknown, or is not secure.
    """
    names = [each.strip() for each in text.split(",")]
    for name in names:
        if name in _INSECURE:
            raise ValueError(f"cipher suite {name} is insecure: remove it, or give some of {_listed()}")
        if name not in _SUITES and name not in _SUITES_1_3:
            raise ValueError(f"Cipher suite {name} not supported or doesn't exist: give some of {_listed()}")
    return tuple(dict.fromkeys(_SUITES[name] for name in names if name in _SUITES))


def _listed() -> str:
    return ", ".join((*_SUITES_1_3, *_SUITES))


def read_version(text: str) -> ssl.TLSVersion:
    """Return a version of TLS.

    :raise ValueError: it is unknown, or is not secure.
    """
    if text in _OLD_VERSIONS:
        raise ValueError("is not secure (RFC 8996): give VersionTLS12 or VersionTLS13")
    if text not in _VERSIONS:
        raise ValueError(f'unknown tls version "{text}": give VersionTLS12 or VersionTLS13')
    return _VERSIONS[text]


@frozen
class ServerSettings:
    """Settings of a server's TLS.

    :ivar suites: before TLS 1.3, in OpenSSL's names; None: OpenSSL's default.
    """

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    suites: Suites | None = None

    def apply(self, context: ssl.SSLContext) -> None:
        """Apply the settings to *context*."""
        context.minimum_version = self.minimum
        if self.suites:
            context.set_ciphers(":".join(self.suites))
        elif self.suites is not None:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
