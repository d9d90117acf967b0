"""Tests of `tower.nodes.remembered_nodes`: the last list of nodes, and host keys."""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fakes.members import SPEC, by_token
from tests.fakes.node_records import ED25519, FIRST, OTHER, SECOND, SIXTH, NodesTestCase, _blob
from tower.clusters.node import Node
from tower.conch.transport.keys import fingerprint
from tower.errors import NotFound
from tower.nodes import host_key_pins
from tower.nodes.remembered_nodes import REMEMBERED, PinnedHostKeys
from tower.nodes.ssh.host_keys import HostKeyRefused
from tower.nodes.ssh.known_hosts import KnownHosts
from tower.store.kinds import HOST_KEYS, NODES

RSA = _blob(rsa.generate_private_key(65537, 2048))


class RememberedNodesTests(NodesTestCase):
    """The last list."""

    def test_remembered(self) -> None:
        """A list comes back whole, in another order perhaps."""
        self.assertEqual(self.known.last(), [])
        self.known.remember([SECOND, FIRST, SIXTH])
        self.assertEqual(set(self.again().last()), {FIRST, SECOND, SIXTH})
        self.known.remember([FIRST])
        self.assertEqual(self.again().last(), [FIRST])

    def test_only_changes_are_written(self) -> None:
        """The same nodes in another order are not written again, and an empty list is not kept."""
        self.known.remember([FIRST, SECOND])
        version = self.store.version
        self.known.remember([SECOND, FIRST])
        self.known.remember([])
        self.again().remember([FIRST, SECOND])
        self.assertEqual(self.store.version, version)
        self.assertEqual(len(self.known.last()), 2)

    def test_slow_disk(self) -> None:
        """While one list is written only the newest of the others waits."""
        self.store.holding = True
        for number in range(9):
            self.known.remember([Node(f"10.0.1.{number}")])
        self.assertEqual(len(self.store.held), 1)
        self.store.release()
        self.assertEqual(self.known.last(), [Node("10.0.1.8")])

    def test_back_to_what_is_kept(self) -> None:
        """A list that was replaced while the disk was busy is not kept."""
        self.known.remember([FIRST])
        self.store.holding = True
        self.known.remember([SECOND])
        self.known.remember([FIRST])
        self.store.release()
        self.known.remember([FIRST])
        self.store.release()
        self.assertEqual(self.known.last(), [FIRST])

    def test_many(self) -> None:
        """A long list is shortened."""
        self.known.remember([Node(f"10.{n >> 8}.{n & 255}.1") for n in range(5000)])
        self.assertEqual(len(self.known.last()), REMEMBERED)

    def test_full_disk(self) -> None:
        """A list that cannot be written is logged once, and has no other effect."""
        self.successResultOf(self.store.stop())
        self.known.remember([FIRST])
        self.known.remember([SECOND])
        self.assertEqual(self.known.last(), [])

    def test_removed(self) -> None:
        """A list that comes after the cluster was removed, or replaced by another, is not kept."""
        self.known.remember([FIRST])
        self.successResultOf(self.clusters.remove("beta"))
        self.assertEqual(dict(self.store.snapshot(NODES)), {})
        self.known.remember([FIRST])
        self.successResultOf(self.clusters.add("beta", ssh=SPEC, access=by_token()))
        self.known.remember([FIRST])
        self.known.pins.learn(FIRST, ED25519)
        self.assertEqual([dict(self.store.snapshot(kind)) for kind in (NODES, HOST_KEYS)], [{}, {}])

    def test_removed_meanwhile(self) -> None:
        """A list that was being written then is not kept either."""
        self.store.holding = True
        self.known.remember([FIRST])
        self.known.pins.learn(FIRST, ED25519)
        held, self.store.held = self.store.held, []
        self.store.holding = False
        self.successResultOf(self.clusters.remove("beta"))
        self.store.held = held
        self.store.release()
        self.assertEqual([dict(self.store.snapshot(kind)) for kind in (NODES, HOST_KEYS)], [{}, {}])


