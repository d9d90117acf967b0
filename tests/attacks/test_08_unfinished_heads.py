"""Strangers who hold heads that do not end."""

from __future__ import annotations

from .case import AttackTestCase

SOCKETS = 640
SIZE = 60_000  # B of each head; 32 MiB are exceeded by 560 of them
WRITERS = 8


class UnfinishedHeadTests(AttackTestCase):
    """Their memory is not that of users."""

    def test_writes(self) -> None:
        """Users who write in parallel have no request refused for want of memory."""
        before = self.tower.proxy.memory()
        with self.bystanders(writers=WRITERS) as users:
            users.until(5)
            self.attack("heads", self.tower.port, f"--sockets={SOCKETS}", f"--size={SIZE}", "--again")
            users.until(30)
            grown = self.tower.proxy.memory() - before
        self.assertNotIn("Traceback", self.tower.proxy.output())
        self.assertLess(grown, SOCKETS * SIZE / 2)

    def test_front_door(self) -> None:
        """The same over TLS, where a new user's own head comes in two pieces meanwhile."""
        self.attack("heads", self.tower.secure_port, "--sockets=200", f"--size={SIZE}", "--tls", "--again")
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
