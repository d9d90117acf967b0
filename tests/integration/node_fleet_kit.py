"""A fleet of nodes for a cluster of type ssh: an OpenSSH server each, and the key that opens all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

from tests.integration.harness import Tower
from tests.integration.person import Person
from tests.integration.programs import wait_for
from tests.integration.sshd import SSHD, Sshd, write_key

CAME_UP = 60.0  # s for a tunnel to a running node, with the next list at the latest
CLUSTER = "beta"


class NodeFleet:
    """Some nodes; their real addresses differ from those at the API server.

    :param folder: for all files; made if missing.
    :param count: of nodes.
    :param port: shared by all of them; without it each has its own port.
    :param host_key_types: of each; see `tests.integration.sshd`.
    :param options: settings of each.
    :ivar nodes: the servers.
    :ivar key_file: private key that all of them accept; the public half is in the same directory.
    :ivar known_hosts: last output of `write_known_hosts`: all nodes, at first.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        port: int | None = None,
        host_key_types: Sequence[str] = ("ed25519",),
        options: Mapping[str, str] | None = None,
    ) -> None:
        if SSHD is None:
            raise SkipTest("no OpenSSH server")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key_file = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self.nodes = [
            Sshd(
                folder / f"node-{number}",
                host=f"127.0.1.{number}",
                port=port,
                host_key_types=host_key_types,
                options=options,
            )
            for number in range(1, count + 1)
        ]
        self.new_key()
        self.write_known_hosts()

    @property
    def user(self) -> str:
        """The account on every node."""
        return self.nodes[0].user

    @property
    def addresses(self) -> str:
        """All nodes, as ``--nodes`` takes them."""
        return addresses(self.nodes)

    def start(self) -> None:
        """Start all nodes."""
        for node in self.nodes:
            node.start()

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.kill()

    def new_key(self) -> str:
        """Replace the key, at the nodes as well, which then reject the old one; return its public line."""
        fresh = self.folder / "id.new"
        line = write_key(fresh)
        public = self.folder / "id.pub.new"
        public.write_text(f"{line} somebody@somewhere\n")
        for node in self.nodes:
            node.authorize(line)
        fresh.rename(self.key_file)
        public.rename(self.folder / "id.pub")
        return line

    def write_known_hosts(self, nodes: Iterable[Sshd] | None = None) -> None:
        """Write the known_hosts file of these nodes, or of all."""
        lines = [node.known_hosts_line() for node in (self.nodes if nodes is None else nodes)]
        self.known_hosts.write_text("".join(lines))

    def add_to(
        self,
        tower: Tower,
        kubeconfig: Path,
        *extra: str,
        nodes: Sequence[Sshd] | None = None,
        cluster: str = CLUSTER,
    ) -> None:
        """Add them to Tower as *cluster*.

        :param kubeconfig: names its API server.
        :param nodes: to list, instead of all; none: they are listed by other means.
        """
        listed = self.nodes if nodes is None else nodes
        tower.tower(
            *("cluster", "add", cluster, "--type", "ssh", "--ssh-user", self.user),
            *("--ssh-keyfile", str(self.key_file), "--ssh-known-hosts", str(self.known_hosts)),
            *(("--nodes", addresses(listed)) if listed else ()),
            *("--member-kubeconfig", str(kubeconfig), *extra),
        )


def addresses(nodes: Iterable[Sshd]) -> str:
    """Return nodes as ``--nodes`` takes them."""
    return ",".join(node.address for node in nodes)


def look_now(tower: Tower) -> None:
    """List the nodes and retry those that are not open now, instead of within 15 s."""
    # A change of the nodes in a cluster's record takes effect at once; so make one.
    names = tower.status(CLUSTER)["spec"]["connection"]["ssh"].get("targets", {})
    tower.tower("cluster", "set", CLUSTER, "--target", f"look{len(names)}=127.0.0.1:1")


def ssh_status(tower: Tower) -> dict[str, Any]:
    """Return the cluster object's status of its nodes."""
    reported: dict[str, Any] = tower.status(CLUSTER)["status"].get("ssh", {})
    return reported


def states(tower: Tower) -> dict[str, str]:
    """Return the state of each node by its address."""
    return {node["address"]: node["state"] for node in ssh_status(tower).get("nodes", [])}


def wait_for_states(tower: Tower, wanted: Mapping[str, str], timeout: float = CAME_UP) -> None:
    """Return once the nodes are these, in these states."""
    wait_for(f"the nodes to be {wanted}", lambda: states(tower) == dict(wanted), timeout, 0.1)


def wait_until_open(tower: Tower, nodes: Iterable[Sshd], timeout: float = CAME_UP) -> None:
    """Return once the nodes are these, and all open."""
    wait_for_states(tower, {node.address: "open" for node in nodes}, timeout)


def wait_until_up(tower: Tower, nodes: Iterable[Sshd], timeout: float = CAME_UP) -> None:
    """Return once the nodes are these, with a tunnel to each, in any state."""
    wanted = {node.address for node in nodes}

    def are_up() -> bool:
        known = states(tower)
        return set(known) == wanted and set(known.values()) <= {"open", "degraded"}

    wait_for(f"tunnels to {sorted(wanted)}", are_up, timeout, 0.1)


def works(person: Person, path: str = "/ping") -> bool:
    """Return whether a request gets through."""
    return person.get(path).status == 200


def message(body: bytes) -> str:
    """Return the message of a Status."""
    status = json.loads(body)
    assert status["kind"] == "Status", status
    return str(status["message"])
