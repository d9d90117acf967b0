"""Unauthenticated clients that stay."""

from __future__ import annotations

import http.client
import time

from tests.attacks.case import AttackTestCase
from tests.integration.programs import LOOPBACK

AGE = 120.0  # s that an unauthenticated connection lives
SLACK = 60.0  # s
EVERY = 1.0  # s between two requests


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
