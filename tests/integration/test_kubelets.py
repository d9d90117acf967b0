"""Kubelets as a target: the member authorizes users, and the proxy's credential is sent."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
import ssl
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import common_name
from tests.integration.harness import Tower
from tests.integration.node_fleet_kit import CLUSTER, NodeFleet, message, wait_until_open
from tests.integration.person import Answer, Person
from tests.integration.programs import LOOPBACK
from tower.net.tls.client_certificate import load_pair
from tower.trust.pki import Authority, self_signed

DAY = 86400.0
TOKEN = "what-the-proxy-keeps-for-beta"
PATIENCE = 60.0  # s for an answer


class Handler(BaseHTTPRequestHandler):
    """Records each request; an API server that reviews access, or a kubelet that echoes."""

    protocol_version = "HTTP/1.1"
    server: Server

    def handle_any(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path, self.headers, body))
        if self.headers.get("Upgrade") == "echo":
            self.echo()
            return
        answer = self.path.encode()
        if self.path.endswith("/selfsubjectaccessreviews"):
            user, wanted = self.headers["Impersonate-User"], json.loads(body)["spec"]["resourceAttributes"]
            allowed = wanted["verb"] in self.server.rights.get(user, ())
            answer = json.dumps({"status": {"allowed": allowed, "reason": "test policy"}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_POST = do_HEAD = do_DELETE = handle_any

    def echo(self) -> None:
        """Change the protocol, and echo."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "echo")
        self.end_headers()
        while data := self.connection.recv(4096):
            self.connection.sendall(data)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """With TLS.

    :param names: of its certificate.
    :param host: its only address.
    :ivar requests: method, path, header and body of each so far.
    :ivar rights: what each user may do at nodes: the verbs.
    """

    daemon_threads = True
    rights: ClassVar[dict[str, tuple[str, ...]]] = {"jane": ("get",), "root": ("get", "create")}

    def __init__(self, authority: Authority, names: list[str], host: str) -> None:
        super().__init__((host, 0), Handler)
        issued = authority.server_certificate(names, DAY, time.time())
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(self._tls, issued.certificate_pem, issued.key_pem)
        self.requests: list[tuple[str, str, Any, bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.server_address[1])

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Complete the handshake in a thread of the connection."""
        try:
            secure = self._tls.wrap_socket(request, server_side=True)
        except OSError:
            request.close()
            return
        super().process_request_thread(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about broken connections."""

    def stop(self) -> None:
        """End it."""
        self.shutdown()
        self.server_close()


class KubeletTests(SynchronousTestCase):
    """A proxy, two nodes, an API server and a kubelet, which both nodes have on their loopback."""

    def setUp(self) -> None:
        """Start all of it."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-kubelets-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.fleet = NodeFleet(self.folder / "fleet", 2)
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        self.hosts = [node.host for node in self.fleet.nodes]
        self.authority = self_signed(common_name("member"), DAY, time.time())
        self.kubelets_authority = self_signed(common_name("kubelets"), DAY, time.time())
        self.api = self.server(self.authority, [LOOPBACK])
        self.kubelet = self.server(self.kubelets_authority, self.hosts)
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.start()
        self.fleet.add_to(self.tower, self.kubeconfig(), "--kubelet-port", str(self.kubelet.port))
        wait_until_open(self.tower, self.fleet.nodes)
        self.jane = self.tower.person(CLUSTER, "jane", "--group", "dev")
        self.target = f"/targets/kubelet/{self.hosts[0]}"

    def server(self, authority: Authority, names: list[str], host: str = LOOPBACK) -> Server:
        """Start one."""
        server = Server(authority, names, host)
        self.addCleanup(server.stop)
        return server

    def kubeconfig(self) -> Path:
        """Return the proxy's access to the API server."""
        cluster = {
            "server": f"https://{LOOPBACK}:{self.api.port}",
            "certificate-authority-data": base64.b64encode(self.authority.pem).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": TOKEN}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
        path = self.folder / "member.kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(config))
        return path

    def trust(self) -> None:
        """Set the CA of the kubelets."""
        path = self.fleet.folder / "kubelets.crt"
        path.write_bytes(self.kubelets_authority.pem)
        self.tower.tower("cluster", "set", CLUSTER, "--kubelet-certificate-authority", str(path))

    def reviews(self) -> list[tuple[str, str]]:
        """Return the reviewed users, and the verbs."""
        return [
            (header["Impersonate-User"], json.loads(body)["spec"]["resourceAttributes"]["verb"])
            for _, path, header, body in self.api.requests
            if path.endswith("/selfsubjectaccessreviews")
        ]

    def test_authorized(self) -> None:
        """The member authorizes the user; the kubelet receives the proxy's credential only."""
        self.trust()
        for _ in range(3):
            answer = self.jane.get(f"{self.target}/stats/summary?only_cpu=true")
            self.assertEqual((answer.status, answer.body), (200, b"/stats/summary?only_cpu=true"))
        self.assertEqual(self.reviews(), [("jane", "get")])
        self.assertEqual(len(self.kubelet.requests), 3)
        for _, _, header, _ in self.kubelet.requests:
            self.assertEqual(header.get_all("Authorization"), [f"Bearer {TOKEN}"])
            self.assertEqual([name for name in header if name.lower().startswith("impersonate")], [])
        answer = self.jane.request("POST", f"{self.jane.prefix}{self.target}/run/a/b/c", body=b"cmd=ls")
        self.assertEqual(answer.status, 403)
        self.assertIn(
            f'nodes "{self.hosts[0]}" is forbidden: User "jane" cannot create resource "nodes/proxy" '
            'in API group "" at the cluster scope: the API server reports: "test policy"',
            message(answer.body),
        )
        self.assertEqual(self.jane.get("/targets/kubelet/n9/pods").status, 404)
        self.assertEqual(len(self.kubelet.requests), 3)
        self.assertNotIn(TOKEN, self.tower.proxy.output())

    def test_commands(self) -> None:
        """Protocols that run commands go through, for those who may create; the method does not matter."""
        self.trust()
        path = f"{self.target}/exec/default/shell/main?command=ls"
        self.assertIn(b" 403 ", self.upgrade(self.jane, path)[0])
        root = self.tower.person(CLUSTER, "root")
        head, stream = self.upgrade(root, path)
        self.assertIn(b" 101 ", head)
        sent = bytes(range(256)) * 400
        stream.sendall(sent)
        got = b""
        while len(got) < len(sent):
            got += stream.recv(65536)
        self.assertEqual(got, sent)
        stream.close()
        self.assertEqual([request[1] for request in self.kubelet.requests], [path.removeprefix(self.target)])
        self.assertEqual(self.reviews(), [("jane", "create"), ("root", "create")])

    def upgrade(self, person: Person, path: str) -> tuple[bytes, ssl.SSLSocket]:
        """Request another protocol; return the head of the response and the connection."""
        plain = socket.create_connection((person.host, person.port), PATIENCE)
        stream = person.tls.wrap_socket(plain, server_hostname=person.host)
        self.addCleanup(stream.close)
        fields = [f"GET {person.prefix}{path} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: echo"]
        fields += [f"{name}: {value}" for name, value in person.headers().items()]
        stream.sendall("\r\n".join([*fields, "", ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = stream.recv(1)
            assert byte, head
            head += byte
        return head, stream

    def test_verified(self) -> None:
        """A kubelet with an unknown CA does not receive the credential, unless verification is turned off."""
        answer = self.jane.get(f"{self.target}/pods")
        self.assertEqual(answer.status, 503)
        self.assertIn("certificate verify failed", message(answer.body))
        self.assertIn("--kubelet-certificate-authority", message(answer.body))
        self.assertEqual(self.kubelet.requests, [])
        self.trust()
        self.assertEqual(self.jane.get(f"{self.target}/pods").status, 200)
        self.tower.tower(
            *("cluster", "set", CLUSTER, "--kubelet-certificate-authority", ""),
            "--insecure-skip-kubelet-tls-verify",
        )
        self.assertEqual(self.jane.get(f"{self.target}/pods").status, 200)

    def test_own_address(self) -> None:
        """A kubelet that listens at its node's own address alone is reached by that node all the same."""
        node = self.fleet.nodes[0]
        kubelet = self.server(self.kubelets_authority, self.hosts, node.host)
        self.trust()
        self.tower.tower("cluster", "set", CLUSTER, "--kubelet-port", str(kubelet.port))
        for _ in range(2):
            answer = self.jane.get(f"{self.target}/pods")
            self.assertEqual((answer.status, answer.body), (200, b"/pods"))
        self.assertEqual(len(kubelet.requests), 2)
        self.fleet.nodes[1].kill()  # the kubelet is reached through node 1 itself
        self.assertEqual(self.jane.get(f"{self.target}/pods").status, 200)
        answer = self.jane.get(f"/targets/kubelet/{self.hosts[1]}/pods")
        self.assertEqual(answer.status, 400, answer.body)  # node 1 would dial its own loopback
        self.assertIn("address not allowed: other nodes do not dial 127.0.", message(answer.body))
        self.assertEqual(len(kubelet.requests), 3)

    def test_switched_off(self) -> None:
        """A kubelet is not a target while kubelets are turned off."""
        self.tower.tower("cluster", "set", CLUSTER, "--kubelet-port", "0")
        answer: Answer = self.jane.get(f"{self.target}/pods")
        self.assertEqual(answer.status, 404)
        self.assertEqual(self.reviews(), [])

    def test_page(self) -> None:
        """The health of listings and tunnels is served on both ports, without authentication."""
        secure = ssl.create_default_context(cadata=self.jane.ca)
        for connection in (
            http.client.HTTPConnection(LOOPBACK, self.tower.port, timeout=PATIENCE),
            http.client.HTTPSConnection(LOOPBACK, self.tower.secure_port, context=secure, timeout=PATIENCE),
        ):
            self.addCleanup(connection.close)
            connection.request("GET", "/healthz/ssh-tunnel")
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b"ok"))
