"""A long-lived program with client-go and a context of ``tower login``: the plugin is run again in time."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.processes import build
from tests.integration.login_case import LoginCase
from tests.integration.programs import Program, wait_for
from tests.integration.shared_clock import set_clock
from tower.cli.login.plugin import SPARE
from tower.trust.session_tokens import LIFETIME

#: A step of the clock, s: longer than client-go uses a token, and shorter than the proxy accepts it.
STEP = int(LIFETIME - SPARE) + 10


class ClientGoTests(LoginCase):
    """A program of a user who has logged in."""

    timeout = 300

    def setUp(self) -> None:
        """Log in."""
        super().setUp()
        self.log_in()
        program = build("tests/integration/clientgo")
        self.client = Program(
            "clientgo", [str(program), "--context=tower/alpha"], self.folder, self.jane.environ
        )

    def lines(self, step: str) -> list[str]:
        """Return what the program has reported for a step."""
        lines = [line for line in self.client.output().splitlines() if line.startswith('{"name"')]
        return [each["name"] for each in map(json.loads, lines) if each["step"] == step]

    def token(self) -> str:
        """Return the token that the plugin has returned last."""
        (path,) = self.jane.home.rglob("*.token")
        kept: dict[str, Any] = json.loads(path.read_text())
        return str(kept["token"])

    def works(self, name: str) -> None:
        """Wait until the program's watch reports a new object, and more requests are answered."""
        self.cluster.member.kubectl("create", "configmap", name)
        wait_for(f"the watch of {name}", lambda: name in self.lines("added"))
        before = len(self.lines("answered"))
        wait_for(f"requests after {name}", lambda: len(self.lines("answered")) > before + 5)

    def test_expiry(self) -> None:
        """The program gets new tokens before the old ones expire, and no request or watch fails."""
        self.client.start()
        self.addCleanup(self.client.stop)
        self.works("first")
        tokens = [self.token()]
        for name in ("second", "third"):
            self.clock.advance(STEP, self.tower, [self.client.pid])
            wait_for("the next token", lambda: self.token() not in tokens)
            tokens.append(self.token())
            self.works(name)
        self.assertEqual((self.lines("failed"), self.lines("watch failed")), ([], []))
        self.assertEqual(self.lines("added").count("first"), 1)

    def test_slow_clock(self) -> None:
        """On a machine whose clock is behind, a 401 makes client-go run the plugin; then all goes on."""
        self.client.start()
        self.addCleanup(self.client.stop)
        self.works("first")
        before = self.token()
        set_clock(self.tower, int(LIFETIME) + 10)
        wait_for("the next token", lambda: self.token() != before)
        self.works("second")
        failed = self.lines("failed")
        self.assertTrue(failed)
        self.assertEqual([text for text in failed if "Unauthorized" not in text], [])
        self.works("third")
        self.assertEqual(self.lines("failed"), failed)
