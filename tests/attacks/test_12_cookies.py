"""Item 12: effects of a member's answers on the host that it shares with others."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

from tests.integration import harness
from tests.integration.person import Person
from tests.integration.raw_peer import read_head
from tests.integration.threaded import ThreadedServer

COOKIE = b"session=of-alpha"
SHARED = (
    (b"Strict-Transport-Security", b"max-age=31536000; includeSubDomains"),
    (b"Clear-Site-Data", b'"cookies", "storage"'),
    (b"aLT-sVC", b'h3="evil.example:443"; ma=86400'),
    (b"Service-Worker-Allowed", b"/"),
    (b"NEL", b'{"report_to":"x","max_age":86400}'),
)
FIELDS = b"".join(b"%b: %b\r\n" % field for field in SHARED)


class Member(ThreadedServer):
    """A hostile API server that acts on its whole host; ``/home`` wants its cookie.

    :ivar heads: of the requests so far.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, contextlib.suppress(Exception):
            while True:
                head = read_head(connection)
                self.heads.append(head)
                path = head.split(b" ")[1]
                connection.sendall(self._answer(path, head))
                if path.endswith(b"/ws"):
                    return

    def _answer(self, path: bytes, head: bytes) -> bytes:
        cookie = b"Set-Cookie: %b; Path=/; Domain=127.0.0.1; HttpOnly\r\n" % COOKIE
        if path.endswith(b"/ws"):
            return (
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + FIELDS + cookie + b"\r\n"
            )  # fmt: skip
        if path.endswith(b"/early"):
            early = b"HTTP/1.1 103 Early Hints\r\n" + FIELDS + cookie + b"\r\n"
            return early + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        if path.endswith(b"/trailers"):
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
            return head + cookie + b"\r\n"
        if path.endswith(b"/home") and COOKIE not in head:
            return b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        return b"HTTP/1.1 200 OK\r\n" + FIELDS + cookie + b"Content-Length: 7\r\n\r\nwelcome"

    def kubeconfig(self, folder: Path, name: str) -> Path:
        """Return a kubeconfig for its agent."""
        path = folder / f"{name}.kubeconfig"
        path.write_text(
            "{apiVersion: v1, kind: Config, current-context: it, users: [{name: a, user: {}}],"
            "contexts: [{name: it, context: {cluster: it, user: a}}],"
            f"clusters: [{{name: it, cluster: {{server: 'http://127.0.0.1:{self.port}'}}}}]}}"
        )
        return path


class CookieTests(harness.TowerTestCase):
    """A browser that visits alpha, and then beta, through the same front door."""

    def setUp(self) -> None:
        """Start two clusters; the API server of one is also a target."""
        super().setUp()
        self.members = {name: Member() for name in ("alpha", "beta")}
        for name, member in self.members.items():
            self.addCleanup(member.close)
            wiki = f"--target=wiki=127.0.0.1:{self.members['alpha'].port}"
            self.tower.add(name, member.kubeconfig(self.folder, name), harness.PATIENT, wiki)
        self.users = {name: self.tower.person(name, "jane", "--auth", "token") for name in self.members}
        self.jar = CookieJar()

    def browse(self, path: str) -> int:
        """Get *path* of the front door with a browser's single cookie jar; return the status."""
        person = self.users["beta" if "/beta/" in path else "alpha"]
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=person.tls), urllib.request.HTTPCookieProcessor(self.jar)
        )
        url = f"https://{person.host}:{self.tower.secure_port}{path}"
        asking = urllib.request.Request(url, headers=person.headers())
        try:
            with opener.open(asking, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            e.close()
            return e.code

    def raw(self, person: Person, path: str, *fields: str, port: int | None = None) -> bytes:
        """Return everything that a user gets for one request, up to the end of the connection."""
        connection = person.connect(port)
        connection.connect()
        lines = [f"GET {path} HTTP/1.1", "Host: x", *(fields or ("Connection: close",))]
        lines += [f"{name}: {value}" for name, value in person.headers().items()]
        connection.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        answer = b""
        with contextlib.suppress(OSError):  # a bad answer is cut
            while data := connection.sock.recv(65536):
                answer += data
        connection.close()
        return answer

    def test_login(self) -> None:
        """Alpha's login works, and neither beta nor a target of alpha's gets its cookie."""
        self.assertEqual(self.browse("/clusters/alpha/home"), 403)
        self.assertEqual(self.browse("/clusters/alpha/login"), 200)
        self.assertEqual(self.browse("/clusters/alpha/home"), 200)
        self.assertEqual(self.browse("/clusters/beta/home"), 403)
        self.assertEqual(self.browse("/clusters/beta/login"), 200)
        self.assertNotIn(b"cookie", b"".join(self.members["beta"].heads).lower())
        self.jar.clear()
        for path in ("/clusters/alpha/targets/wiki/login", "/clusters/alpha/targets/wiki/home"):
            self.assertEqual(self.browse(path), 200)
        self.assertEqual(self.browse("/clusters/alpha/home"), 403)
        self.assertEqual(self.browse("/clusters/beta/targets/wiki/home"), 403)

    def test_without_the_cluster(self) -> None:
        """Without the cluster's prefix, an answer may only set a cookie for that cluster, too."""
        self.assertEqual(self.browse("/api/v1/login"), 200)
        (cookie,) = self.jar
        self.assertEqual((cookie.path, cookie.domain_specified), ("/clusters/alpha/", False))

    def test_fields(self) -> None:
        """Fields that act on the host are dropped; in trailers they end the answer."""
        alpha = self.users["alpha"]
        upgrade = ("Connection: Upgrade", "Upgrade: websocket")
        for prefix in ("/clusters/alpha", "/clusters/alpha/targets/wiki"):
            scope = prefix.encode()
            for rest, fields in (("/x", ()), ("/early", ()), ("/ws", upgrade)):
                answer = self.raw(alpha, prefix + rest, *fields)
                self.assertIn(b"Set-Cookie: %b; Path=%b/; HttpOnly\r\n" % (COOKIE, scope), answer)
                self.assertNotIn(b"domain", answer.lower())
                for name, _ in SHARED:
                    self.assertNotIn(b"\r\n%b:" % name.lower(), answer.lower())
            answer = self.raw(alpha, prefix + "/trailers")
            self.assertNotIn(COOKIE, answer)
            self.assertFalse(answer.endswith(b"\r\n0\r\n\r\n"), answer)

    def test_ports(self) -> None:
        """A cluster's own port passes all of it: its host is the cluster's own."""
        port = self.tower.cluster_port("alpha")
        upgrade = ("Connection: Upgrade", "Upgrade: websocket")
        for rest, fields in (("/x", ()), ("/early", ()), ("/ws", upgrade), ("/trailers", ())):
            answer = self.raw(self.users["alpha"], rest, *fields, port=port)
            self.assertIn(COOKIE + b"; Path=/; Domain=127.0.0.1; HttpOnly\r\n", answer)
            if rest != "/trailers":
                self.assertIn(FIELDS, answer)
