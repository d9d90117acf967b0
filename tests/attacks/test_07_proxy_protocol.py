"""7: behind HAProxy, Tower sees each client's own address, and accepts it only from HAProxy."""

from __future__ import annotations

import contextlib  # trial takes a name `suppress` in a module for its own
import http.client
import http.server
import json
import shutil
import socket
import ssl
import threading
from functools import partial
from typing import ClassVar
from unittest import SkipTest

import yaml

from tests.integration.harness import Tower, TowerTestCase
from tests.integration.person import Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, PATIENCE, Program, is_ready, wait_for

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
BALANCER = "127.0.0.9"  # the address by which HAProxy comes to Tower
CLIENTS = {"v1": "127.0.0.5", "v2": "127.0.0.6", "ssl": "127.0.0.7"}
UNTRUSTED = "127.0.0.8"
SHARE = 20  # unauthenticated connections of one address
CONFIGURATION = """
global
    maxconn 2000
defaults
    mode tcp
    timeout connect 30s
    timeout client 60s
    timeout server 60s
    default-server source {balancer} inter 100ms fall 1 rise 1
listen v1
    bind {loopback}:{v1}
    server tower {loopback}:{secure} send-proxy
listen v2
    bind {loopback}:{v2}
    server tower {loopback}:{secure} send-proxy-v2
listen ssl
    bind {loopback}:{ssl}
    server tower {loopback}:{secure} send-proxy-v2-ssl-cn proxy-v2-options crc32c,unique-id,authority
    unique-id-format %ci-%cp
listen plain
    bind {loopback}:{plain}
    option httpchk GET /health
    server tower {loopback}:{port} send-proxy-v2 check
listen silent
    bind {loopback}:{silent}
    server tower {loopback}:{secure}
"""


class _Backend(http.server.BaseHTTPRequestHandler):
    """An API server that answers with the impersonated user."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.headers.get("X-Forwarded-For", "nobody").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No-op."""


class _Server(http.server.ThreadingHTTPServer):
    """Its server."""

    def handle_error(self, request: object, client_address: object) -> None:
        """No-op: the agent resets connections at its end."""


class _From(http.client.HTTPSConnection):
    """A user's connection through a port of HAProxy, from an address of the user's."""

    def __init__(self, person: Person, port: int, source: str) -> None:
        super().__init__(LOOPBACK, port, context=person.tls, timeout=PATIENCE, source_address=(source, 0))


class BalancedTestCase(TowerTestCase):
    """HAProxy in front of the front door and of the plain port, and a cluster."""

    options: ClassVar[tuple[str, ...]] = ()

    def new_tower(self) -> Tower:
        """Return a Tower that trusts HAProxy."""
        tower = super().new_tower()
        self.audit_log = self.folder / "audit.log"
        tower.proxy = tower.proxy_program(
            f"--proxy-protocol-from=10.0.0.0/8,{BALANCER}",
            f"--audit-log-path={self.audit_log}",
            *self.options,
        )
        return tower

    def setUp(self) -> None:
        """Start all of it."""
        if HAPROXY is None:
            raise SkipTest("no HAProxy")
        super().setUp()
        self.ports = {name: free_port() for name in ("v1", "v2", "ssl", "plain", "silent")}
        configuration = self.folder / "haproxy.cfg"
        configuration.write_text(
            CONFIGURATION.format(
                loopback=LOOPBACK,
                balancer=BALANCER,
                secure=self.tower.secure_port,
                port=self.tower.port,
                **self.ports,
            )
        )
        self.haproxy = Program("haproxy", [HAPROXY, "-db", "-f", str(configuration)], self.folder)
        self.addCleanup(self.haproxy.stop)
        self.haproxy.start()
        wait_for("HAProxy", lambda: is_ready(self.ports["plain"], "/health"))
        server = _Server((LOOPBACK, 0), _Backend)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.kubeconfig = self.folder / "agent.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server.server_address[1])))

    def peers(self) -> list[str]:
        """Return the addresses of agents that connected, from the log."""
        lines = [line for line in self.tower.proxy.output().splitlines() if " connected from " in line]
        return [line.partition(" connected from ")[2].partition(":")[0] for line in lines]


