"""AWS's Signature Version 4; no I/O.

Requests to AWS carry an HMAC of method, path, query, header fields and body.  Its key is derived from the
secret for one day, region and service.  AWS's "Create a signed AWS API request" defines the steps and their
names: canonical request, string to sign, signing key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Sequence
from posixpath import normpath
from urllib.parse import quote, unquote, urlsplit

from attrs import field, frozen

#: Name of the algorithm.
ALGORITHM = "AWS4-HMAC-SHA256"

_TERMINATOR = "aws4_request"
_UNRESERVED = "-_.~"
_BLANKS = re.compile(r"\s+")


@frozen
class AWSCredentials:
    """Credentials of a user or a session.

    :ivar access_key: ID of the key, not secret.
    :ivar token: of a session; empty for a user's own keys.
    :ivar expires: s since the epoch; None: never.
    """

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires: float | None = None


@frozen
class Scope:
    """Region and service that a signature is valid for."""

    region: str
    service: str


def sign(
    credentials: AWSCredentials,
    scope: Scope,
    now: float,
    method: str,
    url: str,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
) -> list[tuple[str, str]]:
    """Return the header fields to add to a request.

    The signature covers the host of *url*, all of *headers*, and the added fields.

    :param now: s since the epoch; AWS accepts five minutes of difference.
    :param headers: without ``Host``.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    added = [("X-Amz-Date", stamp)]
    if credentials.token:
        added.append(("X-Amz-Security-Token", credentials.token))
    fields = [("Host", _host(url)), *headers, *added]
    canonical, signed = canonical_request(method, url, fields, body)
    key = signing_key(credentials.secret_key, stamp[:8], scope)
    signature = hmac.new(key, string_to_sign(stamp, scope, canonical).encode(), hashlib.sha256).hexdigest()
    credential = f"{credentials.access_key}/{stamp[:8]}/{scope.region}/{scope.service}/{_TERMINATOR}"
    authorization = f"{ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}"
    return [*added, ("Authorization", authorization)]


def canonical_request(
    method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes
) -> tuple[str, str]:
    """Return the canonical request that both ends hash, and the names of its signed fields."""
    parts = urlsplit(url)
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(_BLANKS.sub(" ", value.strip()))
    signed = ";".join(sorted(values))
    lines = "".join(f"{name}:{','.join(values[name])}\n" for name in sorted(values))
    digest = hashlib.sha256(body).hexdigest()
    request = (method, _canonical_path(parts.path), _canonical_query(parts.query), lines, signed, digest)
    return "\n".join(request), signed


def string_to_sign(stamp: str, scope: Scope, canonical: str) -> str:
    """Return the input of the HMAC; *stamp* is a time, as ``20150830T123600Z``."""
    scope_text = f"{stamp[:8]}/{scope.region}/{scope.service}/{_TERMINATOR}"
    return "\n".join((ALGORITHM, stamp, scope_text, hashlib.sha256(canonical.encode()).hexdigest()))


def signing_key(secret: str, day: str, scope: Scope) -> bytes:
    """Return the key for one day (``20150830``), region and service."""
    key = f"AWS4{secret}".encode()
    for part in (day, scope.region, scope.service, _TERMINATOR):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _host(url: str) -> str:
    # As HTTP clients send it: without user and default port.
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return host.removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, ":"))


def _canonical_path(path: str) -> str:
    # The encoded path is encoded again, for all services but S3, which is not used here.
    if not path:
        return "/"
    clean = "/" + normpath(path).lstrip("/")
    if path.endswith(("/", "/.", "/..")) and not clean.endswith("/"):
        clean += "/"
    return quote(clean, safe="/" + _UNRESERVED)


def _canonical_query(query: str) -> str:
    pairs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        pairs.append((quote(unquote(name), safe=_UNRESERVED), quote(unquote(value), safe=_UNRESERVED)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
