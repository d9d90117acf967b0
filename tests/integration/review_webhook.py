"""A webhook that answers reviews by the user's name or token, with real TLS, and fails on demand."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.integration.programs import LOOPBACK
from tower.trust.pki import self_signed

DAY = 86400

#: Status and body of an answer; None: the connection is reset.
Fault: TypeAlias = "Callable[[dict[str, Any]], tuple[int, bytes] | None]"

STATUSES = {
    "hook-allow": {"allowed": True, "reason": "the hook allows"},
    "hook-deny": {"allowed": False, "denied": True, "reason": "the hook denies"},
    "hook-both": {"allowed": True, "denied": True, "reason": "the hook has both"},
    "hook-silent": {"allowed": False, "reason": "the hook has no opinion"},
}


def reviewed(review: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a review."""
    return {**review, "status": STATUSES.get(review["spec"].get("user"), {"allowed": False})}


def reviewed_user(review: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a TokenReview: a token ``hook-NAME`` is that of the user NAME."""
    token = review["spec"]["token"]
    name = token.removeprefix("hook-").partition("+")[0]
    user = {"username": name, "uid": f"u-{name}", "groups": ["hooked"], "extra": {"example.org/a": ["b"]}}
    status: dict[str, Any] = {"authenticated": token.startswith("hook-")}
    return {**review, "status": {**status, "user": user} if status["authenticated"] else status}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self.connections: list[Any] = []
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection."""
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that do not wait."""


class ReviewWebhook:
    """The webhook, from its creation on.

    :param folder: for its certificate and its kubeconfig.
    :param answer: returns its answer to a review.
    :param port: 0: any free one.
    :ivar kubeconfig: describes it to API servers.
    :ivar reviews: the paths and reviews that it was sent.
    :ivar port: that it listens on.
    :ivar faults: its next answers, before it answers truly.
    """

    def __init__(
        self, folder: Path, answer: Callable[[dict[str, Any]], dict[str, Any]] = reviewed, port: int = 0
    ) -> None:
        self._truth = answer
        self.reviews: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[Fault] = []
        now = time.time()
        authority = self_signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")]), DAY, now)
        issued = authority.server_certificate([LOOPBACK], DAY, now)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name, content in (("hook.crt", issued.certificate_pem), ("hook.key", issued.key_pem)):
            (folder / name).write_bytes(content)
        context.load_cert_chain(folder / "hook.crt", folder / "hook.key")
        server = _Server((LOOPBACK, port), self._handler())
        self.port = server.server_port
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)
        self._thread.start()
        self.kubeconfig = folder / "hook.kubeconfig"
        self.kubeconfig.write_text(self._config(authority.pem))

    def stop(self) -> None:
        """Take no more connections, and end all."""
        self._server.shutdown()
        for each in self._server.connections:
            with contextlib.suppress(OSError):  # it has ended
                socket.socket.shutdown(each, socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(5)

    def _config(self, authority: bytes) -> str:
        cluster = {
            "server": f"https://{LOOPBACK}:{self.port}/authorize/",
            "certificate-authority-data": base64.b64encode(authority).decode(),
        }
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "hook", "cluster": cluster}],
                "users": [{"name": "tower", "user": {"token": "hook-token"}}],
                "contexts": [{"name": "hook", "context": {"cluster": "hook", "user": "tower"}}],
                "current-context": "hook",
            }
        )

    def _answer(self, path: str, review: dict[str, Any]) -> tuple[int, bytes] | None:
        self.reviews.append((path, review))
        if self.faults:
            return self.faults.pop(0)(review)
        return 200, json.dumps(self._truth(review)).encode()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Authorization"] == "Bearer hook-token"
                found = answer(self.path, json.loads(body))
                if found is None:
                    self.close_connection = True
                    return
                self.send_response(found[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(found[1])))
                self.end_headers()
                self.wfile.write(found[1])

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler
