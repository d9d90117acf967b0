"""Checks of single values of a configuration, with the texts of kube-apiserver."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tower.errors import ConfigurationError
from tower.http.verifying_agent import trust_of

_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", re.IGNORECASE)
_RESERVED = ("k8s.io", "kubernetes.io")


def url_problems(url: str) -> list[str]:
    """Return what is not right with the URL of an issuer."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as e:
        return [str(e)]
    found = []
    if parts.scheme != "https":
        found.append("URL scheme must be https")
    elif not host:
        found.append("URL must have a host")
    if parts.username is not None or parts.password is not None:
        found.append("URL must not contain a username or password")
    if parts.query:
        found.append("URL must not contain a query")
    if parts.fragment:
        found.append("URL must not contain a fragment")
    return found


def key_problems(key: str) -> list[str]:
    """Return what is not right with the key of an additional fact; it is not empty."""
    if not key:
        return []
    domain, _, name = key.partition("/")
    found = []
    if not _DOMAIN.fullmatch(domain) or not name or not name.isprintable() or " " in name:
        found.append('must be a domain-prefixed path (such as "acme.io/foo")')
    if key != key.lower():
        found.append("must be lowercase")
    if domain in _RESERVED or domain.endswith(tuple(f".{each}" for each in _RESERVED)):
        found.append("k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use")
    return found


def authorities_problem(pem: bytes) -> str:
    """Return what is not right with CAs; empty: nothing."""
    try:
        trust_of("certificateAuthority", pem)
    except ConfigurationError as e:
        return f"data does not contain any valid RSA or ECDSA certificates: {e}"
    return ""
