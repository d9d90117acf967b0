"""Twisted's HTTP ``Agent`` with verified TLS, through the HTTP proxy of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from OpenSSL.crypto import X509
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS, HTTPConnectionPool
from twisted.web.iweb import IAgent

from tower.errors import ConfigurationError
from tower.http.proxied_endpoints import ProxiedEndpoints
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published, refuse_published_in_system
from tower.reactor.interfaces import IReactor

#: Maximum size of a CA file, B.
_FILE_LIMIT = 4 << 20


def verifying_agent(
    reactor: IReactor,
    connect_timeout: float,
    ca_file: str = "",
    environ: Mapping[str, str] = os.environ,
    *,
    authorities: bytes = b"",
) -> IAgent:
    """Return an agent with a new connection for each request, so none stays open.

    :param connect_timeout: s.
    :param ca_file: CAs, PEM; empty: *authorities*.
    :param authorities: CAs, PEM; empty: the system's.
    :param environ: may name an HTTP proxy; see `ProxiedEndpoints`.
    :raise ConfigurationError: the file has no certificates, or the HTTP proxy cannot be used.
    """
    pool = HTTPConnectionPool(reactor, persistent=False)
    if ca_file:
        trusted = trust_of_file(ca_file)
    elif authorities:
        trusted = trust_of("the CA", authorities)
    else:
        refuse_published_in_system()
        trusted = None
    policy = BrowserLikePolicyForHTTPS(trusted)
    endpoints = ProxiedEndpoints(reactor, policy, connect_timeout, environ)
    agent: IAgent = Agent.usingEndpointFactory(reactor, endpoints, pool)
    return agent


def trust_of_file(path: str) -> Any:
    """Return the trust root of a file.

    :raise ConfigurationError: it cannot be read, or has no certificates.
    """
    try:
        with Path(path).open("rb") as file:
            pem = file.read(_FILE_LIMIT)
    except OSError as e:
        raise ConfigurationError(f"the CA file {path} cannot be read: {e.strerror}") from None
    return trust_of(f"the CA file {path}", pem)


def trust_of(source: str, pem: bytes) -> Any:
    """Return the trust root of CAs in PEM; *source* is for errors.

    :raise ConfigurationError: there are no certificates, or the private key of one is public.
    """
    refuse_published(source, pem, ANOTHER_CA_CURE)
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as e:
        raise ConfigurationError(f"{source} has no PEM certificates") from e
    return trustRootFromCertificates([Certificate(X509.from_cryptography(each)) for each in found])
