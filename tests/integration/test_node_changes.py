"""Changes of a cluster of nodes while users work, and mistakes in its list."""

from __future__ import annotations

from tests.integration.node_cluster_kit import LISTED, NodeClusterTestCase, streaming
from tests.integration.node_fleet_kit import (
    CLUSTER,
    look_now,
    ssh_status,
    wait_until_open,
    wait_until_up,
    works,
)
from tests.integration.programs import wait_for

#: Wrong texts in a file of nodes; their words are valid names.
MISTAKES = ("Permission denied\n", "nodes forbidden\ntimeout\n")


class ChangeTests(NodeClusterTestCase):
    """A stream is open all the time."""

    def test_login(self) -> None:
        """Another user, rule for host keys and source of the list disturb nothing that is open."""
        jane = self.added()
        with streaming(jane) as stream:
            logged_in = self.sessions()
            for words in (
                ("--ssh-user", "somebody-else"),
                ("--ssh-host-keys", "insecure-ignore", "--ssh-known-hosts", ""),
                ("--ssh-host-keys", "accept-new"),
                ("--ssh-user", self.fleet.user, "--ssh-known-hosts", str(self.fleet.known_hosts)),
                ("--ssh-host-keys", "known-hosts"),
            ):
                self.tower.tower("cluster", "set", CLUSTER, *words)
                look_now(self.tower)
                self.assertTrue(stream(), words)
            wait_until_up(self.tower, self.fleet.nodes)
            self.assertEqual(self.sessions(), logged_in)
        self.assertTrue(works(jane))

    def test_never_verified(self) -> None:
        """A node that was never verified is reconnected if the new mode rejects it, and stays otherwise."""
        self.fleet.write_known_hosts([])
        jane = self.added("--ssh-host-keys", "accept-new")
        known = self.fleet.nodes[0]
        unseen = ("--ssh-host-keys", "insecure-ignore", "--ssh-known-hosts", "")
        self.tower.tower("cluster", "set", CLUSTER, *unseen)
        for node in self.fleet.nodes:
            node.cut()
        wait_until_up(self.tower, self.fleet.nodes, LISTED)
        self.fleet.write_known_hosts([known])
        words = ("--ssh-host-keys", "known-hosts", "--ssh-known-hosts", str(self.fleet.known_hosts))
        self.tower.tower("cluster", "set", CLUSTER, *words)
        wait_for("the other one to be refused", lambda: "host key" in self.error(1), LISTED, 0.1)
        self.assertTrue(works(jane))

    def test_a_list_that_is_none(self) -> None:
        """Words in the file that name none of the nodes leave all tunnels open, and are reported."""
        listed = self.fleet.folder / "nodes"
        right = "".join(f"{node.address}\n" for node in self.fleet.nodes)
        listed.write_text(right)
        jane = self.add("--nodes-file", str(listed), nodes=[])
        wait_until_open(self.tower, self.fleet.nodes)
        with streaming(jane) as stream:
            for text in MISTAKES:
                listed.write_text(text)
                look_now(self.tower)
                wait_for(
                    "the complaint",
                    lambda: "it names none of the 2 nodes" in ssh_status(self.tower).get("lastError", ""),
                    LISTED,
                    0.2,
                )
                self.assertTrue(stream())
                listed.write_text(right)
                look_now(self.tower)
                wait_for("the list", lambda: "lastError" not in ssh_status(self.tower), LISTED, 0.2)
            wait_until_open(self.tower, self.fleet.nodes)
