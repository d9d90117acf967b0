"""The nonce of a login: binds an ID token to one front door and to the key of one session.

Without it, a program that poses as a Tower could begin a session with its own key at another Tower, with the
ID token that a user's client sends to it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from tower.trust.named_certificates import wildcard_of

#: First line of the hashed text; changes with the format.
_VERSION = "tower-login-v1"


def login_nonce(server: str, public_key: str) -> str:
    """Return the nonce: base64url(SHA-256(version LF server LF public key)), without padding.

    :param server: URL of the front door, as the client uses it: scheme, host, and a port that is not 443.
    :param public_key: of the session; see `tower.trust.session_tokens.public_text`.
    """
    text = f"{_VERSION}\n{server}\n{public_key}"
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def is_own_server(server: str, names: Collection[str]) -> bool:
    """Return whether the host of a front door's URL is one of *names*, or covered by a wildcard of them.

    Ports are not compared: those of users and of the proxy may differ.
    """
    try:
        url = urlsplit(server)
        host = _plain(url.hostname or "")
    except ValueError:
        return False
    if url.scheme != "https" or not host:
        return False
    return any(_plain(each) in (host, wildcard_of(host)) for each in names)


def _plain(name: str) -> str:
    """Return a host name or an address in the form that is compared."""
    try:
        return str(ip_address(name.strip("[]")))
    except ValueError:
        plain = name.lower().removesuffix(".")
    try:
        return plain if plain.isascii() else plain.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
