"""Bytes and their SHA-256 on every path: each protocol of agents, each port, each framing, and streams."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.outbound_proxy import NAME, ConnectProxy
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, Program, run

CLIENT = Path(__file__).resolve().parent / "stream_client.py"
SIZE = 12 * 2**20 + 12_345  # B
PIECE = 100_001  # B
TIMEOUT = 300.0  # s
CLUSTERS = ("secure", "plain", "proxied")
REKEY = "--rekey-bytes=4MiB"


def pieces(data: bytes) -> Iterator[bytes]:
    """Cut *data* into pieces."""
    return (data[begin : begin + PIECE] for begin in range(0, len(data), PIECE))


def digest(data: bytes) -> str:
    """Return the SHA-256 of *data*."""
    return hashlib.sha256(data).hexdigest()


class DigestTests(harness.TowerTestCase):
    """Three clusters: their agents come by wss, by ws at the plain port, and through an HTTP proxy.

    The API server of the second is reached without TLS.  Keys change all the time.
    """

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.backend = Backend(self.folder, *CLUSTERS)
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.between = ConnectProxy()
        self.addCleanup(self.between.close)
        self.data = os.urandom(SIZE)
        for cluster in CLUSTERS:
            self.tower.tower("cluster", "add", cluster)
            kubeconfig = self.backend.kubeconfig(cluster, secure=cluster != "plain")
            agent = self.tower.agent(cluster, kubeconfig, self.backend.target(cluster, "ping"), REKEY)
            agent.program = Program(agent.name, *self.way(agent))
            agent.program.start()
        for agent in self.tower.agents:
            agent.wait_until_ready()

    def new_tower(self) -> harness.Tower:
        """Return a Tower whose proxy has a name."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(f"--publish-service-address={NAME}")
        return tower

    def way(self, agent: harness.Agent) -> tuple[list[str], Path, dict[str, str]]:
        """Return the arguments, the kubeconfig and the environment of a cluster's agent."""
        argv, environment = agent.argv, agent.environment
        if "proxied" in agent.name:
            environment = {**environment, "HTTPS_PROXY": f"http://{LOOPBACK}:{self.between.port}"}
            return argv, self.folder, environment
        argv = [word.replace(NAME, LOOPBACK) for word in argv]
        if "plain" in agent.name:
            argv = [word for word in argv if not word.startswith("sha256:") and word != "--ca-hash"]
            secure = f"wss://{LOOPBACK}:{self.tower.secure_port}"
            argv = [word.replace(secure, f"ws://{LOOPBACK}:{self.tower.port}") for word in argv]
        return argv, self.folder, environment

    def person(self, cluster: str, user: str, *options: str) -> Person:
        """Return a user who finds the proxy without knowing its name."""
        path = self.tower.kubeconfig(cluster, user, *options)
        path.write_text(path.read_text().replace(NAME, LOOPBACK))
        return Person(path)

    # HTTP

    def check_requests(self, person: Person) -> None:
        """Send a body up and get it back, with a length and in chunks."""
        wanted = digest(self.data)
        connection = person.connect(timeout=TIMEOUT)
        self.addCleanup(connection.close)
        path = f"{person.prefix}/stored"
        for framing in ({"Content-Length": str(SIZE)}, {"Transfer-Encoding": "chunked"}):
            chunked = "Transfer-Encoding" in framing
            headers = {**person.headers(), **framing}
            connection.request("PUT", path, pieces(self.data), headers, encode_chunked=chunked)
            self.assertEqual(connection.getresponse().read().decode(), wanted, (person.prefix, framing))
        for query in ("", "?chunked"):
            answer = person.ask(connection, path + query)
            self.assertEqual(answer.getheader("Transfer-Encoding", ""), query[1:])
            self.assertEqual(digest(answer.read()), wanted, (person.prefix, query))

    # Streams

    def check_stream(self, person: Person, path: str, protocol: str) -> None:
        """Send bytes on an upgraded connection, while they are echoed."""
        fields = {**person.headers(), "Host": person.host, "Connection": "Upgrade", "Upgrade": protocol}
        lines = [
            f"GET {person.prefix}{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        back = hashlib.sha256()

        async def send(writer: asyncio.StreamWriter) -> None:
            for piece in pieces(self.data):
                writer.write(piece)
                await writer.drain()

        async def exchange() -> None:
            reader, writer = await asyncio.open_connection(person.host, person.port, ssl=person.tls)
            writer.write("\r\n".join((*lines, "", "")).encode())
            self.assertIn(b"HTTP/1.1 101 ", await reader.readuntil(b"\r\n\r\n"))
            sending = asyncio.ensure_future(send(writer))
            left = SIZE
            while left:
                data = await reader.read(min(left, PIECE))
                self.assertTrue(data, f"{path} was cut")
                back.update(data)
                left -= len(data)
            await sending
            writer.transport.abort()

        asyncio.run(asyncio.wait_for(exchange(), TIMEOUT))
        self.assertEqual(back.hexdigest(), digest(self.data), path)

    def check_endpoint(self, person: Person, cluster: str) -> None:
        """The same through ``clientFromString``, in a program that does not know Tower."""
        description = f"tower:cluster={cluster}:target=ping:kubeconfig={person.kubeconfig}"
        done = run([sys.executable, str(CLIENT), description, str(SIZE)], timeout=TIMEOUT, folder=self.folder)
        result = json.loads(done.stdout)
        self.assertEqual(
            result, {"sent": result.get("sent"), "received": result.get("sent"), "tail": ""}, done.stderr
        )

    def test_every_path(self) -> None:
        """On every path, the received bytes are the sent ones."""
        for cluster in CLUSTERS:
            jane = self.person(cluster, "jane", "--auth", "token")
            joe = self.person(cluster, "joe", "--auth", "cert", "--via", "port")
            for person in (jane, joe):
                self.check_requests(person)
                self.check_stream(person, "/echo", "echo")
            self.check_stream(jane, "/targets/ping", "tower-stream")
            self.check_endpoint(jane, cluster)
        self.assertTrue(self.between.asked)
        for program in (self.tower.proxy, *(agent.program for agent in self.tower.agents)):
            self.assertNotIn("Traceback", program.output())
