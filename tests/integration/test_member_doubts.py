"""A request that the API server rejects because of the agent is a reason to check it at once."""

from __future__ import annotations

import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.integration import harness
from tests.integration.programs import LOOPBACK, wait_for
from tower.member.member_health import PAUSE, PERIOD

#: Time within which a request shows in the agent's health page and in the conditions, s; without a request it
#: takes a period or more.
AT_ONCE = 8.0


class ChangingServer(ThreadingHTTPServer):
    """An API server whose answers the test changes.

    :ivar is_rejecting: whether it rejects all credentials.
    :ivar is_denying: whether it denies impersonation.
    :ivar reviews: number of reviews of the right to impersonate.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.is_rejecting = self.is_denying = False
        self.reviews = 0
        super().__init__((LOOPBACK, 0), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *args: object) -> None:
        """No-op: clients disconnect at any time."""

    def answer(self, path: str, *, is_user: bool) -> tuple[int, dict[str, Any]]:
        """Return code and object for a request."""
        if self.is_rejecting:
            return 401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized", "code": 401}
        if is_user and self.is_denying:
            message = 'users "jane" is forbidden: User "agent" cannot impersonate resource "users"'
            return 403, {"kind": "Status", "reason": "Forbidden", "message": message, "code": 403}
        if path.endswith("/selfsubjectreviews"):
            return 201, {"status": {"userInfo": {"username": "agent"}}}
        if path.endswith("/selfsubjectaccessreviews"):
            self.reviews += 1
            return 201, {"status": {"allowed": not self.is_denying}}
        if path.endswith("/selfsubjectrulesreviews"):
            return 201, {"status": {"resourceRules": []}}
        return 200, {"gitVersion": "v1.36.2"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChangingServer

    def do_GET(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_user = "Impersonate-User" in self.headers
        code, value = self.server.answer(self.path, is_user=is_user)
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        """No-op."""


class DoubtTests(harness.TowerTestCase):
    """An agent whose API server changes directly after a check."""

    def setUp(self) -> None:
        """Start the API server and the agent."""
        super().setUp()
        self.server = ChangingServer()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        config = {
            "clusters": [
                {"name": "it", "cluster": {"server": f"http://{LOOPBACK}:{self.server.server_port}"}}
            ],
            "users": [{"name": "agent", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
            "current-context": "it",
        }
        path = self.folder / "alpha.kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(config))
        self.agent = self.tower.add("alpha", path)
        self.user = self.tower.person("alpha", "jane")

    def page(self) -> str:
        """Return the agent's health page."""
        connection = http.client.HTTPConnection(LOOPBACK, self.agent.health_port, timeout=AT_ONCE)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def shows(self, reason: str) -> bool:
        """Return whether the condition ``Available`` has *reason*."""
        conditions = self.tower.status("alpha")["status"]["conditions"]
        return any(each["type"] == "Available" and each["reason"] == reason for each in conditions)

    def next_check(self) -> None:
        """Wait for the end of a periodic check: the next one is a period away."""
        before = self.server.reviews
        wait_for("a check", lambda: self.server.reviews >= before + 2, PERIOD + AT_ONCE, 0.02)
        time.sleep(0.5)

    def test_at_once(self) -> None:
        """A 401 and a 403 because of impersonation show at once, and so does the repair."""
        self.next_check()
        self.server.is_denying = True
        self.assertEqual(self.user.get("/api/v1/pods").status, 502)
        wait_for("the denial on the page", lambda: "not allowed to impersonate" in self.page(), AT_ONCE, 0.1)
        wait_for("the denial in the conditions", lambda: self.shows("ImpersonationDenied"), AT_ONCE, 0.1)
        began, before = time.monotonic(), self.server.reviews
        for _ in range(200):
            self.user.get("/api/v1/pods")
        checks = (time.monotonic() - began) / PAUSE + 2
        self.assertLess(self.server.reviews - before, 12 * checks, "a check for each request")
        self.server.is_denying = False
        wait_for("the repair", self.works, 3 * PAUSE, 0.2)
        time.sleep(PAUSE)
        self.server.is_rejecting = True
        self.assertEqual(self.user.get("/api/v1/pods").status, 502)
        wait_for("the rejection on the page", lambda: "no credential" in self.page(), AT_ONCE, 0.1)
        wait_for("the rejection in the conditions", lambda: self.shows("CredentialMissing"), AT_ONCE, 0.1)

    def works(self) -> bool:
        """Return whether a request succeeds, and the conditions show it."""
        return self.user.get("/version").status == 200 and self.shows("Ready")
