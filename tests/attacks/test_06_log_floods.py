"""Unauthenticated clients that fill the log."""

from __future__ import annotations

import time

from tests.attacks.case import AttackTestCase
from tests.integration.programs import wait_for

SECONDS = 5.0  # that a flood takes
LINES = 9  # a second that each kind of flood may log


class LogFloodTests(AttackTestCase):
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
