"""URLs of clouds' services in configurations."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from twisted.logger import Logger

from tower.cloud.config.sections import Section

_log = Logger()


def read_url(
    section: Section, key: str, default: str, *, shows_secrets: bool = True, query: bool = False
) -> str:
    """Return the URL that a key says, or else *default*, without a slash at its end.

    :param query: whether it may have one.
    :param shows_secrets: whether we show credentials there: without HTTPS, others can read them.
    :raise CloudConfigError: it is no URL of HTTP.
    """
    url = section.text(key) or default
    if not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?(\?[^#\s]*)?", url) or ("?" in url and not query):
        raise section.wrong(key, f"{key} is no URL of a service: https://HOST/PATH")
    if shows_secrets and url.startswith("http://") and not is_here(urlsplit(url).hostname or ""):
        _log.warn(
            "NOT SECURE: {key} is not https://: whoever is on the way to {host} can read our credentials",
            key=key,
            host=urlsplit(url).hostname,
        )
    return url if "?" in url else url.rstrip("/")


def is_safe(url: str) -> bool:
    """Tell whether nobody on the way can read what is sent to a URL."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and is_here(parts.hostname or ""))
        )
    except ValueError:
        return False


def is_here(host: str) -> bool:
    """Tell whether what is sent to *host* stays on this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
