"""The restore drill: a backup of a running proxy, restored elsewhere, serves the same agent and user."""

from __future__ import annotations

import os
import stat

from tests.integration.backends import Backend
from tests.integration.harness import Tower, TowerTestCase
from tests.integration.programs import wait_for

PATIENCE = 60.0  # s


class DrillTests(TowerTestCase):
    """One cluster with an agent, and a user."""

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.agent = self.tower.add("alpha", self.backend.kubeconfig("alpha"))
        self.agent.forget_token()
        self.jane = self.tower.person("alpha", "jane")

    def replacement(self) -> Tower:
        """Return a Tower at the same addresses with an empty state directory; it is not started."""
        fresh = Tower(self.folder)
        fresh.state = self.folder / "restored"
        fresh.port, fresh.secure_port = self.tower.port, self.tower.secure_port
        fresh.cluster_ports = self.tower.cluster_ports
        fresh.proxy = fresh.proxy_program(name="restored-proxy")
        self.addCleanup(fresh.stop)
        return fresh

    def test_drill(self) -> None:
        """The agent reconnects to the restored proxy, and the user's kubeconfig works."""
        file = self.folder / "tower.backup"
        self.tower.tower("rotate", "users-ca")  # a backup in the middle of a rotation is complete, too
        bill = self.tower.person("alpha", "bill")
        self.assertIn("verified", self.tower.tower("backup", str(file)))
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertEqual(self.jane.get("/ping").status, 200)
        code, _, error = self.tower.try_tower("backup", str(file))
        self.assertEqual((code, "--force" in error), (1, True))

        code, _, error = self.tower.try_tower("restore", str(file))
        self.assertEqual((code, "in use by another Tower process" in error), (1, True), error)
        self.tower.proxy.kill()
        fresh = self.replacement()
        self.assertIn("start tower-proxy", fresh.tower("restore", str(file)))
        self.assertEqual(
            {name: stat.S_IMODE(os.stat(fresh.state / name).st_mode) for name in os.listdir(fresh.state)},
            {
                name: stat.S_IMODE(os.stat(self.tower.state / name).st_mode)
                for name in os.listdir(self.tower.state)
                if not name.startswith(("admin", "tower.db-"))
            },
        )
        fresh.start()
        wait_for("the agent at the restored proxy", lambda: self.jane.get("/ping").status == 200, PATIENCE)
        self.assertEqual(bill.get("/ping").status, 200)
        self.assertIn("users-ca", fresh.tower("rotate", "status"))
        wait_for("the agent's line", lambda: "agent of alpha connected" in fresh.proxy.output())
        self.assertNotIn("Traceback", fresh.proxy.output())
