"""The server behind the agents: HTTPS in place of an API server, and a port that echoes.

``python -m tests.soak.backend HTTPS-PORT ECHO-PORT CERTIFICATE KEY``.  Paths: ``/healthz``, ``/who``,
``/bytes``, ``/sum``, ``/watch`` and ``/echo``, which is an upgrade.
"""

from __future__ import annotations

import hashlib
import json
import socketserver
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.soak.content import pieces

LOOPBACK = "127.0.0.1"
PADDING = "x" * 900
EVENT_EVERY = 0.2  # s

#: Longest wait for a client, s.
PATIENCE = 90.0


class Handler(BaseHTTPRequestHandler):
    """One connection of an agent's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one piece
    timeout = PATIENCE

    def log_message(self, *args: object) -> None:
        """No-op: there are many requests."""

    def do_GET(self) -> None:
        """Answer one of the paths above."""
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/healthz":
                self._answer(b"ok")
            case "/who":
                self._answer(json.dumps({**self._user(), **asked, "padding": PADDING}).encode())
            case "/bytes":
                self._bytes(int(asked["offset"]), int(asked["size"]), chunked="chunked" in asked)
            case "/watch":
                self._watch()
            case "/echo":
                self._echo()
            case _:
                self.send_error(404)

    def do_POST(self) -> None:
        """Return the size and the digest of the body."""
        sha, size = hashlib.sha256(), 0
        for piece in self._chunks() if "Transfer-Encoding" in self.headers else self._body():
            sha.update(piece)
            size += len(piece)
        self._answer(json.dumps({**self._user(), "sha256": sha.hexdigest(), "size": size}).encode())

    def _user(self) -> dict[str, str]:
        return {"user": self.headers["Impersonate-User"], "agent": self.headers["Authorization"]}

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _bytes(self, offset: int, size: int, *, chunked: bool) -> None:
        self.send_response(200)
        framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))
        self.send_header(*framing)
        self.end_headers()
        for piece in pieces(offset, size):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _watch(self) -> None:
        """Send events until the client disconnects."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        number = 0
        while True:
            event = json.dumps({**self._user(), "number": number, "padding": PADDING}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
            number += 1
            time.sleep(EVENT_EVERY)

    def _echo(self) -> None:
        """Change the protocol, then echo."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while piece := self.rfile.read1(64 * 1024):
            self.wfile.write(piece)
            self.wfile.flush()

    def _body(self) -> list[bytes] | map[bytes]:
        left = int(self.headers["Content-Length"])
        sizes = [min(64 * 1024, left - start) for start in range(0, left, 64 * 1024)]
        return map(self._exactly, sizes)

    def _chunks(self) -> list[bytes]:
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self._exactly(size))
            self.rfile.readline()
        self.rfile.readline()
        return chunks

    def _exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError("the body was cut")
        return data


class Quiet(socketserver.ThreadingMixIn):
    """Threads that end with the process; disconnections are not errors."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error, unless it is a disconnection."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(repr(error), file=sys.stderr, flush=True)


class Secure(Quiet, ThreadingHTTPServer):
    """The HTTPS server; each connection shakes hands in its own thread."""


class Echo(socketserver.BaseRequestHandler):
    """Echoes."""

    def handle(self) -> None:
        """Until the other side ends."""
        self.request.settimeout(PATIENCE)
        while piece := self.request.recv(64 * 1024):
            self.request.sendall(piece)


class Echoing(Quiet, socketserver.TCPServer):
    """The port that echoes."""

    allow_reuse_address = True


def main(arguments: list[str]) -> None:
    """Serve until the process is ended."""
    https, echo, certificate, key = arguments
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Secure((LOOPBACK, int(https)), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Echoing((LOOPBACK, int(echo)), Echo).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
