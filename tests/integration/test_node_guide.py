"""``docs/node-tunnels.md``, command by command, with real nodes and a real API server."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.guide import Guide, path_with
from tests.integration.harness import KEEPALIVE, Tower
from tests.integration.member import kubectls, member
from tests.integration.node_fleet_kit import look_now
from tests.integration.ports import free_port
from tests.integration.programs import wait_for
from tests.integration.sshd import Sshd

PAGE = "node-tunnels.md"
LOOK = 90.0  # s for the list to be looked at, which is every 15 s
NODES = 3
FIRST = (
    "The key",
    "The right to impersonate",
    "Add the cluster",
    "Host keys",
    "List of nodes",
    "Kubelets",
)


class PageTests(SynchronousTestCase):
    """The commands of the page."""

    def test_every_command_is_run(self) -> None:
        """No heading of the page has commands that no test here runs."""
        self.assertEqual(set(Guide(PAGE, Path(), {}, {}).blocks), set(FIRST))


class NodeGuideTests(SynchronousTestCase):
    """The page's reader has nodes, an API server that they reach, and a proxy."""

    def setUp(self) -> None:
        """Start sshds, a member and a proxy."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.port = free_port()
        self.nodes = [
            Sshd(self.folder / f"node{number}", host=f"127.0.1.{number}", port=self.port)
            for number in range(1, NODES + 1)
        ]
        for node in self.nodes:
            self.addCleanup(node.kill)
            node.start()
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.start()
        shutil.copy(member().admin, self.folder / "beta-admin.kubeconfig")
        self.guide = self.prepared_guide()

    def prepared_guide(self) -> Guide:
        """Return the page, with real values in its commands."""
        installed = Path(sys.executable).parent
        environment = {
            "PATH": path_with(self.folder / "bin", kubectls()[-1], installed / "tower"),
            "TOWER_KEEPALIVE": f"{KEEPALIVE:g}s",
        }
        ports = member().info["ports"]
        names = {
            "/var/lib/tower/node-files": str(self.tower.node_files),
            "/var/lib/tower": str(self.tower.state),
            "tower.example.org:8443": f"{self.tower.host}:{self.tower.secure_port}",
            "https://10.0.0.1:6443": f"https://{member().service}",
            "--ssh-user core": f"--ssh-user {self.nodes[0].user}",
            "--kubelet-port 10250": f"--kubelet-port {ports['kubelet-standin']}",
            "-p 22 ": f"-p {self.port} ",
            **{f"node{number}:22": node.address for number, node in enumerate(self.nodes, 1)},
            **{f"node{number}": node.host for number, node in enumerate(self.nodes, 1)},
        }
        return Guide(PAGE, self.folder, environment, names)

    def status(self) -> dict[str, Any]:
        """Return the nodes in the status of the cluster's object."""
        told: dict[str, Any] = self.tower.status("beta")["status"].get("ssh", {})
        return told

    def wait_for_nodes(self, count: int) -> None:
        """Return once so many nodes are in the list, and open."""
        wait_for(
            f"{count} nodes",
            lambda: [node["state"] for node in self.status().get("nodes", ())] == ["open"] * count,
            LOOK,
        )

    def test_page(self) -> None:
        """From the key to the kubelet, each command has the documented effect."""
        guide = self.guide
        guide.run("The key", 0)
        for node in self.nodes:
            node.authorize((self.tower.node_files / "beta.pub").read_text())
        guide.run("The key", 1)
        known = (self.tower.node_files / "beta.known_hosts").read_text()
        self.assertTrue(all(node.known_hosts_line().strip() in known for node in self.nodes), known)
        guide.run("The right to impersonate")
        self.assertIn("cluster beta added", guide.run("Add the cluster", 0))
        self.wait_for_nodes(NODES)
        self.assertIn("gitVersion", guide.run("Add the cluster", 1))
        shown = guide.run("Add the cluster", 2)
        for node in self.nodes:
            self.assertIn(node.address, shown)
        self.forget_host_key()
        self.kubelet()
        guide.run("List of nodes")
        self.wait_for_nodes(NODES - 1)
        self.assertIn("gitVersion", guide.run("Add the cluster", 1))

    def forget_host_key(self) -> None:
        """A node with a pinned key and a new one is accepted again after the page's command."""
        node = self.nodes[0]
        (self.tower.node_files / "beta.known_hosts").write_text("")
        self.tower.tower("cluster", "set", "beta", "--ssh-host-keys", "accept-new")
        self.wait_for_nodes(NODES)
        node.kill()
        node.change_host_keys()
        node.start()
        look_now(self.tower)
        wait_for("the other key to be refused", lambda: "forget-host-key" in str(self.status()), LOOK)
        self.guide.run("Host keys")
        look_now(self.tower)
        self.wait_for_nodes(NODES)

    def kubelet(self) -> None:
        """A user with the right gets the kubelet's answer; without it, 403."""
        self.guide.run("Kubelets", 1)
        wait_for("a kubelet's answer", lambda: self.guide.run("Kubelets", 0).strip() == "ok")
