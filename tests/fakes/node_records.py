"""Nodes, their host keys, and records of them."""

from __future__ import annotations

import base64
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.members import SPEC, by_token
from tests.store.store_contract import HeldStore
from tower.clusters import Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node import Node
from tower.nodes.remembered_nodes import RememberedNodes
from tower.trust.vault import Vault

FIRST = Node("10.0.0.11")


SECOND = Node("10.0.0.12", 2222, "node-2", frozenset({"node-2.example.org", "fd00::2"}))


SIXTH = Node("fd00::6", 22, "six")


def _blob(key: Any) -> bytes:
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])


ED25519, OTHER = _blob(Ed25519PrivateKey.generate()), _blob(Ed25519PrivateKey.generate())


class NodesTestCase(SynchronousTestCase):
    """A test with a cluster beta."""

    def setUp(self) -> None:
        """Add it."""
        self.store = HeldStore()
        accesses = MemberCredentials(self.store, Vault(self.mktemp()))
        self.clusters = Clusters(self.store, None, Clock(), accesses)
        self.addCleanup(self.clusters.stop)
        self.uid = self.successResultOf(self.clusters.add("beta", ssh=SPEC, access=by_token())).uid
        self.known = self.again()

    def again(self) -> RememberedNodes:
        """Return what the next start of the proxy knows."""
        return RememberedNodes(self.store, "beta", self.uid)