class HAProxyTests(BalancedTestCase):
    """Addresses that Tower sees."""

    def test_users(self) -> None:
        """Cluster, log and audit log have the user's own address, by version 1, version 2 and its TLVs."""
        self.tower.add("alpha", self.kubeconfig, via=self.ports["v2"])
        self.assertEqual(wait_for("the log line", self.peers), [LOOPBACK])
        jane = self.tower.person("alpha", "jane")
        token = self.tower.person("alpha", "joe", "--auth", "token")
        for name, source in CLIENTS.items():
            for person in (jane, token):
                connection = _From(person, self.ports[name], source)
                for _ in range(2):
                    answer = person.ask(connection, f"{person.prefix}/api")
                    self.assertEqual((answer.status, answer.read()), (200, source.encode()), name)
                connection.close()
            unauthenticated = _From(token, self.ports[name], source)
            unauthenticated.request("GET", f"{token.prefix}/api")
            self.assertEqual(unauthenticated.getresponse().status, 401)
            unauthenticated.close()
            wait_for("the log line", partial(self.tells, f" from {source}: 401 "))
        self.assertEqual(self.sources(), set(CLIENTS.values()))
        self.assertNotIn(BALANCER, self.tower.proxy.output())

    def tells(self, words: str) -> bool:
        """Return whether the log has these words."""
        return words in self.tower.proxy.output()

    def sources(self) -> set[str]:
        """Return the addresses that the audit log has for jane and joe."""
        events = wait_for("the audit log", self.events)
        return {address for event in events for address in event["sourceIPs"]}

    def events(self) -> list[dict[str, list[str]]]:
        """Return the last events of the requests to alpha once all are there."""
        lines = [json.loads(line) for line in self.audit_log.read_bytes().splitlines()]
        found = [
            each
            for each in lines
            if each["user"]["username"] in ("jane", "joe") and each["stage"] == "ResponseComplete"
        ]
        return found if len(found) == 4 * len(CLIENTS) else []

    def test_agent_at_plain_port(self) -> None:
        """An agent comes in at the plain port under its own address, and HAProxy's health checks pass."""
        self.tower.tower("cluster", "add", "alpha")
        agent = self.tower.agent("alpha", self.kubeconfig)
        words = list(agent.argv)
        words[words.index("--proxy-server") + 1] = f"ws://{LOOPBACK}:{self.ports['plain']}"
        place = words.index("--ca-hash")
        del words[place : place + 2]
        program = Program("plain-agent", words, self.folder, agent.environment)
        self.addCleanup(program.stop)
        program.start()
        wait_for("the agent", lambda: is_ready(agent.health_port))
        self.assertEqual(wait_for("the log line", self.peers), [LOOPBACK])
        self.assertNotIn("DOWN", self.haproxy.output())

    def test_header_is_required(self) -> None:
        """A connection of the balancer without a header is closed, with one log line."""
        self.tower.tower("cluster", "add", "alpha")
        jane = self.tower.person("alpha", "jane")
        for _ in range(5):
            with self.assertRaises((OSError, http.client.HTTPException)):
                jane.ask(_From(jane, self.ports["silent"], CLIENTS["v1"]), f"{jane.prefix}/api")
        wait_for("the line", lambda: "PROXY protocol" in self.tower.proxy.output())
        lines = [line for line in self.tower.proxy.output().splitlines() if "PROXY protocol" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn(BALANCER, lines[0])

    def test_forged(self) -> None:
        """Headers from other clients are ordinary bytes: a bad request, and not TLS."""
        forged = b"PROXY TCP4 192.0.2.66 127.0.0.1 1 1\r\n"
        v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([192, 0, 2, 66, 127, 0, 0, 1, 0, 1, 0, 1])
        request = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
        for header in (forged, v2):
            self.assertTrue(self.say(self.tower.port, header + request).startswith(b"HTTP/1.1 400 "), header)
            self.assertNotIn(b"HTTP", self.say(self.tower.secure_port, header + request))
        self.assertTrue(self.say(self.tower.port, request).startswith(b"HTTP/1.1 200 "))
        self.assertNotIn("192.0.2.66", self.tower.proxy.output())

    def say(self, port: int, data: bytes) -> bytes:
        """Send *data* without authentication; return the answer."""
        with socket.create_connection((LOOPBACK, port), PATIENCE, source_address=(UNTRUSTED, 0)) as sock:
            sock.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                return sock.recv(65536)
            return b""


class ShareTests(BalancedTestCase):
    """The limits of one address apply to the address from the balancer."""

    options = (f"--max-connections-per-address={SHARE}",)

    def test_share(self) -> None:
        """One client of HAProxy has a limited number of silent connections; another keeps its own."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

        def come(source: str) -> socket.socket:
            plain = socket.create_connection(
                (LOOPBACK, self.ports["v2"]), PATIENCE, source_address=(source, 0)
            )
            secure = tls.wrap_socket(plain)
            self.addCleanup(secure.close)
            return secure

        other = come(CLIENTS["v1"])
        many = [come(CLIENTS["v2"]) for _ in range(SHARE + 10)]
        for each in many[:10]:
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(each.recv(1), b"")
        for each in (other, *many[10:]):
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertTrue(each.recv(65536).startswith(b"HTTP/1.1 200 "))


def _kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": f"http://{LOOPBACK}:{port}"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
