"""Signature Version 4 as a server judges it; shares nothing with the signer that it judges."""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from tests.cloud.standins.rest import Ask

SKEW = 300.0  # s

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/\s]+)/(\d{8})/([^/\s]+)/([^/\s]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)


class Claim(NamedTuple):
    """The signature of a request: key and scope."""

    key: str
    day: str
    region: str
    service: str
    signed: str
    signature: str
    stamp: str

    @property
    def when(self) -> float:
        """When it was signed, s since the epoch."""
        return datetime.strptime(self.stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def claim_of(ask: Ask) -> Claim | None:
    """Return what a request claims; None if it claims nothing, or not as it has to be."""
    found = _AUTHORIZATION.fullmatch(ask.headers.get("authorization", ""))
    stamp = ask.headers.get("x-amz-date", "")
    if found is None or not re.fullmatch(r"\d{8}T\d{6}Z", stamp):
        return None
    key, day, region, service, signed, signature = found.groups()
    return Claim(key, day, region, service, signed, signature, stamp)


def canonical(ask: Ask, signed: str) -> str:
    """Return the canonical request of *ask*, which has no query."""
    lines = []
    for name in signed.split(";"):
        if name not in ask.headers:
            return ""
        lines.append(name + ":" + " ".join(ask.headers[name].split()) + "\n")
    path = quote(ask.path, safe="/-_.~")
    return f"{ask.method}\n{path}\n\n{''.join(lines)}\n{signed}\n{sha256(ask.body).hexdigest()}"


def is_signed(ask: Ask, claim: Claim, secret: str) -> bool:
    """Return whether the signature is valid and covers all required fields."""
    names = claim.signed.split(";")
    needed = {"host", "x-amz-date"} | {name for name in ask.headers if name.startswith("x-amz-")}
    if names != sorted(set(names)) or not needed <= set(names) or not claim.stamp.startswith(claim.day):
        return False
    place = f"{claim.day}/{claim.region}/{claim.service}/aws4_request"
    hashed = sha256(canonical(ask, claim.signed).encode()).hexdigest()
    key = ("AWS4" + secret).encode()
    for part in place.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{claim.stamp}\n{place}\n{hashed}"
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), claim.signature)
