"""Signed JSON Web Tokens (RFC 7519), with which clients authenticate at token services (RFC 7523)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any


def signed_jwt(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """Return a token in compact form; *sign* returns a signature with the algorithm that *header* names."""
    signed = f"{_part(header)}.{_part(claims)}"
    return f"{signed}.{encode(sign(signed.encode()))}"


def encode(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _part(fields: Mapping[str, Any]) -> str:
    return encode(json.dumps(fields, separators=(",", ":")).encode())
