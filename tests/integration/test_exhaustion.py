"""Programs without a file descriptor left, and thousands of connections that never finish a handshake."""

from __future__ import annotations

import contextlib  # trial takes a name `suppress` in a module for its own
import http.client
import json
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, Program, wait_for

MIB = 2**20
SPARE = 40  # descriptors that a program gets above its current number
CROWD = 60  # clients that still connect
WINDOW = 2.0  # s in which the log and the CPU are watched
RECOVERY = 60.0  # s
EACH = 500  # unfinished handshakes of each kind
AFTER = 0.02  # s between one and the next that comes later
FIRST_BYTE = 30.0  # s that a connection has for its first request
SLACK = 60.0  # s
PER_CONNECTION = 96 * 1024  # B of memory that an unfinished handshake may cost
WELCOME = 60.0  # s for an agent to get through
UPGRADE = (
    b"GET /agent HTTP/1.1\r\nHost: tower\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: tower-v2\r\n\r\n"
)


class DescriptorTests(harness.TowerTestCase):
    """The limit of a running program is set to slightly more than it uses."""

    def setUp(self) -> None:
        """Start a working cluster."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.agent = self.tower.add(
            "alpha", self.backend.kubeconfig("alpha"), self.backend.target("alpha", "raw")
        )
        self.jane = self.tower.person("alpha", "jane")

    def limit(self, program: Program) -> None:
        """Leave a program few descriptors."""
        limits = resource.prlimit(program.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (program.descriptors() + SPARE, limits[1]))

    def test_proxy(self) -> None:
        """Newcomers wait while authenticated users are served; the log reports it once."""
        proxy = self.tower.proxy
        kept = self.jane.connect()
        self.addCleanup(kept.close)
        self.assertEqual(ping(self.jane, kept), 200)
        self.limit(proxy)
        crowd: list[http.client.HTTPSConnection] = []
        while "accepts no connections for now" not in proxy.output():
            self.assertLess(len(crowd), CROWD)
            crowd.append(self.jane.connect())
            self.addCleanup(crowd[-1].close)
            self.assertEqual(ping(self.jane, crowd[-1]), 200)
        waiting = [
            socket.create_connection((LOOPBACK, self.tower.secure_port), RECOVERY) for _ in range(CROWD)
        ]
        for sock in waiting:
            self.addCleanup(sock.close)
        lines, used = len(proxy.output().splitlines()), cpu(proxy)
        deadline = time.monotonic() + WINDOW
        while time.monotonic() < deadline:
            self.assertEqual(ping(self.jane, kept), 200)
            time.sleep(0.1)
        self.assertLess(cpu(proxy) - used, WINDOW / 2)
        self.assertLess(len(proxy.output().splitlines()) - lines, 5)
        self.assertTrue(self.agent.ready())
        self.assertEqual([ping(self.jane, each) for each in crowd], [200] * len(crowd))
        for each in crowd:
            each.close()
        for sock in waiting:
            sock.close()
        began = time.monotonic()
        self.assertEqual(self.jane.get("/ping").status, 200)
        self.assertLess(time.monotonic() - began, RECOVERY)
        wait_for("the word that it goes on", lambda: "accepts connections again" in proxy.output(), RECOVERY)
        self.assertEqual(proxy.output().count("accepts no connections for now"), 1)
        self.assertNotIn("Traceback", proxy.output())

    def test_agent(self) -> None:
        """Requests that need one more connection get a Status with the reason; others are served."""
        program = self.agent.program
        kept = self.jane.connect()
        self.addCleanup(kept.close)
        self.assertEqual(ping(self.jane, kept), 200)
        self.limit(program)
        streams = [self.jane.connect() for _ in range(CROWD)]
        for each in streams:
            self.addCleanup(each.close)
            each.putrequest("POST", f"{self.jane.prefix}/sink")
            for name, value in {**self.jane.headers(), "Content-Length": str(MIB)}.items():
                each.putheader(name, value)
            each.endheaders(b"x")
        refused: list[tuple[int, bytes]] = []

        def listen(connection: http.client.HTTPSConnection) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):  # read until the test ends
                answer = connection.getresponse()
                refused.append((answer.status, answer.read()))

        listeners = [threading.Thread(target=listen, args=(each,), daemon=True) for each in streams]
        for thread in listeners:
            thread.start()
        wait_for("refusals", lambda: len(refused) > CROWD / 3)
        for code, body in refused:
            status = json.loads(body)
            self.assertIn(code, (502, 503))
            self.assertEqual((status["kind"], status["code"]), ("Status", code))
            self.assertIn("too many open files", status["message"])
        self.assertTrue(self.agent.ready())
        self.assertLess(len(refused), CROWD)
        for each in streams:
            with contextlib.suppress(OSError):
                if each.sock is not None:  # else it was refused
                    each.sock.shutdown(socket.SHUT_RDWR)
        for thread in listeners:
            thread.join(RECOVERY)
        wait_for("a new stream", lambda: self.jane.get("/ping").status == 200, RECOVERY)
        self.assertNotIn("Traceback", program.output())
        self.assertLess(len(program.output().splitlines()), 3 * CROWD)


class CrowdTests(harness.TowerTestCase):
    """Thousands of clients send nothing, or too little, from one address that may have all connections."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower without limits by address."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program("--max-connections-per-address=0")
        return tower

    def setUp(self) -> None:
        """Start a working cluster, with enough descriptors for ourselves."""
        super().setUp()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.agent = self.tower.add("alpha", self.backend.kubeconfig("alpha"))
        self.jane = self.tower.person("alpha", "jane")
        self.crowd: list[socket.socket] = []

    def come(self, port: int, *, says: bytes = b"", tls: ssl.SSLContext | None = None) -> None:
        """Connect and send an incomplete message."""
        plain = socket.create_connection((LOOPBACK, port), RECOVERY)
        sock = plain if tls is None else tls.wrap_socket(plain)
        self.crowd.append(sock)
        self.addCleanup(sock.close)
        sock.sendall(says)

    def test_unfinished(self) -> None:
        """They cost little, users and agents still get through, and finally all are disconnected."""
        proxy = self.tower.proxy
        kept = self.jane.connect()
        self.addCleanup(kept.close)
        self.assertEqual(ping(self.jane, kept), 200)
        memory, descriptors = proxy.memory(), proxy.descriptors()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        hello = half_a_hello()
        for _ in range(EACH):
            self.come(self.tower.secure_port)
            self.come(self.tower.secure_port, says=hello)
            self.come(self.tower.secure_port, tls=tls)
            self.come(self.tower.port, says=UPGRADE)
        self.assertLess(proxy.memory() - memory, len(self.crowd) * PER_CONNECTION)
        for _ in range(5):
            self.assertEqual(self.jane.get("/ping").status, 200)
            self.assertEqual(ping(self.jane, kept), 200)
        self.assertTrue(self.agent.ready())
        self.agent.program.stop()
        self.agent.program.start()
        with self.more():
            self.agent.wait_until_ready(WELCOME)
        self.assertEqual(self.jane.get("/ping").status, 200)
        wait_for("the end of them", lambda: proxy.descriptors() <= descriptors + 2, FIRST_BYTE + SLACK, 0.5)
        self.assertNotIn("Traceback", proxy.output())
        self.assertLess(proxy.output().count("agent connection"), 3)

    @contextlib.contextmanager
    def more(self) -> Iterator[None]:
        """Connect more agents that send nothing, one after the other."""
        over = threading.Event()

        def come() -> None:
            while not over.wait(AFTER):
                self.come(self.tower.port, says=UPGRADE)

        thread = threading.Thread(target=come, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(SLACK)


def half_a_hello() -> bytes:
    """Return the first half of a TLS ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


def ping(person: Person, connection: http.client.HTTPSConnection) -> int:
    """Send a request on an open connection; return the status."""
    answer = person.ask(connection, f"{person.prefix}/ping")
    answer.read()
    return answer.status


def cpu(program: Program) -> float:
    """Return the CPU time that a program has used, s."""
    with open(f"/proc/{program.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
