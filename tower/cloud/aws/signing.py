"""AWS's Signature Version 4, without I/O.

Every request to AWS carries an HMAC of its method, path, query, header fields and body, made with a key that
is derived from the secret for one day, one region and one service.  The steps and their names (canonical
request, string to sign, signing key) are those of AWS's "Create a signed AWS API request".
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

#: Names the algorithm in the field ``Authorization`` and in the string to sign.
ALGORITHM = "AWS4-HMAC-SHA256"

_TERMINATOR = "aws4_request"
_UNRESERVED = "-_.~"
_BLANKS = re.compile(r"\s+")


@frozen
class AWSCredentials:
    """Who signs.

    :ivar access_key: names the key; no secret.
    :ivar token: of a session; empty for a user's own keys.
    :ivar expires: s since the epoch; None: never.
    """

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)
    expires: float | None = None


@frozen
class Scope:
    """What a signature is good for, beside its day."""

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
    """Return the header fields to add to a request so that AWS takes it.

    Signed are the host of *url*, all of *headers*, and what is added itself.

    :param now: time of day, s since the epoch; AWS takes five minutes off either way.
    :param headers: all fields that must not be changed on the way; without ``Host``.
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
    """Return the one form of a request that both ends hash, and the names of its signed fields."""
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
    """Return what the HMAC is made of.

    :param stamp: when, as ``20150830T123600Z``.
    """
    place = f"{stamp[:8]}/{scope.region}/{scope.service}/{_TERMINATOR}"
    return "\n".join((ALGORITHM, stamp, place, hashlib.sha256(canonical.encode()).hexdigest()))


def signing_key(secret: str, day: str, scope: Scope) -> bytes:
    """Return the key for one day (``20150830``), region and service."""
    key = f"AWS4{secret}".encode()
    for part in (day, scope.region, scope.service, _TERMINATOR):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _host(url: str) -> str:
    # As HTTP clients send it: without a login, and without the port that goes without saying.
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return host.removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, ":"))


def _canonical_path(path: str) -> str:
    # What is encoded on the wire is encoded once more: only S3 has it otherwise, and S3 is not spoken here.
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
