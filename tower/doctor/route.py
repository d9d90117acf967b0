"""Checks of the route to a server of Tower: HTTP proxy, name, TCP, TLS, clock, CA, names and dates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address

from attrs import define, field, frozen
from cryptography import x509

from tower.doctor.expiry import compare_clocks, describe, lasts
from tower.doctor.findings import Step, Verdict, fail, ok, warn
from tower.doctor.network import Network
from tower.net.connecting import ConnectFailed
from tower.net.connection import Connection
from tower.net.proxy_environment import HTTPProxy, ServerURL, find_proxy
from tower.net.tls.ca_pinning import ChainUnknown, NotThePinnedCA, find_authority, pinned_context
from tower.net.tls.unverified import unverified_context
from tower.trust.expiry import SERVING_SOON

#: Name of the check of this machine's clock.
CLOCK = "clock"

_ISSUER = ("issuer", "self-signed", "self signed")


@frozen
class Trust:
    """How a client verifies the server.

    :ivar hashes: of the CA; see `tower.net.tls.ca_pinning`.
    :ivar context: returns the TLS context, without hashes; raises `ConfigurationError`.
    :ivar server_name: name to verify in place of the URL's host; empty: the host.
    :ivar cure: for a server with another CA.
    """

    hashes: Sequence[str] = ()
    context: Callable[[], ssl.SSLContext] | None = None
    server_name: str = ""
    cure: str = "get a new kubeconfig"


@define(eq=False)
class ServerRoute:
    """The route from this machine to one server.

    :param option: name of the setting that has the URL, for cures.
    :param schemes: of URLs with and without TLS.
    :param now: returns the time of day, s since the epoch.
    :ivar proxy: the HTTP proxy, once it is known.
    :ivar context: the TLS context that verified the server; None without TLS.
    """

    network: Network
    url: ServerURL
    environ: Mapping[str, str]
    trust: Trust
    now: Callable[[], float]
    option: str = "--proxy-server"
    schemes: tuple[str, str] = ("wss", "ws")
    proxy: HTTPProxy | None = field(default=None, init=False)
    context: ssl.SSLContext | None = field(default=None, init=False)
    _chain: list[x509.Certificate] = field(factory=list, init=False)

    def steps(self) -> list[Step]:
        """Return the checks, in order."""
        steps = [
            Step("HTTP proxy", self._http_proxy),
            Step("name", self._name),
            Step("connection", self._connection),
            Step("TLS", self._tls),
            Step(CLOCK, self._clock),
        ]
        if self.url.secure:
            steps += [
                Step("CA", self._authority),
                Step("names", self._names),
                Step("certificate", self._certificate),
            ]
        return steps

    async def _http_proxy(self) -> Verdict:
        self.proxy = proxy = find_proxy(self.url, self.environ)
        if proxy is None:
            return ok(f"none for {self.url.host}")
        cure = f"start it, correct {proxy.variable}, or add {self.url.host} to NO_PROXY"
        direct = ServerURL(secure=False, host=proxy.host, port=proxy.port, resource="/")
        try:
            (await self.network.open(direct, None)).abort()
            (await self.network.open(self.url, proxy)).abort()
        except ConnectFailed as e:
            return fail(f"{proxy}: {e}", cure)
        return ok(str(proxy))

    def _name(self) -> Verdict:
        url = self.url
        if self.proxy is not None:
            return ok(f"{url.host} is resolved by the HTTP proxy")
        if _is_address(url.host):
            return ok(f"{url.host} is an address")
        try:
            return ok(f"{url.host} is {', '.join(self.network.resolve(url.host, url.port))}")
        except (OSError, UnicodeError):
            return fail(
                f"{url.host} has no address",
                f"correct the host in {self.option}, or the DNS of this machine: getent hosts {url.host}",
            )

    async def _connection(self) -> Verdict:
        try:
            (await self.network.open(self.url, self.proxy)).abort()
        except ConnectFailed as e:
            cures = {
                "refused": f"start the server, or correct the port in {self.option}",
                "timeout": "open the port in the firewalls between the two machines",
            }
            return fail(str(e), cures.get(e.kind, f"correct {self.option}, or the routes of this machine"))
        return ok(f"{self.url.authority} accepts connections")

    async def _tls(self) -> Verdict:
        if self.url.secure:
            try:
                self._chain = await self.network.chain(self.url, self.proxy, self.trust.server_name)
            except (ChainUnknown, ConnectFailed) as e:
                plain = await self.network.glimpse(self.url, self.proxy, "/version")
                if plain.code:
                    return fail(f"{self.url.authority} has no TLS", self._secure_port())
                return fail(str(e), f"check the server or load balancer at {self.url.authority}")
            return ok(f"{self.url.authority} has TLS")
        plain = await self.network.glimpse(self.url, self.proxy, "/version")
        if plain.code:
            return ok(f"{self.url.authority} answers HTTP without TLS")
        try:
            await self.network.chain(self.url, self.proxy)
        except (ChainUnknown, ConnectFailed):
            return fail(
                f"{self.url.authority} does not answer HTTP",
                f"check the server or load balancer at {self.url.authority}",
            )
        return fail(
            f"{self.url.authority} has TLS", f"{self.option} {self.schemes[0]}://{self.url.authority}"
        )

    def _secure_port(self) -> str:
        """Return the cure of a port without TLS, which agents may use, without verifying the proxy."""
        cure = f"use the port in the proxy's --secure-port in {self.option}"
        plain = self.schemes[1]
        if plain != "ws":
            return cure
        return (
            f"{cure}, or, for a connection without TLS, {plain}://{self.url.authority} without --ca-hash and "
            "--ca-cert"
        )

    async def _clock(self) -> Verdict:
        context = unverified_context() if self.url.secure else None
        try:
            answer = await self.network.glimpse(self.url, self.proxy, "/version", context)
        except ConnectFailed as e:
            return warn(f"the server's clock is unknown: {e}", f"check the server at {self.url.authority}")
        if answer.date is None:
            return warn(
                "the server's clock is unknown: its answer has no Date",
                f"check the server or load balancer at {self.url.authority}",
            )
        return compare_clocks(self.now() - answer.date, "the server")

    async def _authority(self) -> Verdict:
        trust = self.trust
        if trust.hashes:
            try:
                self.context = pinned_context(find_authority(self._chain, trust.hashes))
            except NotThePinnedCA as e:
                return fail(str(e).partition("; if")[0], trust.cure)
            return ok("the server's CA has the hash in --ca-hash")
        assert trust.context is not None
        self.context = trust.context()
        try:
            (await self._verified()).abort()
        except ConnectFailed as e:
            if any(word in str(e) for word in _ISSUER):
                return fail(f"the server's CA is not trusted: {e}", trust.cure)
        return ok("the server's CA is trusted")

    def _names(self) -> Verdict:
        host = self.trust.server_name or self.url.host
        names = names_of(self._chain[0])
        if self._verifies_nothing or any(_matches(name, host) for name in names):
            return ok(f"the certificate is for {host}")
        return fail(
            f"the certificate is for {', '.join(names) or 'no name'}, not for {host}",
            f"restart the proxy with --publish-service-address {host}, or use one of its names",
        )

    async def _certificate(self) -> Verdict:
        certificate, now = self._chain[0], self.now()
        begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
        if now < begin:
            return fail(f"not valid before {describe(begin)}", "set the clock of this machine")
        if now >= end and not self._verifies_nothing:
            return fail(
                f"expired on {describe(end)}", "renew it on the server; tower-proxy does so at its start"
            )
        try:
            (await self._verified()).abort()
        except ConnectFailed as e:
            return fail(str(e), self.trust.cure)
        cure = "restart tower-proxy, which renews it"
        return lasts("the server's certificate", end, now, cure, soon=SERVING_SOON)

    @property
    def _verifies_nothing(self) -> bool:
        return self.context is not None and self.context.verify_mode == ssl.CERT_NONE

    async def _verified(self) -> Connection:
        return await self.network.open(self.url, self.proxy, self.context, self.trust.server_name or None)


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the host names and addresses of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return [*found.get_values_for_type(x509.DNSName), *addresses]


def _matches(name: str, host: str) -> bool:
    """Return whether *name* of a certificate covers *host* (RFC 6125 section 6.4)."""
    name, host = name.lower(), host.lower().rstrip(".")
    if name.startswith("*."):
        return not _is_address(host) and host.partition(".")[2] == name[2:]
    if _is_address(host) and _is_address(name):
        return ip_address(host) == ip_address(name)
    return name == host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
