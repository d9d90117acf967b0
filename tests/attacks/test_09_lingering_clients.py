"""Unauthenticated clients that stay, or that fill the log."""

from __future__ import annotations

import http.client
import time

from tests.attacks.case import AttackTestCase
from tests.integration.programs import LOOPBACK, wait_for

AGE = 120.0  # s that an unauthenticated connection lives
SLACK = 60.0  # s
EVERY = 1.0  # s between two requests
SECONDS = 5.0  # of a flood
LINES = 9  # of log a second that a flood of one kind may cause


class AgeTests(AttackTestCase):
    """An unauthenticated connection has an end, for any request."""

    def test_age(self) -> None:
        """A client of the health page, or a rejected one, is disconnected; a user's connection goes on."""
        kept = self.jane.connect()
        self.addCleanup(kept.close)
        plain = http.client.HTTPConnection(LOOPBACK, self.tower.port, timeout=30)
        door = self.jane.connect()
        rejected = self.jane.connect()
        clients = {
            plain: ("/healthz", 200),
            door: ("/healthz", 200),
            rejected: ("/clusters/alpha/api", 401),
        }
        for each in clients:
            self.addCleanup(each.close)
            each.auto_open = 0
            each.connect()
        ended: dict[http.client.HTTPConnection, float] = {}
        began = time.monotonic()
        while len(ended) < len(clients) and time.monotonic() - began < AGE + SLACK:
            for connection, (path, code) in clients.items():
                if connection not in ended:
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    answer.read()
                    self.assertEqual(answer.status, code)
                    if answer.will_close:
                        ended[connection] = time.monotonic() - began
            answer = self.jane.ask(kept, f"{self.jane.prefix}/ping")
            self.assertEqual((answer.status, answer.read(), answer.will_close), (200, b"pong", False))
            time.sleep(EVERY)
        self.assertEqual(set(ended), set(clients))
        self.assertGreater(min(ended.values()), AGE / 2)
        sock = kept.sock
        self.assertEqual(self.jane.ask(kept, f"{self.jane.prefix}/ping").status, 200)
        self.assertIs(kept.sock, sock)


class LogTests(AttackTestCase):
    """Lines that unauthenticated clients cause are summed up."""

    def test_rejected(self) -> None:
        """Thousands of 401, 404 and rejected agents are a few lines a second."""
        proxy = self.tower.proxy
        with self.bystanders() as users:
            users.until(5)
            before, began = len(proxy.output().splitlines()), time.monotonic()
            door, path = self.tower.secure_port, "--path=/clusters/alpha/api"
            self.attack("requests", door, "--tls", "--sockets=20", "--rate=500", path, "--again")
            self.attack("requests", self.tower.port, "--sockets=5", "--rate=200", "--path=/none", "--again")
            self.attack("nonsense", self.tower.port, "--rate=40")
            time.sleep(SECONDS)
            users.until(5)
        took = time.monotonic() - began
        lines = proxy.output().splitlines()[before:]
        self.assertLess(len(lines), LINES * 3 * (took + 2), lines[:30])
        text = "\n".join(lines)
        self.assertRegex(
            text, r"[0-9]{2,} more requests were rejected with 401 in the last 1 s, .* from 127\.0\.0\.1: 401"
        )
        self.assertRegex(text, r"[0-9]{2,} more requests were rejected with 404 in the last 1 s")
        wait_for("the sum of agents", lambda: "more agents were rejected in the last 1 s" in proxy.output())
        self.assertNotIn("Traceback", text)
