"""The credential that an old agent sent for its API server, as the proxy uses it.

It stays in memory: it is not stored, displayed or logged.
"""

from __future__ import annotations

import re
import ssl
from functools import cache
from ipaddress import IPv6Address

from tower.errors import ConfigurationError
from tower.kube.connection_settings import CredentialFacts
from tower.kube.head_fields import Upstream
from tower.net.tls.client_certificate import load_pair
from tower.net.tls.published_authorities import refuse_published, trust_system
from tower.net.tls.resumption import Resumption
from tower.trust.pki import load_certificates
from tower.v1.config import AgentConfig

#: Default port of an API server.
_HTTPS = 443

#: Longest bearer token, B.
_LONGEST_TOKEN = 64 * 1024

_NAME = re.compile(r"[0-9A-Za-z](?:[-._0-9A-Za-z]{0,252})")
_PORT = re.compile(r"[0-9]{1,5}")
_WORD = re.compile(rb"[!-~]+")


class MemberCredential:
    """Address and credential of the API server of one old agent.

    A certificate takes precedence over a bearer token, as in client-go.

    :ivar host: name or address of the API server, IPv6 without brackets.
    :ivar server_name: the name that its certificate must have.
    :ivar context: verifies it with the agent's authorities, or the system's if the agent sent none.
    :ivar resumption: shortens its next handshake.
    :ivar facts: of the bearer token or the client certificate.  An old agent sends a new one only when it
        connects again.
    :ivar is_missing: whether there is no credential: the API server will reject nearly all requests.
    :raise ConfigurationError: a part of the agent's config is invalid; the text names it.
    """

    __slots__ = ("context", "facts", "host", "is_missing", "port", "resumption", "server_name", "upstream")

    def __init__(self, config: AgentConfig) -> None:
        self.host, self.port = parse_server(config.kubernetes)
        self.server_name = self.host.rstrip(".")
        self.resumption = Resumption()
        has_certificate = bool(config.certificate or config.key)
        make = _context if config.authority or has_certificate else _system_context
        self.context = make(config.authority)
        self.facts = CredentialFacts()
        credential_line = b""
        if has_certificate:
            _load_certificate(self.context, config.certificate, config.key)
            self.facts = CredentialFacts.of(config.certificate, b"")
        elif config.bearer:
            token = config.bearer.strip()
            if _WORD.fullmatch(token) is None or len(token) > _LONGEST_TOKEN:
                raise ConfigurationError("the bearer token is not one word of printable characters")
            credential_line = b"Authorization: Bearer %b\r\n" % token
            self.facts = CredentialFacts.of(b"", token)
        self.is_missing = not self.facts.kind
        host_line = f"Host: {self.address}\r\n".encode("ascii")
        self.upstream = Upstream(b"", host_line, credential_line, has_certificate=has_certificate)

    def __repr__(self) -> str:
        """Return a text without the credential."""
        return f"MemberCredential({self.address})"

    @property
    def address(self) -> str:
        """The API server's host as in URLs, with its port unless it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _HTTPS else f"{host}:{self.port}"


def parse_server(text: str) -> tuple[str, int]:
    """Split ``host:port``; IPv6 brackets or the port may be missing.

    Old agents in a cluster put no brackets around ``KUBERNETES_SERVICE_HOST``, but always add a port.

    :raise ConfigurationError: it is neither.
    """
    if text.startswith("["):
        host, end, port = text[1:].partition("]")
        port = port.removeprefix(":") if end else text
    elif text.count(":") < 2:
        host, _, port = text.partition(":")
    else:
        host, _, port = text.rpartition(":")
        if not _is_ipv6(host):
            host, port = text, ""
    number = int(port) if _PORT.fullmatch(port) else 0 if port else _HTTPS
    if not 0 < number < 65536 or not (_NAME.fullmatch(host) or _is_ipv6(host)):
        raise ConfigurationError(f"KubernetesSvcHost {text[:100]!r} is not host:port")
    return host, number


def _is_ipv6(text: str) -> bool:
    try:
        return IPv6Address(text).scope_id is None
    except ValueError:
        return False


@cache
def _system_context(authority: bytes) -> ssl.SSLContext:
    """Return the context shared by agents without authority and certificate: it is large and slow to make."""
    return _context(authority)


def _context(authority: bytes) -> ssl.SSLContext:
    """Return a context that trusts *authority* (PEM), or the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    if not authority:
        trust_system(context)
        return context
    refuse_published(
        "the certificate authority that the agent sent",
        authority,
        "replace the CA of the API server, and its certificate in the agent's kubeconfig",
    )
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise ConfigurationError("the agent's certificate authority is not a PEM certificate") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the given certificates are trusted, root or not
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load *certificate* into *context*."""
    if not certificate or not key:
        missing, there = ("CertData", "KeyData") if key else ("KeyData", "CertData")
        raise ConfigurationError(f"the config has {there} without {missing}")
    try:
        load_certificates(certificate)
        load_pair(context, certificate, key)
    except ValueError:
        raise ConfigurationError(
            "the client certificate and its key are not an unencrypted, matching pair in PEM"
        ) from None
