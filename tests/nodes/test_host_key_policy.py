"""Tests of `tower.nodes.host_key_policy`."""

from __future__ import annotations

import base64
from pathlib import Path

from attrs import evolve

from tests.fakes.node_records import ED25519, FIRST, OTHER, SECOND, SIXTH, NodesTestCase
from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.nodes.host_key_policy import HostKeyPolicy
from tower.nodes.record_files import RecordFile
from tower.nodes.ssh.host_keys import HostKeyRefused, HostKeyUnknown


class HostKeyPolicyTests(NodesTestCase):
    """One cluster's nodes, and a rule that changes."""

    def setUp(self) -> None:
        """A known_hosts file with the first node's key."""
        super().setUp()
        path = Path(self.mktemp()).absolute()
        path.write_text(f"{FIRST.host} ssh-ed25519 {base64.b64encode(ED25519).decode()}\n")
        self.by_file = SSHSpec("core", "/key", known_hosts=str(path))
        self.learning = evolve(self.by_file, host_keys="accept-new")
        self.blind = SSHSpec("core", "/key", host_keys="insecure-ignore")

    def make(self, spec: SSHSpec) -> HostKeyPolicy:
        """Return a policy that accepted the first two nodes."""
        policy = HostKeyPolicy(spec, self.known, RecordFile(Path(spec.known_hosts)))
        for node in (FIRST, SECOND):
            policy.accepted(node, ED25519)
        return policy

    def turned(self, policy: HostKeyPolicy, spec: SSHSpec, nodes: list[Node]) -> list[Node]:
        """Switch to another record; return the rejected nodes."""
        return policy.switch(spec, nodes, RecordFile(Path(spec.known_hosts)))

    def test_rules(self) -> None:
        """Each mode verifies as its name implies."""
        policy = self.make(self.blind)
        policy.judge(FIRST, OTHER)
        self.turned(policy, self.learning, [])
        self.assertRaises(HostKeyRefused, policy.judge, FIRST, OTHER)
        policy.judge(SIXTH, OTHER)
        self.turned(policy, self.by_file, [])
        self.assertRaises(HostKeyUnknown, policy.judge, SIXTH, OTHER)
        policy.judge(FIRST, ED25519)
        self.assertTrue(policy.algorithms(FIRST)[0].startswith(b"ssh-ed25519"))

    def test_never_verified(self) -> None:
        """A node that was never verified is returned if the new mode rejects it; a verified node is not."""
        policy = self.make(self.blind)
        self.assertEqual(self.turned(policy, self.by_file, [FIRST, SECOND]), [SECOND])
        policy = self.make(self.blind)
        self.assertEqual(self.turned(policy, self.learning, [FIRST, SECOND]), [])
        self.assertEqual(self.turned(policy, self.by_file, [FIRST, SECOND]), [])
        self.assertEqual(self.turned(policy, self.blind, [FIRST, SECOND]), [])
        self.assertEqual(self.turned(policy, self.by_file, [FIRST, SECOND]), [])

    def test_learned_from_those_that_are_there(self) -> None:
        """A verified node that is in no file is pinned when the mode becomes `accept-new`."""
        policy = self.make(evolve(self.by_file, known_hosts=""))
        self.turned(policy, self.learning, [FIRST, SECOND])
        self.assertEqual([pin.address for pin in self.known.pins.all()], [SECOND.address])
        self.assertRaises(HostKeyRefused, policy.judge, SECOND, OTHER)

    def test_forgotten(self) -> None:
        """Nothing is kept of removed nodes."""
        policy = self.make(self.blind)
        policy.keep([FIRST])
        self.assertEqual((set(policy.keys), policy.unverified), ({FIRST.address}, {FIRST.address}))
