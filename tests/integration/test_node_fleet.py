"""Two hundred nodes of one cluster: their cost, the rate of health checks, and changes of the list."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.conch_list import ALL, CHANGED, FASTER, FEW, ROUNDS
from tests.integration.ports import free_port
from tests.integration.programs import Program, wait_for
from tower.nodes.tunnels.tunnels import HEALTH_PERIOD

MOST_MEMORY = 60 * 1024  # B for each node
SOON = 15.0  # s, the time between two lists
PATIENCE = 1000.0  # s for everything
PERIOD = HEALTH_PERIOD / FASTER  # s, one of the list's minutes

ROOT = Path(__file__).parents[2]


class NodeFleetTests(SynchronousTestCase):
    """The nodes are in one process and the list in another; both go through everything once."""

    found: ClassVar[dict[str, float]] = {}

    def setUp(self) -> None:
        """Go through it, for the first test."""
        if self.found:
            return
        folder = Path(tempfile.mkdtemp(prefix="tower-nodes-"))
        self.addCleanup(shutil.rmtree, folder, True)
        port = free_port()
        where = {"PYTHONPATH": str(ROOT)}
        module = [sys.executable, "-m"]
        nodes = Program(
            "nodes", [*module, "tests.integration.conch_nodes", str(port), str(ALL + CHANGED)], folder, where
        )
        self.addCleanup(nodes.stop)
        nodes.start()
        wait_for("the nodes to listen", lambda: "ready" in nodes.output())
        tunnels = Program("list", [*module, "tests.integration.conch_list", str(port)], folder, where)
        self.addCleanup(tunnels.stop)
        tunnels.start()
        self.assertEqual(tunnels.wait(PATIENCE), 0, tunnels.tail() + nodes.tail())
        self.found.update(json.loads(tunnels.output().splitlines()[-1]))

    def as_long(self, count: int) -> float:
        """Return how long so many nodes would take that are opened as slowly as the first ones, twice, s."""
        return 2 * count * self.found["few_s"] / FEW

    def test_opened(self) -> None:
        """A fleet comes up within the time between two lists, one connection for each node.

        Or it takes as long for each as a few nodes take for each, on a machine that takes long for those.
        """
        self.assertLess(self.found["opened_s"], SOON + self.as_long(ALL - FEW))
        self.assertEqual((self.found["opens"], self.found["failures"]), (ALL + CHANGED, 0))

    def test_memory(self) -> None:
        """A node costs little memory."""
        self.assertLess(self.found["memory_per_node"], MOST_MEMORY)

    def test_health(self) -> None:
        """Each node is looked at as often as the others, and once a minute at the most."""
        self.assertLessEqual(self.found["checks_most"], ROUNDS + 1)
        self.assertGreater(self.found["rounds_s"], (ROUNDS - 1) * PERIOD)
        self.assertLess(self.found["rounds_s"], (ROUNDS + 1) * PERIOD + self.as_long(ALL))

    def test_change(self) -> None:
        """A list with fifty other nodes settles before the next listing, and the rest is not affected."""
        self.assertLess(self.found["change_s"], SOON + self.as_long(CHANGED))
        self.assertEqual(self.found["disturbed"], 0)
