"""URLs of clouds' services in configurations: validation, and a warning about cleartext credentials."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from twisted.logger import Logger

from tower.cloud.config.sections import Section

_log = Logger()


def read_url(section: Section, key: str, default: str, *, is_secret: bool = True, query: bool = False) -> str:
    """Return the URL of a key, or *default*, see `Section.url`.

    :param is_secret: credentials are sent there: warn if it is not HTTPS.
    :raise CloudConfigError: it is not valid.
    """
    url = section.url(key, default, query=query)
    if is_secret:
        warn_unless_safe(key, url)
    return url


def warn_unless_safe(name: str, url: str) -> None:
    """Log a warning if credentials for *url* are sent in cleartext over a network."""
    if url and not is_safe(url):
        _log.warn(
            "NOT SECURE: {name} is not https://: credentials for {host} are sent in cleartext",
            name=name,
            host=urlsplit(url).hostname,
        )


def is_safe(url: str) -> bool:
    """Return whether a URL is HTTPS, or HTTP on the loopback interface."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_loopback(host: str) -> bool:
    """Return whether a name or address is of the loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
