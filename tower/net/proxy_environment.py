"""URLs of the proxy (``--proxy-server``), and HTTP proxies of the environment (``HTTPS_PROXY``)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from attrs import field, frozen

from tower.errors import ConfigurationError
from tower.net.addresses import join_address

_SECURE = {"ws": False, "http": False, "wss": True, "https": True}
_PRINTABLE = re.compile(r"[!-~]*")


def _split(text: str, what: str, example: str) -> tuple[SplitResult, str, int | None]:
    """Return the parts of a URL, its host without brackets, and its port if any."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as e:
        raise ConfigurationError(f"{what} {_shown(text)!r}: {e}") from e
    if not host or _PRINTABLE.fullmatch(text) is None:
        raise ConfigurationError(
            f"{what} {_shown(text)!r} is not a URL with scheme and host: give one such as {example}"
        )
    return parts, host, port


def _shown(text: str) -> str:
    """Return *text* without its password."""
    return re.sub(r"//[^/@]*@", "//***@", text)


@frozen
class ServerURL:
    """URL of a proxy.

    :ivar secure: whether TLS is used.
    :ivar host: IPv6 without brackets.
    :ivar resource: path and query, at least a slash.
    """

    secure: bool
    host: str
    port: int
    resource: str

    @property
    def authority(self) -> str:
        """Host and port; an IPv6 address in brackets."""
        return join_address(self.host, self.port)

    def __str__(self) -> str:
        """Return the URL without its query."""
        path = self.resource.partition("?")[0]
        return f"{'wss' if self.secure else 'ws'}://{self.authority}{path if path != '/' else ''}"


def parse_server_url(text: str) -> ServerURL:
    """Read `--proxy-server`: a `ws` or `wss` URL; old agents also accept `http` and `https`.

    :raise ConfigurationError: with the value and the expected form.
    """
    parts, host, port = _split(text.strip(), "--proxy-server", "wss://tower.example.com:8443")
    secure = _SECURE.get(parts.scheme)
    if secure is None:
        raise ConfigurationError(
            f"--proxy-server {_shown(text)!r} begins with {parts.scheme!r}, not with wss:// or ws://"
        )
    if parts.username is not None:
        raise ConfigurationError(
            f"--proxy-server {_shown(text)!r} has a user name in it; agents have tokens and keys"
        )
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return ServerURL(secure, host, port or (443 if secure else 80), resource)


@frozen
class HTTPProxy:
    """An HTTP proxy, used with CONNECT.

    :ivar credential: value of `Proxy-Authorization`, or empty.
    :ivar variable: environment variable that names it.
    """

    host: str
    port: int
    credential: bytes = field(default=b"", repr=False)
    variable: str = field(default="", eq=False)

    def request(self, url: ServerURL) -> bytes:
        """Return the head of the CONNECT for *url* (RFC 9110 section 9.3.6)."""
        authority = url.authority.encode("ascii")
        login = b"Proxy-Authorization: " + self.credential + b"\r\n" if self.credential else b""
        return b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, login)

    def __str__(self) -> str:
        """Return the address, and the variable."""
        address = join_address(self.host, self.port)
        return f"{address} ({self.variable})" if self.variable else address


def find_proxy(url: ServerURL, environ: Mapping[str, str]) -> HTTPProxy | None:
    """Return the environment's HTTP proxy for *url*, or None.

    As in curl and Go: `HTTPS_PROXY` for `wss`, `HTTP_PROXY` for `ws`, also in lower case, except for hosts in
    `NO_PROXY` (names with their subdomains, addresses, networks, ports, `*`) and the loopback.

    :raise ConfigurationError: the variable is not a URL of an HTTP proxy.
    """
    kind = "HTTPS_PROXY" if url.secure else "HTTP_PROXY"
    variable = kind.lower() if environ.get(kind.lower()) else kind
    text = environ.get(variable) or ""
    if not text or _exempt(url, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return parse_proxy(text, kind, variable)


def parse_proxy(text: str, what: str, variable: str = "") -> HTTPProxy:
    """Read the URL of an HTTP proxy; the scheme may be omitted.

    :param what: name of the setting, for errors.
    :raise ConfigurationError: it is not such a URL.
    """
    if "://" not in text:
        text = f"http://{text}"
    parts, host, port = _split(text, what, "http://proxy.example.com:3128")
    if parts.scheme != "http":
        raise ConfigurationError(f"{what} {_shown(text)!r}: only http:// proxies are supported")
    credential = b""
    if parts.username is not None:
        login = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
        credential = b"Basic " + b64encode(login)
    return HTTPProxy(host, port or 80, credential, variable)


def _exempt(url: ServerURL, no_proxy: str) -> bool:
    """Return whether *url* needs no proxy."""
    try:
        address = ip_address(url.host)
    except ValueError:
        address = None
    if url.host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = no_proxy.replace(",", " ").lower().split()
    return any(_matches(entry, url, address) for entry in entries)


def _matches(entry: str, url: ServerURL, address: IPv4Address | IPv6Address | None) -> bool:
    """Return whether an entry of `NO_PROXY` matches *url*, whose host is *address* if it is an IP address."""
    if entry == "*":
        return True
    if address is not None:
        try:
            return address in ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass  # a name, or an address with a port
    name, port = _without_port(entry)
    name = name.removeprefix("*").removeprefix(".")
    if port is not None and port != url.port:
        return False
    return url.host == name or (address is None and url.host.endswith(f".{name}"))


def _without_port(entry: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*):([0-9]{1,5})", entry)
    if match is None:
        return entry.strip("[]"), None
    return match.group(1).strip("[]"), int(match.group(2))
