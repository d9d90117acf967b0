"""Raw streams to targets of a cluster: `tower forward`, and the endpoint string of other programs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import threading
from pathlib import Path

from tests.integration import harness
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run, script, wait_for
from tests.integration.threaded import ThreadedServer

CLIENT = Path(__file__).resolve().parent / "stream_client.py"
COUNT = 64 << 20  # B, in each direction
PIECE = os.urandom(256 * 1024)
TIMEOUT = 600.0  # s


class EchoServer(ThreadedServer):
    """Echoes, and after the end sends the digest of all of it."""

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        digest = hashlib.sha256()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(256 * 1024):
                digest.update(data)
                connection.sendall(data)
            connection.sendall(digest.hexdigest().encode())


def exchange(connection: socket.socket) -> tuple[str, str, str]:
    """Send COUNT bytes and end our side; return the digests of both directions, and the end of the answer."""
    sent, received, tail = hashlib.sha256(), hashlib.sha256(), b""

    def send() -> None:
        for _ in range(COUNT // len(PIECE)):
            connection.sendall(PIECE)
            sent.update(PIECE)
        connection.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    left = COUNT
    while data := connection.recv(256 * 1024):
        received.update(data[:left])
        tail += data[left:]
        left -= len(data[:left])
    sender.join(TIMEOUT)
    return sent.hexdigest(), received.hexdigest(), tail.decode()


class StreamTests(harness.TowerTestCase):
    """An agent whose owner lists an echo server, and a target that does not exist."""

    def setUp(self) -> None:
        """Start all of it; Tower's own API serves as the cluster."""
        super().setUp()
        self.echo = EchoServer()
        self.addCleanup(self.echo.close)
        (member,) = self.tower.state.glob("admin*.kubeconfig")
        targets = [f"--target=echo={LOOPBACK}:{self.echo.port}", f"--target=gone={LOOPBACK}:{free_port()}"]
        self.tower.add("alpha", member, *targets)

    def forward(self, target: str, *options: str) -> tuple[Program, int]:
        """Start `tower forward`; return it and its port."""
        way = options or ("--state-dir", str(self.tower.state))
        argv = [script("tower"), *way, "forward", "alpha", target, "--listen", f"{LOOPBACK}:0"]
        program = Program(f"forward-{target}-{'user' if options else 'admin'}", argv, self.folder)
        program.start()
        self.addCleanup(program.stop)
        ports = wait_for("the port", lambda: re.findall(r"forwarding [0-9.]+:(\d+) to", program.output()))
        return program, int(ports[0])

    def client(self, target: str, kubeconfig: Path, count: int = COUNT) -> dict[str, str]:
        """Run a Twisted program with an endpoint string; return its output."""
        description = f"tower:cluster=alpha:target={target}:kubeconfig={kubeconfig}"
        argv = [sys.executable, str(CLIENT), description, str(count)]
        done = run(argv, timeout=TIMEOUT, folder=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        result: dict[str, str] = json.loads(done.stdout)
        return result

    def test_forward(self) -> None:
        """64 MiB both ways at once; the end of one direction leaves the other open."""
        jane = self.tower.kubeconfig("alpha", "jane")
        for options in ((), ("--kubeconfig", str(jane))):
            program, port = self.forward("echo", *options)
            with socket.create_connection((LOOPBACK, port), timeout=TIMEOUT) as connection:
                sent, received, tail = exchange(connection)
            self.assertEqual((received, tail), (sent, sent))
            self.assertTrue(program.stop())

    def test_endpoint_string(self) -> None:
        """The same through ``clientFromString``, with a token and with a certificate."""
        for auth in ("token", "cert"):
            result = self.client("echo", self.tower.kubeconfig("alpha", "jane", "--auth", auth))
            self.assertEqual(result, dict.fromkeys(("sent", "received", "tail"), result.get("sent")))

    def test_refusals(self) -> None:
        """A target that refuses, an unlisted one, and the API server: each has its own error."""
        jane = self.tower.kubeconfig("alpha", "jane")
        for target, parts in (
            ("gone", ("connection refused",)),
            ("other", (r"no target \"other\"", "--target other=")),
            ("kubernetes", ("kubernetes does not support raw streams",)),
        ):
            error = self.client(target, jane, 1).get("error", "")
            if target == "gone":  # may come back, so the command starts
                program, port = self.forward(target)
                connection = socket.create_connection((LOOPBACK, port), timeout=TIMEOUT)
                with connection, contextlib.suppress(ConnectionResetError):
                    self.assertEqual(connection.recv(1), b"")
                self.assertTrue(program.stop())
                said = program.output()
            else:
                words = ("forward", "alpha", target, "--listen", f"{LOOPBACK}:0")
                code, _, said = self.tower.try_tower(*words)
                self.assertEqual((code, said.count("\n")), (1, 1), said)
            for part in parts:
                self.assertIn(part, error)
                self.assertIn(part, said)
            self.assertNotIn("Traceback", said)
            self.assertNotIn("Traceback", error)

    def test_other_cluster(self) -> None:
        """A credential for another cluster opens nothing, even with the server's URL changed."""
        self.tower.tower("cluster", "add", "beta")
        text = self.tower.kubeconfig("beta", "jane").read_text()
        changed = self.folder / "changed.kubeconfig"
        changed.write_text(text.replace("/clusters/beta", "/clusters/alpha"))
        self.assertIn("beta", self.client("echo", changed, 1).get("error", ""))
