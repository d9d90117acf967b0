"""Clocks that jump forward and back during use."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.programs import Program, wait_for
from tests.integration.uses import Upgrade

CLOCKWORK = Path(__file__).resolve().parent / "clockwork"
CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"
HOUR = 3600.0  # s
SKEW = 200.0  # s that a clock may be set back
LONG = 60.0  # s within which a dead peer is noticed, on any machine
WATCHED = 2 * harness.KEEPALIVE + 1.0  # s after which a living one would be given up by mistake
SWEPT = 60.0  # s within which an expired credential stops working
ADMINS = 60.0  # s within which the admin has a new kubeconfig
BACK = 60.0  # s for an agent to come back


class ClockTests(harness.TowerTestCase):
    """A proxy and an agent whose time of day the test sets."""

    def setUp(self) -> None:
        """Start everything at the right time."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.tower.tower("cluster", "add", "alpha")
        agent = self.agent = self.tower.agent("alpha", self.backend.kubeconfig("alpha"))
        agent.program = Program(
            agent.name, agent.argv, self.folder, {**agent.environment, **self.environment}
        )
        agent.program.start()
        agent.wait_until_ready()
        self.jane = self.tower.person("alpha", "jane", "--ttl", "20h")
        self.use: Upgrade | None = None

    def new_tower(self) -> harness.Tower:
        """Return a Tower whose clock the test sets."""
        self.step = self.folder / "step"
        self.step.touch()
        path = os.pathsep.join([str(CLOCKWORK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.environment = {"PYTHONPATH": path, "CLOCK_STEP": str(self.step)}
        tower = super().new_tower()
        tower.proxy = Program("tower-proxy", tower.proxy.argv, self.folder, self.environment)
        return tower

    def set_clock(self, seconds: float) -> None:
        """Set the clock *seconds* ahead."""
        text = self.step.with_suffix(".new")
        text.write_text(str(seconds))
        text.replace(self.step)

    def check_step(self, seconds: float) -> None:
        """Set the clock during use: nothing is lost."""
        self.use = use = Upgrade(self.jane)
        kept = self.jane.connect()
        self.addCleanup(kept.close)
        use.wait_for_middle(BACK)
        connections = self.connected()
        self.set_clock(seconds)
        deadline = time.monotonic() + WATCHED
        while time.monotonic() < deadline:
            moved = use.moved
            self.assertEqual(self.jane.ask(kept, f"{self.jane.prefix}/ping").read(), b"pong")
            self.assertTrue(self.agent.ready())
            time.sleep(0.5)
            use.wait_for_more(moved, BACK)
            self.assertGreater(use.moved, moved, use.result(0))
        self.assertEqual(self.connected(), connections)

    def check_death(self) -> None:
        """Stop the agent: the proxy notices in time, at any time of day."""
        connections, gone = self.connected(), self.gone()
        self.agent.program.pause()
        wait_for("the proxy to notice", lambda: self.gone() > gone, LONG)
        self.agent.program.resume()
        assert self.use is not None
        self.assertTrue(self.use.broken(LONG), self.use)
        wait_for("the agent's return", lambda: self.connected() > connections and self.agent.ready(), BACK)
        self.assertEqual(self.jane.get("/ping").status, 200)

    def connected(self) -> int:
        """Return how often the agent has connected."""
        return self.tower.proxy.output().count("agent of alpha connected")

    def gone(self) -> int:
        """Return how often the proxy has noticed that the agent disconnected."""
        return self.tower.proxy.output().count("disconnected:")

    def check_admin(self) -> None:
        """Check that the kubeconfig in the state directory is valid again soon."""
        wait_for("the admin", lambda: self.tower.admin().get(CLUSTERS).status == 200, ADMINS, 0.5)

    def test_forward_and_back(self) -> None:
        """Only credentials that depend on the time of day expire."""
        joe = self.tower.person("alpha", "joe", "--ttl", "30m")
        use = Upgrade(joe, "joe")
        use.wait_for_middle(BACK)
        self.check_step(2 * HOUR)
        self.assertTrue(use.broken(SWEPT))
        self.assertEqual(joe.get("/ping").status, 401)
        self.check_admin()
        self.check_step(0.0)
        self.check_death()
        self.check_admin()
        self.check_step(-SKEW)
        for program in (self.tower.proxy, self.agent.program):
            self.assertNotIn("Traceback", program.output())
