"""The cloud installs a new key on the nodes, and the next login uses it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.backends import Backend
from tests.integration.harness import Tower
from tests.integration.node_fleet_kit import CLUSTER, NodeFleet, look_now, ssh_status, wait_until_open, works
from tests.integration.person import Person
from tests.integration.programs import wait_for
from tests.integration.sshd import Sshd, write_key

NOTICED = 60.0  # s for another key, or another list, to be noticed
INSTALLED = 60.0  # s for the first key to be installed


class FakeCloudTests(SynchronousTestCase):
    """The fake cloud lists two nodes and writes keys where their sshds read them."""

    def setUp(self) -> None:
        """Start all of it; no key is installed yet, and there is none."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-keys-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.fleet = NodeFleet(self.folder / "fleet", 2)
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        for node in self.fleet.nodes:
            node.authorize()
        self.cloud = self.fleet.folder / "cloud.conf"
        self.write_cloud(self.fleet.nodes)
        self.backend = Backend(self.folder, CLUSTER)
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.tower = Tower(self.folder)
        self.addCleanup(self.check_log)
        self.addCleanup(self.tower.stop)
        self.tower.start()
        self.key = self.fleet.folder / "made" / "id"
        self.key.parent.mkdir(mode=0o700)

    def write_cloud(self, nodes: Iterable[Sshd], *more: str) -> None:
        """Write what the cloud knows."""
        lines = ["[fake]", f"authorized-keys = {self.fleet.folder}/%h/authorized_keys", *more]
        lines += [f"instance = {node.directory.name} {node.address}" for node in nodes]
        draft = self.folder / "cloud.new"
        draft.write_text("\n".join([*lines, ""]))
        draft.rename(self.cloud)

    def check_log(self) -> None:
        """Nothing went wrong in the proxy, and no key is in its log."""
        said = self.tower.proxy.output()
        self.assertNotIn("Traceback", said)
        for line in self.key.read_text().splitlines()[1:-1]:
            self.assertNotIn(line, said)

    def add(self) -> Person:
        """Add a cluster that consists of nodes and a cloud only; return jane."""
        self.tower.tower(
            *("cluster", "add", CLUSTER, "--type", "ssh", "--ssh-user", self.fleet.user),
            *("--ssh-keyfile", str(self.key), "--ssh-known-hosts", str(self.fleet.known_hosts)),
            *("--cloud-provider", "fake", "--cloud-config", str(self.cloud)),
            *("--member-kubeconfig", str(self.backend.kubeconfig(CLUSTER))),
        )
        return self.tower.person(CLUSTER, "jane")

    def logins(self) -> list[str]:
        """Return the name of the key of the last login at each node."""
        found = []
        for node in self.fleet.nodes:
            lines = [line for line in node.log().splitlines() if line.startswith("Accepted publickey")]
            found.append(lines[-1].split()[-1] if lines else "")
        return found

    def public(self) -> str:
        """Return the public key that the proxy has now."""
        return " ".join(self.key.with_suffix(".pub").read_text().split()[:2])

    def test_new_key(self) -> None:
        """The first key is made and installed; another one is, too, and the next login is with it."""
        jane = self.add()
        wait_until_open(self.tower, self.fleet.nodes, INSTALLED + NOTICED)
        self.assertTrue(works(jane))
        self.assertEqual(self.key.stat().st_mode & 0o777, 0o600)
        for node in self.fleet.nodes:
            self.assertIn(self.public(), node.authorized_keys.read_text())
        first = self.logins()
        self.assertEqual(len({*first, ""}), 2)
        installed = ssh_status(self.tower)["lastKeyInstall"]

        fresh = self.key.with_suffix(".fresh")
        line = write_key(fresh)
        public = self.key.with_suffix(".fresh.pub")
        public.write_text(f"{line} somebody@somewhere\n")
        fresh.rename(self.key)
        public.rename(self.key.with_suffix(".pub"))
        wait_for(
            "the new key at the nodes",
            lambda: all(line in node.authorized_keys.read_text() for node in self.fleet.nodes),
            NOTICED,
        )
        wait_until_open(self.tower, self.fleet.nodes, NOTICED)
        self.assertEqual(self.logins(), first)
        for node in self.fleet.nodes:
            node.authorize(line)
            node.cut()
        wait_for("logins with the new key", lambda: not {*self.logins()} & {*first}, NOTICED)
        wait_until_open(self.tower, self.fleet.nodes, NOTICED)
        self.assertTrue(works(jane))
        self.assertGreaterEqual(ssh_status(self.tower)["lastKeyInstall"], installed)

    def test_cloud_fails(self) -> None:
        """A failing cloud removes no node; a new node in its list has the key soon, not after minutes."""
        first, second = self.fleet.nodes
        self.write_cloud([first])
        jane = self.add()
        wait_until_open(self.tower, [first], INSTALLED + NOTICED)
        self.write_cloud([first], "fail = all")
        look_now(self.tower)
        wait_for("the complaint", lambda: ssh_status(self.tower).get("lastError"), NOTICED, 0.2)
        self.assertTrue(works(jane))
        wait_until_open(self.tower, [first], NOTICED)
        self.write_cloud([first, second])
        look_now(self.tower)
        wait_until_open(self.tower, [first, second], 2 * NOTICED)
