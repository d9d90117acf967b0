"""An API server that answers every request, and records on whose behalf they came."""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.programs import LOOPBACK


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that leave."""


class OpenServer:
    """Runs in threads of the test.

    :ivar users: requests by impersonated user; `groups`: by group.
    """

    def __init__(self, folder: Path) -> None:
        self.users: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        users, groups = self.users, self.groups

        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers."""

            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self._answer
                raise AttributeError(name)

            def _answer(self) -> None:
                if "Via" in self.headers:  # else the agent itself asks
                    users.update(self.headers.get_all("Impersonate-User") or [""])
                    groups.update(self.headers.get_all("Impersonate-Group") or [])
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.close_connection = "Transfer-Encoding" in self.headers
                self.send_response(403 if "Upgrade" in self.headers else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing."""

        self._server = _Server((LOOPBACK, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "it", "cluster": {"server": f"http://{LOOPBACK}:{self._server.server_port}"}}
            ],
            "users": [{"name": "agent", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
            "current-context": "it",
        }
        self.kubeconfig = folder / "open.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