class PinsTests(NodesTestCase):
    """Host keys in the store."""

    def test_learned_once(self) -> None:
        """The first key stays, also for the next start, and each node has its own."""
        self.known.pins.learn(FIRST, ED25519)
        self.known.pins.learn(FIRST, OTHER)
        self.known.pins.learn(SECOND, RSA)
        again = self.again().pins
        self.assertEqual([again.get(node) for node in (FIRST, SECOND, SIXTH)], [ED25519, RSA, None])
        self.assertEqual(
            [(pin.address, pin.name, pin.fingerprint) for pin in again.all()],
            [
                ("10.0.0.11:22", "10.0.0.11", fingerprint(ED25519)),
                ("10.0.0.12:2222", "node-2", fingerprint(RSA)),
            ],
        )

    def test_port_tells_nodes_apart(self) -> None:
        """Two servers at one address have separate keys."""
        self.known.pins.learn(Node("h", 22), ED25519)
        self.assertIsNone(self.known.pins.get(Node("h", 2222)))

    def test_counts_before_it_is_written(self) -> None:
        """A node that comes a second time while its key is being written must show the same one."""
        self.store.holding = True
        self.known.pins.learn(FIRST, ED25519)
        self.assertEqual(self.known.pins.get(FIRST), ED25519)
        self.known.pins.learn(FIRST, OTHER)
        self.store.release()
        self.assertEqual(self.again().pins.get(FIRST), ED25519)

    def test_cluster_changes_in_between(self) -> None:
        """A condition that is written at the same moment does not cost the key."""
        self.store.holding = True
        self.known.pins.learn(FIRST, ED25519)
        change = self.clusters.set_condition("beta", "NodesAvailable", "True", "R", "m")
        self.store.held.reverse()
        self.store.release()
        self.successResultOf(change)
        self.assertEqual(self.again().pins.get(FIRST), ED25519)

    def test_full_disk(self) -> None:
        """A key that cannot be written is pinned at the next connection."""
        self.successResultOf(self.store.stop())
        self.known.pins.learn(FIRST, ED25519)
        self.assertIsNone(self.known.pins.get(FIRST))

    def test_forgotten(self) -> None:
        """A node may be called by its name, its host or its address; others keep their keys."""
        for node, names in (
            (FIRST, ("10.0.0.11", "10.0.0.11:22")),
            (SECOND, ("node-2", "10.0.0.12", "10.0.0.12:2222")),
            (SIXTH, ("six", "fd00::6", "[fd00::6]", "[fd00::6]:22", "fd00::6:22")),
        ):
            for name in names:
                for each in (FIRST, SECOND, SIXTH):
                    self.known.pins.learn(each, ED25519)
                (gone,) = self.successResultOf(self.known.pins.forget(name))
                self.assertEqual(gone.address, node.address)
                self.assertIsNone(self.known.pins.get(node), name)
                self.assertEqual(len(self.known.pins.all()), 2)

    def test_forget_what_is_not_there(self) -> None:
        """The error names the node, and where nodes are listed."""
        self.known.pins.learn(FIRST, ED25519)
        for name in ("10.0.0.1", "node", ""):
            error = self.failureResultOf(self.known.pins.forget(name), NotFound).getErrorMessage()
            self.assertIn("tower cluster show beta", error)

    def test_bounded(self) -> None:
        """Above the limit the oldest key is removed."""
        self.patch(host_key_pins, "PIN_LIMIT", 3)
        nodes = [Node(f"n{number}") for number in range(5)]
        for node in nodes:
            self.known.pins.learn(node, ED25519)
        self.assertEqual([pin.name for pin in self.known.pins.all()], ["n2", "n3", "n4"])


class PinnedHostKeysTests(NodesTestCase):
    """accept-new."""

    def setUp(self) -> None:
        """A known_hosts file with another node's key."""
        super().setUp()
        self.keys = PinnedHostKeys(self.known)
        self.path = Path(self.mktemp())
        line = f"listed ssh-ed25519 {base64.b64encode(ED25519).decode()}\n"
        self.path.write_text(line + f"@revoked * ssh-rsa {base64.b64encode(RSA).decode()}\n")
        self.with_file = PinnedHostKeys(self.known, KnownHosts(self.path))
        self.listed = Node("listed")

    def test_first_key(self) -> None:
        """A first key is accepted, and pinned after the login, not before."""
        self.keys.judge(FIRST, ED25519)
        self.assertEqual(self.known.pins.all(), [])
        self.keys.accepted(FIRST, ED25519)
        self.keys.judge(FIRST, ED25519)
        self.assertEqual(len(self.known.pins.all()), 1)

    def test_another_key(self) -> None:
        """Another one later is refused, with both fingerprints and the cure; the cure works."""
        self.keys.accepted(SECOND, ED25519)
        error = self.assertRaises(HostKeyRefused, self.keys.judge, SECOND, OTHER)
        for text in (
            "node-2",
            fingerprint(ED25519),
            fingerprint(OTHER),
            "tower cluster forget-host-key beta 10.0.0.12:2222",
        ):
            self.assertIn(text, str(error))
        self.assertEqual(error.fingerprint, fingerprint(OTHER))
        self.assertRaises(HostKeyRefused, self.keys.judge, SECOND, RSA)
        self.successResultOf(self.known.pins.forget("node-2"))
        self.keys.judge(SECOND, OTHER)

    def test_algorithms(self) -> None:
        """The algorithm of a node's pinned key comes first, even if the node has other keys."""
        self.assertEqual(self.keys.algorithms(FIRST)[0], b"ssh-ed25519")
        self.keys.accepted(FIRST, RSA)
        self.assertIn(self.keys.algorithms(FIRST)[0], (b"rsa-sha2-512", b"rsa-sha2-256"))
        self.assertIn(b"ssh-ed25519", self.keys.algorithms(FIRST))
        self.known.pins.learn(self.listed, RSA)
        self.assertEqual(self.with_file.algorithms(self.listed)[0], b"ssh-ed25519")

    def test_known_hosts_first(self) -> None:
        """The file takes precedence for its nodes, and they are not pinned."""
        self.with_file.judge(self.listed, ED25519)
        self.with_file.accepted(self.listed, ED25519)
        self.assertEqual(self.known.pins.all(), [])
        self.assertRaises(HostKeyRefused, self.with_file.judge, self.listed, OTHER)
        self.known.pins.learn(self.listed, OTHER)
        self.assertRaises(HostKeyRefused, self.with_file.judge, self.listed, OTHER)
        self.with_file.judge(self.listed, ED25519)

    def test_revoked(self) -> None:
        """A key that the file revokes is rejected for every node."""
        self.assertRaises(HostKeyRefused, self.with_file.judge, FIRST, RSA)
        self.known.pins.learn(FIRST, RSA)
        self.assertRaises(HostKeyRefused, self.with_file.judge, FIRST, RSA)

    def test_file_without_the_node(self) -> None:
        """The first key of a node that is not in the file is pinned."""
        self.with_file.judge(FIRST, ED25519)
        self.with_file.accepted(FIRST, ED25519)
        self.assertRaises(HostKeyRefused, self.with_file.judge, FIRST, OTHER)
        self.assertEqual(self.with_file.algorithms(FIRST)[0], b"ssh-ed25519")
