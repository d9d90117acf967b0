"""SIGHUP, SIGTERM and a second SIGTERM, with requests and streams in progress."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
from functools import partial

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, PATIENCE, Program, script, wait_for

SIZE = 64 << 20  # B; more than all buffers in between
PIECE = 1 << 20  # B


class SignalTests(harness.TowerTestCase):
    """A proxy with a log file, an agent, a running command and a download."""

    def setUp(self) -> None:
        """Start all of them."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.levels, self.agent_log = self.folder / "levels", self.folder / "agent.log"
        self.agent = self.tower.add("alpha", self.backend.kubeconfig("alpha"), f"--log-file={self.agent_log}")
        self.jane = self.tower.person("alpha", "jane")

    def new_tower(self) -> harness.Tower:
        """Return a proxy with a log file in JSON."""
        tower = super().new_tower()
        self.log = self.folder / "tower.log"
        tower.proxy = tower.proxy_program(
            f"--log-file={self.log}", "--log-format=json", f"--log-levels={self.folder / 'levels'}"
        )
        return tower

    def messages(self) -> list[str]:
        """Return the messages of the proxy's log file; each line is an object."""
        return [json.loads(line)["message"] for line in self.log.read_text().splitlines()]

    def hang_up(self, program: Program, times: int) -> None:
        """Send SIGHUP, and wait for each reload."""
        for _ in range(times):
            before = self.reloads()
            program.signal(signal.SIGHUP)
            wait_for("the reload", partial(self.reloaded, before))

    def reloaded(self, before: int) -> bool:
        """Return whether there were more than *before* reloads."""
        return self.reloads() > before

    def reloads(self) -> int:
        """Return how often the proxy has reloaded, by the present log file."""
        return sum(text.startswith("SIGHUP: reloaded log") for text in self.messages())

    def command(self, port: int | None = None) -> ssl.SSLSocket:
        """Return the stream of a command that echoes."""
        jane = self.jane
        plain = socket.create_connection((jane.host, port or jane.port), PATIENCE)
        stream = jane.tls.wrap_socket(plain, server_hostname=jane.host)
        self.addCleanup(stream.close)
        path = "/echo" if port else f"{jane.prefix}/echo"
        fields = [f"GET {path} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: echo"]
        fields += [f"{name}: {value}" for name, value in jane.headers().items()]
        stream.sendall("\r\n".join([*fields, "", ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += stream.recv(1) or b"the end\r\n\r\n"
        self.assertIn(b" 101 ", head)
        return stream

    def echoes(self, stream: ssl.SSLSocket, text: bytes) -> None:
        """Check that the command is alive."""
        stream.sendall(text)
        got = b""
        while len(got) < len(text):
            data = stream.recv(4096)
            self.assertTrue(data, "the command ended")
            got += data
        self.assertEqual(got, text)

    def download(self, port: int | None = None) -> http.client.HTTPResponse:
        """Return the beginning of a large response."""
        connection = self.jane.connect(port)
        self.addCleanup(connection.close)
        path = f"/marks/jane@alpha/1?size={SIZE}"
        response = self.jane.ask(connection, path if port else self.jane.prefix + path)
        self.assertEqual((response.status, len(response.read(PIECE))), (200, PIECE))
        return response

    def certificate(self, person: Person) -> str:
        """Return the serial number of the certificate on a new connection."""
        connection = person.connect()
        try:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            return str((connection.sock.getpeercert() or {})["serialNumber"])
        finally:
            connection.close()

    def test_hang_up(self) -> None:
        """SIGHUP reloads certificate, log file and levels; a command and a download do not notice."""
        proxy = self.tower.proxy
        command, download = self.command(), self.download()
        first = self.certificate(self.jane)
        self.hang_up(proxy, 2)
        self.assertEqual(self.certificate(self.jane), first)
        self.echoes(command, b"one")

        (self.tower.state / "serving.pem").unlink()
        renamed = self.log.rename(self.folder / "tower.log.1")
        self.levels.write_text("v=4\n")
        proxy.signal(signal.SIGHUP)
        wait_for("the new log file", self.log.exists)
        wait_for("the reload", lambda: self.reloads() == 1)
        self.assertNotEqual(self.certificate(self.jane), first)
        self.assertEqual(self.jane.get("/ping").body, b"pong")
        self.assertIn("tower-proxy", renamed.read_text())

        (self.tower.state / "serving.pem").write_text("damaged")
        self.levels.write_text("v=much\n")
        proxy.signal(signal.SIGHUP)
        wait_for("an error", lambda: any("cannot reload the log" in text for text in self.messages()))
        self.echoes(command, b"two")
        received = PIECE
        while data := download.read(PIECE):
            received += len(data)
            if received % (16 * PIECE) == 0:
                proxy.signal(signal.SIGHUP)
        self.assertEqual(received, SIZE)
        self.assertEqual(self.jane.get("/ping").body, b"pong")
        self.assertTrue(self.agent.ready())
        self.assertEqual(self.agent_log.read_text().count("connected to"), 1)
        self.assertEqual(proxy.output(), "")

    def test_agent(self) -> None:
        """SIGHUP opens the agent's log file again, and does not disturb its tunnel."""
        command = self.command()
        renamed = self.agent_log.rename(self.folder / "agent.log.1")
        self.agent.program.signal(signal.SIGHUP)
        wait_for("the reload", lambda: self.agent_log.exists() and "SIGHUP" in self.agent_log.read_text())
        self.echoes(command, b"one")
        self.assertIn("connected to", renamed.read_text())
        self.assertTrue(self.agent.program.stop())

    def test_stop(self) -> None:
        """SIGTERM closes the ports; downloads, also from the cluster's port, end properly."""
        port = self.tower.cluster_port("alpha")
        downloads = [self.download(), self.download(port)]
        proxy = self.tower.proxy
        proxy.signal(signal.SIGTERM)
        for number in (self.tower.secure_port, port, self.tower.port):
            wait_for(f"the end of port {number}", partial(closed, number))
        proxy.signal(signal.SIGHUP)
        for each in downloads:
            self.assertEqual(len(each.read()), SIZE - PIECE)
        self.assertEqual(proxy.wait(), 0)
        self.assertEqual(self.reloads(), 0)
        self.assertEqual(proxy.output(), "")

    def test_second(self) -> None:
        """A second SIGTERM ends the proxy at once, with a command in progress, and the log has the reason."""
        self.command(self.tower.cluster_port("alpha"))
        proxy = self.tower.proxy
        proxy.signal(signal.SIGTERM)
        wait_for("the first line", lambda: "SIGTERM: stopping" in self.messages()[-1])
        proxy.signal(signal.SIGTERM)
        self.assertEqual(proxy.wait(5), 128 + signal.SIGTERM)
        self.assertIn("second SIGTERM", self.messages()[-1])


class LogTests(harness.TowerTestCase):
    """A closed standard error, and twistd's own log."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy whose standard error is closed."""
        tower = super().new_tower()
        started = tower.proxy
        tower.proxy = Program("tower-proxy", ["sh", "-c", 'exec "$@" 2>&-', "sh", *started.argv], self.folder)
        return tower

    def test_closed(self) -> None:
        """A closed standard error ends nothing, and no file gets its descriptor."""
        self.assertEqual(os.readlink(f"/proc/{self.tower.proxy.pid}/fd/2"), os.devnull)
        self.tower.tower("cluster", "add", "alpha")
        self.tower.proxy.signal(signal.SIGHUP)
        self.tower.tower("cluster", "remove", "alpha")
        self.assertTrue(self.tower.proxy.stop())

    def test_twistd(self) -> None:
        """The same services run with ``twistd``, which SIGHUP does not end."""
        self.tower.proxy.stop()
        argv = [script("twistd"), "-n", "--pidfile=", "tower-proxy", *self.tower.proxy.argv[5:]]
        self.tower.proxy = Program("twistd", argv, self.folder)
        self.tower.start()
        self.tower.proxy.signal(signal.SIGHUP)
        wait_for("the reload", lambda: "SIGHUP: reloaded log" in self.tower.proxy.output())
        self.tower.tower("cluster", "add", "alpha")
        self.assertTrue(self.tower.proxy.stop())
        for word in ("twisted", "Main loop", "Server Shut Down", "reactor class"):
            self.assertNotIn(word, self.tower.proxy.output())


def closed(port: int) -> bool:
    """Return whether a port refuses connections."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) != 0
