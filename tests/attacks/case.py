"""A Tower of real processes, under attack, with users at work."""

from __future__ import annotations

import sys

from tests.attacks.bystanders import Arrival, Bystanders
from tests.integration.backends import ROOT, Backend
from tests.integration.harness import TowerTestCase
from tests.integration.programs import Program, wait_for


class AttackTestCase(TowerTestCase):
    """A proxy with one cluster, alpha, behind an agent.

    :ivar jane: one of its users.
    """

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.agent = self.tower.add("alpha", self.backend.kubeconfig("alpha"))
        self.jane = self.tower.person("alpha", "jane", "--auth", "token")
        self._attacks = 0

    def attack(self, kind: str, port: int, *options: str) -> Program:
        """Start a `tests.attacks.flood`; return when it is at work."""
        self._attacks += 1
        argv = [sys.executable, "-m", "tests.attacks.flood", kind, str(port), *options]
        program = Program(f"attack-{self._attacks}-{kind}", argv, self.folder, {"PYTHONPATH": str(ROOT)})
        self.addCleanup(program.kill)
        program.start()
        wait_for(f"attack {kind}", lambda: "ready" in program.output() or not program.running())
        return program

    def bystanders(self, *, writers: int = 1) -> Bystanders:
        """Return users of alpha."""
        return Bystanders(self.jane, self.backend, writers=writers)

    def arrivals(self, count: int = 3) -> list[Arrival]:
        """Return agents that are enrolled, but not connected."""
        made = [Arrival(self.tower, f"late-{n}", self.backend) for n in range(count)]
        for each in made:
            self.addCleanup(each.end)
        return made
