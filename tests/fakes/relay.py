"""Heads for the relay of the agent, and what it needs to know of an API server."""

from __future__ import annotations


class APIServer:
    """What a head needs to know of the API server."""

    prefix = b""
    host_line = b"Host: 10.0.0.1:6443\r\n"
    credential_line = b"Authorization: Bearer member-secret\r\n"


_API_SERVER = APIServer()


def api_server() -> APIServer:
    """Return it, always the same."""
    return _API_SERVER


def request(
    *fields: bytes, line: bytes = b"GET /api HTTP/1.1", framing: bytes = b"", body: bytes = b""
) -> bytes:
    """Return a request in canonical form."""
    lines = [b"Impersonate-User: jane\r\n", b"Host: tower\r\n", *(field + b"\r\n" for field in fields)]
    return line + b"\r\n" + framing + b"".join(lines) + b"\r\n" + body


def passed(
    *fields: bytes, line: bytes = b"GET /api HTTP/1.1", framing: bytes = b"", body: bytes = b""
) -> bytes:
    """Return what becomes of that request."""
    lines = [b"Impersonate-User: jane\r\n", APIServer.host_line, *(field + b"\r\n" for field in fields)]
    return line + b"\r\n" + framing + b"".join(lines) + APIServer.credential_line + b"\r\n" + body
