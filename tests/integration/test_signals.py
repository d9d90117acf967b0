"""SIGHUP, SIGTERM and a second SIGTERM, with requests and streams in progress."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import termios
from functools import partial
from pathlib import Path

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.long_streams import BlockServer, Conversation, Download
from tests.integration.member import kubectls, member, oldest_and_newest
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, PATIENCE, Program, clean_environment, script, wait_for

SIZE = 64 << 20  # B; more than all buffers in between
PIECE = 32 << 20  # B, read before the stop; the rest must arrive within its 10 s
LARGE = 1 << 30  # B, of the download that survives SIGHUP
SHARES = 8  # in which it is read


class LoggedTestCase(harness.TowerTestCase):
    """A proxy with a log file in JSON."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy with a log file and a file of levels."""
        tower = super().new_tower()
        self.log, self.levels = self.folder / "tower.log", self.folder / "levels"
        self.accesses = self.folder / "access.log"
        tower.proxy = tower.proxy_program(
            harness.PATIENT,
            f"--log-file={self.log}",
            "--log-format=json",
            f"--log-levels={self.levels}",
            f"--access-log={self.accesses}",
        )
        return tower

    def messages(self) -> list[str]:
        """Return the messages of the proxy's log file; each line is an object."""
        return [json.loads(line)["message"] for line in self.log.read_text().splitlines()]

    def reloads(self) -> int:
        """Return how often the proxy has reloaded, by the present log file."""
        return sum(text.startswith("SIGHUP: reloaded log") for text in self.messages())


