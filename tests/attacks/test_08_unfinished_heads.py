"""Unauthenticated clients that hold unfinished heads."""

from __future__ import annotations

import http.client

from tests.attacks.bystanders import BODY
from tests.attacks.case import AttackTestCase

SOCKETS = 640
SIZE = 60_000  # B of each head; 32 MiB are exceeded by 560 of them
WRITERS = 8
PARALLEL = 48
ROUNDS = 3


class UnfinishedHeadTests(AttackTestCase):
    """Their memory is separate from users' memory."""

    def test_parallel_writes(self) -> None:
        """If all users write at the same time, none is refused for lack of memory."""
        connections = [self.jane.connect() for _ in range(PARALLEL)]
        for each in connections:
            self.addCleanup(each.close)
            each.connect()
        attack = self.attack("heads", self.tower.port, f"--sockets={SOCKETS}", f"--size={SIZE}")
        for _ in range(ROUNDS):
            for each in connections:
                each.sock.sendall(self.write())
            answers = [http.client.HTTPResponse(each.sock, method="POST") for each in connections]
            for answer in answers:
                answer.begin()
                self.assertEqual((answer.status, answer.read()), (200, bytes(BODY)))
        self.assertTrue(attack.running())
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def write(self) -> bytes:
        """Return a whole request."""
        lines = [
            f"POST {self.jane.prefix}/ping HTTP/1.1",
            "Host: t",
            f"Authorization: {self.jane.headers()['Authorization']}",
            f"Content-Length: {BODY}",
        ]
        return "\r\n".join([*lines, "", ""]).encode() + bytes(BODY)

    def test_churn(self) -> None:
        """Users work on while rejected clients reconnect; the proxy does not grow."""
        before = self.tower.proxy.memory()
        with self.bystanders(writers=WRITERS) as users:
            users.until(5)
            options = f"--sockets={SOCKETS}", f"--size={SIZE}", "--again", "--pause=1"
            self.attack("heads", self.tower.port, *options)
            users.until(30)
            grown = self.tower.proxy.memory() - before
        self.assertNotIn("Traceback", self.tower.proxy.output())
        self.assertLess(grown, SOCKETS * SIZE / 2)

    def test_front_door(self) -> None:
        """The same over TLS, where a new user's own head comes in two pieces meanwhile."""
        self.attack(
            "heads",
            self.tower.secure_port,
            "--sockets=200",
            f"--size={SIZE}",
            "--tls",
            "--again",
            "--pause=1",
        )
        with self.bystanders() as users:
            users.until(30)
            connection = self.jane.connect()
            self.addCleanup(connection.close)
            connection.connect()
            head = f"GET {self.jane.prefix}/ping HTTP/1.1\r\nHost: t\r\nX-Filler: {'x' * 16_000}\r\n"
            connection.sock.sendall(head.encode())
            users.until(2)
            token = self.jane.headers()["Authorization"]
            connection.sock.sendall(f"Authorization: {token}\r\n\r\n".encode())
            self.assertTrue(connection.sock.recv(100).startswith(b"HTTP/1.1 200 "))
