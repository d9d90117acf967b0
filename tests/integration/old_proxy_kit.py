"""A member with an API server, and our agent for an old proxy, as real processes."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import re
import shutil
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.backends import Backend
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, is_ready, script, wait_for

CLUSTER = "alpha"
TOKEN = "0123456789abcdef-token-of-alpha"
BEARER = "bearer-of-the-agent-0123456789"
KEEPALIVE = 1.0  # s
MIB = 1 << 20
ANYBODY = "--insecure-v1-any-host-key"


class APIServer:
    """Returns the authenticated user, over TLS.

    :ivar seen: the ``Authorization`` of each request except those of the agent's checks.
    :ivar rejected: the ``Authorization`` that gets 401.
    """

    def __init__(self, folder: Path) -> None:
        backend = Backend(folder)  # for its certificate
        seen = self.seen = list[str]()
        self.rejected = "nothing"
        this = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                authorization = self.headers.get("Authorization", "")
                if self.headers.get("User-Agent") != "tower-agent":
                    seen.append(authorization)
                self.send_response(401 if authorization == this.rejected else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "backend.crt", folder / "backend.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.token = folder / "bearer"
        self.token.write_text(BEARER + "\n")
        authority = folder / "backend-ca.crt"
        authority.write_bytes(backend.authority)
        self.port: int = self._server.server_address[1]
        server = {"server": f"https://{LOOPBACK}:{self.port}", "certificate-authority": str(authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": server}],
            "users": [{"name": "agent", "user": {"tokenFile": str(self.token)}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
            "current-context": "it",
        }
        self.kubeconfig = folder / "agent.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class Listener:
    """A plain TCP service, one thread for each connection.

    :ivar connections: their number so far.
    """

    def __init__(self, serve: Any) -> None:
        self._serve = serve
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            self._serve(sock)

    def close(self) -> None:
        """Stop accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def copy_both_directions(near: socket.socket, far: socket.socket) -> None:
    """Forward bytes until both sides have ended."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(64 * 1024):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    there = threading.Thread(target=copy, args=(near, far), daemon=True)
    there.start()
    copy(far, near)
    there.join(10)


class OldProxyTestCase(SynchronousTestCase):
    """A member with an API server, and an agent that is not started."""

    def setUp(self) -> None:
        """Make a folder and an API server."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.api = APIServer(self.folder)
        self.addCleanup(self.api.stop)
        self.health_port = free_port()
        self.token_file = self.folder / "cluster-token"

    def start_agent(self, url: str, *extra: str, token: str = TOKEN, name: str = CLUSTER) -> Program:
        """Start the agent; at the end its log must not contain any secret."""
        argv = [
            *(script("twistd"), "-n", "--pidfile=", "tower-agent"),
            f"--name={name}",
            f"--proxy-server={url}",
            f"--state-dir={self.folder / 'agent'}",
            f"--kubeconfig={self.api.kubeconfig}",
            f"--health-address={LOOPBACK}:{self.health_port}",
            f"--keepalive={KEEPALIVE:g}s",
            *("--max-retry-interval=50ms", "--grace=0.1s", "--v=5"),
            *extra,
        ]
        self.token_file.write_text(f"{token}\n")
        self.agent = Program("tower-agent", argv, self.folder, {"TOWER_TOKEN_FILE": str(self.token_file)})
        self.agent.start()
        self.addCleanup(self._judge, token)
        return self.agent

    def _judge(self, token: str) -> None:
        running = self.agent.running()
        self.agent.stop()
        logged = self.agent.output()
        self.assertTrue(running, logged[-2000:])
        self.assertNotIn("Traceback", logged)
        for secret in (token, BEARER):
            self.assertNotIn(secret, logged)

    def is_ready(self) -> bool:
        """Return whether the agent's health page reports that its tunnel is up."""
        return is_ready(self.health_port)

    def wait_until_ready(self, *, ready: bool = True) -> None:
        """Return when the tunnel is up, or down."""
        what = f"ready = {ready}"
        wait_for(what, lambda: self.is_ready() is ready)

    def wait_for_line(self, pattern: str) -> None:
        """Return when the agent has logged a line that matches *pattern*."""
        wait_for(f"{pattern!r} of the agent", lambda: re.search(pattern, self.agent.output()) is not None)