class HangUpTests(LoggedTestCase):
    """SIGHUP while commands of a real API server and a download of 1 GiB go on, one agent in between."""

    def setUp(self) -> None:
        """Start all of them."""
        super().setUp()
        source = BlockServer(LARGE)
        self.addCleanup(source.close)
        self.agent_log = self.folder / "agent.log"
        options = (source.option, f"--log-file={self.agent_log}", harness.PATIENT)
        self.agent = self.tower.add("alpha", member().agent, *options)
        self.jane = self.tower.person("alpha", "jane", "--group", "dev")
        port = self.tower.kubeconfig("alpha", "jane", "--group", "dev", "--via", "port")
        self.commands = [
            Conversation(kubectls()[-1], self.jane.kubeconfig),
            Conversation(kubectls()[0], port),
        ]
        for each in self.commands:
            self.addCleanup(each.close)
        self.download = Download(self.jane, LARGE)
        self.addCleanup(self.download.close)

    def go_on(self) -> None:
        """Check the commands and a share of the download, and begin the next share."""
        for each in self.commands:
            each.check()
        self.download.check()
        self.download.release(LARGE // SHARES)

    def reload(self) -> None:
        """Send SIGHUP to the proxy in the middle of everything, and wait for the reload."""
        self.go_on()
        before = self.reloads()
        self.tower.proxy.signal(signal.SIGHUP)
        wait_for("the reload", lambda: self.reloads() > before)

    def certificate(self, person: Person) -> str:
        """Return the serial number of the certificate on a new connection."""
        connection = person.connect()
        try:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            return str((connection.sock.getpeercert() or {})["serialNumber"])
        finally:
            connection.close()

    def test_proxy(self) -> None:
        """SIGHUP reloads certificate, log file and levels; no command and no download notices."""
        proxy, first = self.tower.proxy, self.certificate(self.jane)
        self.reload()
        self.reload()
        self.assertEqual(self.certificate(self.jane), first)

        (self.tower.state / "serving.pem").unlink()
        renamed = self.log.rename(self.folder / "tower.log.1")
        self.levels.write_text("v=4\n")
        self.go_on()
        proxy.signal(signal.SIGHUP)
        wait_for("the new log file", self.log.exists)
        wait_for("the reload", lambda: self.reloads() == 1)
        self.assertNotEqual(self.certificate(self.jane), first)
        self.assertEqual(self.jane.get("/version").status, 200)
        self.assertIn("tower-proxy", renamed.read_text())

        (self.tower.state / "serving.pem").write_text("damaged")
        self.levels.write_text("v=much\n")
        self.go_on()
        proxy.signal(signal.SIGHUP)
        wait_for("an error", lambda: any("cannot reload the log" in text for text in self.messages()))
        for _ in range(20):  # in quick succession
            proxy.signal(signal.SIGHUP)
        self.go_on()
        self.check_end(self.agent_log)
        self.assertEqual(proxy.output(), "")

    def test_agent(self) -> None:
        """SIGHUP opens the agent's log file again; no command and no download notices."""
        self.go_on()
        renamed = self.agent_log.rename(self.folder / "agent.log.1")
        self.agent.program.signal(signal.SIGHUP)
        wait_for("the reload", lambda: self.agent_log.exists() and "SIGHUP" in self.agent_log.read_text())
        self.go_on()
        self.check_end(renamed, self.agent_log)
        self.assertTrue(self.agent.program.stop())

    def check_end(self, *logs: Path) -> None:
        """Everything ends properly; by its *logs*, the agent has connected once."""
        for each in self.commands:
            each.check()
            each.finish()
        self.download.finish()
        self.assertTrue(self.agent.ready())
        self.assertEqual("".join(log.read_text() for log in logs).count("connected to"), 1)


class StopTests(LoggedTestCase):
    """SIGTERM while a command and downloads go on."""

    def setUp(self) -> None:
        """Start all of them."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.tower.add("alpha", self.backend.kubeconfig("alpha"))
        self.jane = self.tower.person("alpha", "jane")

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

    def download(self, port: int | None = None) -> http.client.HTTPResponse:
        """Return the beginning of a large response."""
        connection = self.jane.connect(port)
        self.addCleanup(connection.close)
        path = f"/marks/jane@alpha/1?size={SIZE}"
        response = self.jane.ask(connection, path if port else self.jane.prefix + path)
        self.assertEqual((response.status, len(response.read(PIECE))), (200, PIECE))
        return response

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
        self.assertEqual(self.messages()[-1], "tower-proxy stopped")

    def test_cut(self) -> None:
        """SIGTERM cuts a command that does not end; the log has the number, the access log the side."""
        self.command()
        self.tower.proxy.signal(signal.SIGTERM)
        self.assertEqual(self.tower.proxy.wait(), 0)
        messages = self.messages()
        self.assertIn("waiting up to 10 s for requests in progress and streams: 1", messages)
        self.assertIn("requests and streams that did not end within 10 s and were cut: 1 of 1", messages)
        self.assertEqual(messages[-1], "tower-proxy stopped")
        lines = [json.loads(line) for line in self.accesses.read_text().splitlines()]
        self.assertEqual([line["aborted"] for line in lines if line["code"] == 101], ["tower"])

    def test_second(self) -> None:
        """A second SIGTERM ends the proxy at once, with a command in progress, and the log has the reason."""
        self.command(self.tower.cluster_port("alpha"))
        proxy = self.tower.proxy
        proxy.signal(signal.SIGTERM)
        first = "waiting up to 10 s for requests in progress and streams: 1"
        wait_for("the first line", lambda: first in self.messages())
        proxy.signal(signal.SIGTERM)
        self.assertEqual(proxy.wait(5), 128 + signal.SIGTERM)
        self.assertIn("second SIGTERM", self.messages()[-1])


class NoticeTests(LoggedTestCase):
    """SIGTERM while kubectl uses a real cluster: its messages."""

    def setUp(self) -> None:
        """Connect the cluster."""
        super().setUp()
        self.tower.add("alpha", member().agent, harness.PATIENT)
        self.config = self.tower.person("alpha", "jane", "--group", "dev").kubeconfig
        self.oldest, self.newest = oldest_and_newest()

    def kubectl(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start kubectl, and wait for its first line."""
        running = subprocess.Popen(
            [str(self.newest), f"--kubeconfig={self.config}", "-v=4", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment({"KUBECACHEDIR": str(self.folder / "cache")}),
        )
        self.addCleanup(running.communicate)
        self.addCleanup(running.kill)
        assert running.stdout is not None
        self.assertTrue(running.stdout.readline())
        return running

    def test_messages(self) -> None:
        """Commands fail with the reason, forwarded ports have it in their log; a followed log fails too."""
        commands = [Conversation(each, self.config) for each in (self.oldest, self.newest)]
        for each in commands:
            self.addCleanup(each.close)
        forward = self.kubectl("port-forward", "pod/shell", ":9")
        follow = self.kubectl("logs", "-f", "shell", "-c", "sidecar")
        for each in commands:
            each.check()
        reason = "tower-proxy is stopping; connect again"
        self.tower.proxy.signal(signal.SIGTERM)
        for each in commands:
            lines = each.wait_for_end().splitlines()  # kubectl may first log that it cannot copy its input
            self.assertEqual(lines[-1], f"error: {reason}")
            self.assertEqual(each.code, 1)
        for running, wanted in (
            (forward, ("close 1001 (", reason, "error: lost connection to pod")),
            (follow, ("error: ",)),
        ):
            error = running.communicate(timeout=PATIENCE)[1].decode()
            self.assertEqual(running.returncode, 1)
            for text in wanted:
                self.assertIn(text, error)
        self.assertEqual(self.tower.proxy.wait(), 0)
        cut = "requests and streams that did not end within 10 s and were cut: 4 of 4"
        self.assertIn(cut, self.messages())


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
        self.assertEqual(os.readlink(f"/proc/{self.tower.proxy.pid}/fd/2"), os.devnull)
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

    def test_twistd_closed(self) -> None:
        """With twistd, a closed standard output ends nothing, and no file gets its lines."""
        self.tower.proxy.stop()
        argv = [script("twistd"), "-n", "--pidfile=", "tower-proxy", *self.tower.proxy.argv[5:]]
        self.tower.proxy = Program("twistd", ["sh", "-c", 'exec "$@" >&-', "sh", *argv], self.folder)
        self.tower.start()
        self.tower.tower("cluster", "add", "alpha")
        self.assertTrue(self.tower.proxy.stop())

    def test_twistd_stalled(self) -> None:
        """With twistd, a program that reads the log but stalls delays no request, and not the end."""
        self.tower.proxy.stop()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        size = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        argv = [script("twistd"), "-n", "--pidfile=", "tower-proxy", *self.tower.proxy.argv[5:], "-v", "6"]
        self.tower.proxy = Program(
            "twistd", ["sh", "-c", f'exec "$@" >{pipe}', "sh", *argv, "--access-log=-"], self.folder
        )
        self.tower.start()
        admin = self.tower.admin()
        for _ in range(100):
            self.assertEqual(admin.get(f"/nothing/{'x' * 200}").status, 404)
        (waiting,) = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))
        self.assertGreater(waiting, size // 2)  # the next lines do not fit
        self.assertTrue(self.tower.proxy.stop())


def closed(port: int) -> bool:
    """Return whether a port refuses connections."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) != 0
