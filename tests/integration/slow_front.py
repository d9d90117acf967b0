"""A server with TLS in front of a real API server, which delays or replaces its answers."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from socket import socket

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.fakes.chains import issue, server_context
from tests.integration.member import Member
from tests.integration.programs import LOOPBACK
from tests.integration.threaded import ThreadedServer

_LIMIT = 60.0  # s


class SlowFront(ThreadedServer):
    """Serves one request per connection, with a certificate of the API server's CA.

    :ivar delay: of each answer, s.
    :ivar code: of all answers; 0: those of the API server.
    """

    def __init__(self, member: Member) -> None:
        self.delay, self.code = 0.0, 0
        self._member = member
        self._context = ssl.create_default_context(cafile=str(member.ca))
        folder = member.place / "pki"
        authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._tls = server_context(issue("front", (authority, key)))
        super().__init__()

    @property
    def server(self) -> str:
        """Its ``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    def serve(self, connection: socket) -> None:
        """Serve one request."""
        with suppress(OSError), self._tls.wrap_socket(connection, server_side=True) as secured:
            request = _Request(secured)
            time.sleep(self.delay)
            code, body = self.code, b""
            if code:
                status = {"kind": "Status", "code": code, "message": http.client.responses[code]}
                body = json.dumps(status).encode()
            else:
                code, body = self._forward(request)
            head = f"HTTP/1.1 {code} Answer\r\nContent-Type: application/json\r\nConnection: close\r\n"
            secured.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            secured.unwrap()

    def _forward(self, request: _Request) -> tuple[int, bytes]:
        host, _, port = self._member.service.partition(":")
        upstream = http.client.HTTPSConnection(host, int(port), timeout=_LIMIT, context=self._context)
        try:
            upstream.request(request.command, request.path, request.body, dict(request.headers))
            answer = upstream.getresponse()
            return answer.status, answer.read()
        finally:
            upstream.close()


class _Request(BaseHTTPRequestHandler):
    """A parsed request."""

    def __init__(self, connection: socket) -> None:
        self.rfile = connection.makefile("rb")
        self.wfile = BytesIO()
        self.raw_requestline = self.rfile.readline()
        if not self.parse_request():
            raise OSError("not a request")
        self.body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
