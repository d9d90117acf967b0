"""The access log, the audit log and the metrics agree with the requests that clients made."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.integration import harness
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, script, wait_for
from tests.integration.threaded import ThreadedServer

SLOW = 20.0  # s until the answer of a slow API server
HUGE = 6 * 1024 * 1024  # B, more than all buffers
STEP = 64 * 1024  # B
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PODS = "/api/v1/namespaces/default/pods"
LIST = {"verb": "list", "resource": "pods", "namespace": "default", "kind": "short"}
GET = {**LIST, "verb": "get"}
REQUESTS = "tower_requests_total"
STREAMS = {"watch", "logs", "exec", "portforward"}

_HEAD = re.compile(r"(\S+) (\S+) HTTP/1\.1\r\n(.*)\r\n\r\n", re.DOTALL)


class Member(ThreadedServer):
    """An API server whose answers depend on the path."""

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, contextlib.suppress(OSError):
            while head := self.head(connection):
                self.answer(connection, *head)

    def head(self, connection: socket.socket) -> tuple[str, bytes] | None:
        """Return path and ``Audit-Id`` line of a request without a body."""
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            if not (piece := connection.recv(65536)):
                return None
            data += piece
        match = _HEAD.fullmatch(data.decode("latin-1"))
        assert match is not None, data
        fields = dict(line.lower().split(": ", 1) for line in match[3].split("\r\n"))
        return match[2], f"Audit-Id: {fields.get('audit-id', '')}\r\n".encode()

    def answer(self, connection: socket.socket, path: str, request: bytes) -> None:
        """Answer one request."""
        name = path.partition(f"{PODS}/")[2].partition("?")[0]
        if "watch=1" in path or name == "web/log":
            connection.sendall(b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % request)
            connection.sendall(b"5\r\nhello\r\n")
            connection.recv(1)
            return
        if name in {"web/exec", "web/portforward"}:
            connection.sendall(
                b"HTTP/1.1 101 S\r\n%bUpgrade: spdy/3.1\r\nConnection: Upgrade\r\n\r\n" % request
            )
            while data := connection.recv(65536):
                if data == b"break":
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0))
                    )
                    raise ConnectionResetError
                connection.sendall(data)
            return
        if name == "slow":
            time.sleep(SLOW)
        code = 404 if name == "missing" else 200
        size = HUGE if name == "huge" else 100
        connection.sendall(b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n" % (code, request, size))
        if name == "broken":
            connection.sendall(b"half")
            raise ConnectionResetError
        connection.sendall(b"x" * size)


class Wire:
    """One connection of a client, which counts bytes.

    :ivar head: of the answer, once it was received.
    """

    def __init__(self, person: Person) -> None:
        plain = socket.create_connection((person.host, person.port), 60)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STEP)
        self._socket = person.tls.wrap_socket(plain, server_hostname=person.host)
        self._person = person
        self.up = self.down = 0
        self.head = ""

    def ask(self, path: str, *fields: str, method: str = "GET") -> None:
        """Send a request for *path*, unchanged."""
        credential = [f"{name}: {value}" for name, value in self._person.headers().items()]
        trace = f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01"
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: t", *credential, trace, *fields, "", ""]))

    def send(self, text: str) -> None:
        """Send and count."""
        self._socket.sendall(text.encode())
        self.up += len(text)

    def read_head(self) -> None:
        """Receive the head of the answer, byte by byte."""
        while not self.head.endswith("\r\n\r\n"):
            self.head += self.read(1).decode("latin-1")

    def read(self, size: int) -> bytes:
        """Receive *size* B."""
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
            self.down += len(piece)
        return data

    def read_body(self) -> None:
        """Receive a body of known length."""
        size = int(self.headers["content-length"])
        while size:
            size -= len(self.read(min(size, STEP)))

    def read_rest(self) -> None:
        """Receive until the server closes the connection, cleanly or not."""
        with contextlib.suppress(OSError):
            while piece := self._socket.recv(STEP):
                self.down += len(piece)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    @property
    def code(self) -> int:
        """Status of the answer."""
        return int(self.head.split(" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        """Fields of the answer."""
        lines = self.head.split("\r\n")[1:-2]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


@dataclass
class Case:
    """One sort of request.

    :ivar act: does the rest after the head of the answer was received.
    :ivar line: expected keys that not all lines have.
    :ivar abrupt: the client disconnects before it has received everything.
    :ivar least: shortest duration, s.
    """

    name: str
    path: str
    act: Callable[[Wire], None]
    line: dict[str, Any]
    fields: tuple[str, ...] = ()
    code: int = 200
    source: str = "member"
    abrupt: bool = False
    least: float = 0.0


def whole(wire: Wire) -> None:
    """Receive the whole body."""
    wire.read_body()


def follow(wire: Wire) -> None:
    """Receive one chunk, then disconnect."""
    wire.read(len("5\r\nhello\r\n"))


def echo(wire: Wire) -> None:
    """Use a stream, and disconnect."""
    wire.send("hello")
    wire.read(5)


def echo_until_broken(wire: Wire) -> None:
    """Use a stream that the member breaks off."""
    wire.send("break")
    wire.read_rest()


def slowly(wire: Wire) -> None:
    """Read nothing for a while."""
    time.sleep(2)
    wire.read_body()


def partly(wire: Wire) -> None:
    """Read the beginning of the body."""
    wire.read(STEP)


UPGRADE = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
CASES = (
    Case("get", f"{PODS}/web", whole, {**GET, "name": "web"}),
    Case("list", PODS, whole, LIST),
    Case("watch", f"{PODS}?watch=1", follow, {**LIST, "verb": "watch", "kind": "watch", "aborted": "client"}),
    Case(
        "logs -f",
        f"{PODS}/web/log?follow=true",
        follow,
        {**GET, "name": "web", "subresource": "log", "kind": "logs", "aborted": "client"},
    ),
    Case(
        "exec",
        f"{PODS}/web/exec?command=secret",
        echo,
        {**GET, "name": "web", "subresource": "exec", "kind": "exec"},
        UPGRADE,
        101,
    ),
    Case(
        "port-forward",
        f"{PODS}/web/portforward",
        echo,
        {**GET, "name": "web", "subresource": "portforward", "kind": "portforward"},
        UPGRADE,
        101,
    ),
    Case(
        "exec that the member breaks off",
        f"{PODS}/web/exec",
        echo_until_broken,
        {**GET, "name": "web", "subresource": "exec", "kind": "exec", "aborted": "member"},
        UPGRADE,
        101,
    ),
    Case("404", f"{PODS}/missing", whole, {**GET, "name": "missing"}, code=404),
    Case(
        "member that breaks off",
        f"{PODS}/broken",
        Wire.read_rest,
        {**GET, "name": "broken", "aborted": "member"},
    ),
    Case("slow reader", f"{PODS}/huge", slowly, {**GET, "name": "huge"}),
    Case(
        "client that disconnects",
        f"{PODS}/huge",
        partly,
        {**GET, "name": "huge", "aborted": "client"},
        abrupt=True,
    ),
    Case(
        "403",
        PODS,
        whole,
        LIST,
        ("Impersonate-User: joe",),
        403,
        "tower",
    ),
    Case("slow member", f"{PODS}/slow", whole, {**GET, "name": "slow"}, least=SLOW),
)


@dataclass
class Seen:
    """The facts of one exchange; times are in s."""

    case: Case
    wire: Wire
    took: float


class AgreementTests(harness.TowerTestCase):
    """One request of each sort."""

    def setUp(self) -> None:
        """Start an agent with an API server in this process."""
        super().setUp()
        self.member = Member()
        self.addCleanup(self.member.close)
        kubeconfig = self.folder / "member.kubeconfig"
        kubeconfig.touch(0o600)
        parts = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://{LOOPBACK}:{self.member.port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        kubeconfig.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", **parts, "current-context": "x"})
        )
        self.agent = self.tower.add("alpha", kubeconfig)

    def new_tower(self) -> harness.Tower:
        """Return a Tower with both logs."""
        tower = super().new_tower()
        self.accesses, self.audits = self.folder / "access.log", self.folder / "audit.log"
        tower.proxy = tower.proxy_program(f"--access-log={self.accesses}", f"--audit-log-path={self.audits}")
        return tower

    def lines(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the lines of a log."""
        yield from map(json.loads, path.read_text().splitlines())

    def exchange(self, person: Person, case: Case) -> Seen:
        """Make one request, and disconnect."""
        wire = Wire(person)
        began = time.monotonic()
        wire.ask(person.prefix + case.path, *case.fields)
        wire.read_head()
        case.act(wire)
        wire.close()
        return Seen(case, wire, time.monotonic() - began)

    def exchange_all(self, person: Person) -> list[Seen]:
        """Make all requests, at the same time."""
        results: list[Seen] = []
        threads = [
            threading.Thread(target=lambda case=case: results.append(self.exchange(person, case)))
            for case in CASES
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), len(CASES))
        return results

    def find(self, request: str, *, user: str | None = "jane") -> dict[str, Any]:
        """Return the line of one request, once it is written."""

        def lines() -> list[dict[str, Any]]:
            return [line for line in self.lines(self.accesses) if line.get("requestID") == request]

        wait_for(f"the line of {request} of {user}", lines)
        (line,) = lines()
        return line

    def check(self, seen: Seen) -> None:
        """Compare one line with the exchange."""
        case, wire = seen.case, seen.wire
        self.assertEqual(wire.code, case.code, case.name)
        line = self.find(wire.headers["audit-id"])
        if case.source == "tower":
            self.assertEqual(wire.headers["x-request-id"], wire.headers["audit-id"])
        self.assertRegex(line.pop("time"), r"\A20\d\d-\d\d-\d\dT[0-9:]{8}\.\d{6}Z\Z")
        duration, up, down = line.pop("duration"), line.pop("bytesUp"), line.pop("bytesDown")
        self.assertLessEqual(duration, seen.took + 1, case.name)
        self.assertGreaterEqual(duration, case.least, case.name)
        self.assertEqual(up, wire.up, case.name)
        if case.abrupt:
            self.assertGreaterEqual(down, wire.down, case.name)
            self.assertLess(down, HUGE, case.name)
        else:
            self.assertEqual(down, wire.down, case.name)
        expected = {
            "requestID": wire.headers["audit-id"],
            "address": LOOPBACK,
            "user": "jane",
            "cluster": "alpha",
            "method": "GET",
            "path": f"/clusters/alpha{case.path.partition('?')[0]}",
            "code": case.code,
            "source": case.source,
            "traceID": TRACE,
            **({"target": "kubernetes"} if case.source == "member" else {}),
            **case.line,
        }
        self.assertEqual(line, expected, case.name)

    def audited(self, request: str) -> int:
        """Return the status of a request in the audit log, once it is there."""

        def codes() -> list[int]:
            ends = [line for line in self.lines(self.audits) if line["stage"] == "ResponseComplete"]
            return [line["responseStatus"]["code"] for line in ends if line["auditID"] == request]

        (code,) = wait_for(f"the audit of {request}", codes)
        return code

    def counted(self) -> Counter[tuple[str, ...]]:
        """Return the metric of finished requests for alpha, without zeros."""
        text = self.tower.admin().request("GET", "/metrics").body.decode()
        return Counter(
            {
                (sample.labels["verb"], sample.labels["code_class"], sample.labels["source"]): int(
                    sample.value
                )
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == REQUESTS and sample.labels["cluster"] == "alpha" and sample.value
            }
        )

    def test_agreement(self) -> None:
        """Each request has one true line, with the same ID in the answer and in the audit log, and counts."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        before = self.counted()
        results = self.exchange_all(jane)
        expected: Counter[tuple[str, ...]] = Counter()
        for seen in results:
            self.check(seen)
            case, request = seen.case, seen.wire.headers["audit-id"]
            self.assertEqual(self.audited(request), case.code)
            broken = case.line.get("aborted") == "member"
            code_class = "aborted" if broken else f"{case.code // 100}xx"
            expected["stream" if case.line["kind"] in STREAMS else "read", code_class, case.source] += 1
        wait_for("the counts", lambda: self.counted() - before == expected)

    def test_rejected(self) -> None:
        """A line without a user for 401, with one for 503; both of Tower, with the ID of the answer."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.tower.tower("cluster", "disable", "alpha")
        answer = jane.get(PODS)
        self.assertEqual(answer.status, 503)
        line = self.find(answer.headers["X-Request-Id"])
        self.assertEqual((line["code"], line["source"], line["user"]), (503, "tower", "jane"))
        context = ssl.create_default_context(cadata=jane.ca)
        jane.tls = context
        answer = jane.get(PODS, Authorization="Bearer wrong")
        self.assertEqual(answer.status, 401)
        line = self.find(answer.headers["X-Request-Id"], user=None)
        self.assertEqual((line["code"], line["source"]), (401, "tower"))
        self.assertNotIn("user", line)
        self.assertNotIn("cluster", line)


class StandardOutputTests(harness.TowerTestCase):
    """Both logs on the standard output of twistd, which writes the program's log there, too."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with both logs there."""
        tower = super().new_tower()
        proxy = tower.proxy_program("--access-log=-", "--audit-log-path=-")
        proxy.argv[:1] = [script("twistd"), "-n", "--pidfile=", "tower-proxy"]
        tower.proxy = proxy
        return tower

    def test_written(self) -> None:
        """The lines of a request are there, whole, in addition to the program's own."""
        answer = self.tower.admin().get("/apis/cluster.kubesphere.io/v1alpha1/clusters")
        request = answer.headers["X-Request-Id"]

        def lines() -> list[dict[str, Any]]:
            output = self.tower.proxy.output().splitlines()
            found = [json.loads(line) for line in output if line.startswith("{")]
            return [line for line in found if request in (line.get("requestID"), line.get("auditID"))]

        wait_for("the lines of both logs", lambda: len(lines()) == 3)
        self.assertEqual({line.get("kind", "request") for line in lines()}, {"Event", "short"})
        self.assertIn("listening on", self.tower.proxy.output())
