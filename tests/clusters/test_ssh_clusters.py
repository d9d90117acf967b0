"""Clusters whose nodes are reached by SSH, among the clusters there are."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.members import SERVER, SPEC, by_certificate, by_token
from tests.store.store_contract import HeldStore
from tower.clusters import Cluster, Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node import Node
from tower.errors import Conflict, Invalid, TowerError
from tower.kube.kubeconfig import KubeAccess
from tower.nodes.remembered_nodes import RememberedNodes
from tower.store.kinds import CLUSTER_KINDS, KINDS
from tower.trust.vault import Vault, VaultError


class SSHClustersTests(SynchronousTestCase):
    """Each test has ports and a vault."""

    def setUp(self) -> None:
        """Make a store without clusters."""
        self.store = HeldStore()
        self.vault = Vault(self.mktemp())
        self.accesses = MemberCredentials(self.store, self.vault)
        self.clusters = Clusters(self.store, range(6000, 6003), Clock(), self.accesses)
        self.addCleanup(self.clusters.stop)

    def added(self, name: str = "beta", access: KubeAccess | None = None) -> Cluster:
        """Add a cluster."""
        return self.successResultOf(self.clusters.add(name, ssh=SPEC, access=access or by_token()))

    def text(self, failed: Deferred[Cluster], kind: type[TowerError] = Invalid) -> str:
        """Return the text of a failure; nothing was written."""
        text = str(self.failureResultOf(failed, kind).value)
        self.assertNotIn("hush", text)
        return text

    def counts(self) -> list[int]:
        """Return how many records there are of each kind."""
        return [len(self.store.snapshot(kind)) for kind in KINDS]

    def test_added(self) -> None:
        """It has a port like all others, its spec, and its credential."""
        beta = self.added()
        self.assertEqual((beta.type, beta.ssh, beta.kubernetes_port), ("ssh", SPEC, 6000))
        self.assertEqual(self.clusters.require("beta"), beta)
        self.assertEqual(self.accesses.get(beta), by_token())
        alpha = self.successResultOf(self.clusters.add("alpha"))
        self.assertEqual((alpha.type, alpha.ssh), ("proxy", None))

    def test_not_added(self) -> None:
        """An invalid cluster is rejected, and leaves no record and no port."""
        self.assertIn("needs a kubeconfig", self.text(self.clusters.add("beta", ssh=SPEC)))
        self.assertIn("of type proxy", self.text(self.clusters.add("beta", access=by_token())))
        self.assertIn(
            "user", self.text(self.clusters.add("beta", ssh=evolve(SPEC, user=""), access=by_token()))
        )
        http = evolve(by_token(), server="http://10.0.0.1")
        self.assertIn("use https", self.text(self.clusters.add("beta", ssh=SPEC, access=http)))
        nowhere = Clusters(self.store, None, Clock())
        self.addCleanup(nowhere.stop)
        self.assertIn("cannot be stored", self.text(nowhere.add("beta", ssh=SPEC, access=by_token())))
        self.vault.path.mkdir()
        self.text(self.clusters.add("beta", ssh=SPEC, access=by_token()), VaultError)
        self.assertEqual(sum(self.counts()), 0)

    def test_changed(self) -> None:
        """The SSH spec can be changed; an invalid change has no effect."""
        self.added()
        new = evolve(SPEC, user="core", nodes=())
        changed = self.successResultOf(self.clusters.change("beta", lambda old: evolve(old, ssh=new)))
        self.assertEqual(changed.ssh, new)
        bad = evolve(new, ssh_port=0)
        self.assertIn("sshPort", self.text(self.clusters.change("beta", lambda old: evolve(old, ssh=bad))))
        self.assertEqual(self.clusters.require("beta").ssh, new)

    def test_type_stays(self) -> None:
        """A cluster of one type does not become one of the other."""
        self.added()
        self.successResultOf(self.clusters.add("alpha"))
        for name, ssh in (("alpha", SPEC), ("beta", None)):
            failed = self.clusters.change(name, lambda old, ssh=ssh: evolve(old, ssh=ssh))  # type: ignore[misc]
            self.assertIn("cannot be changed", self.text(failed))
        self.assertIn(
            "of type proxy", self.text(self.clusters.change("alpha", lambda old: old, access=by_token()))
        )

    def test_credential_replaced(self) -> None:
        """A new credential replaces the old one, alone or with other changes, or not at all."""
        beta = self.added()
        new = by_certificate()
        self.successResultOf(self.clusters.change("beta", lambda old: old, access=new))
        self.assertEqual(self.accesses.get(beta), new)
        last = by_token("last")
        self.text(self.clusters.change("beta", lambda old: old, version=99, access=last), Conflict)
        self.assertEqual(self.accesses.get(beta), new)
        self.successResultOf(
            self.clusters.change("beta", lambda old: evolve(old, enabled=False), access=last)
        )
        self.assertFalse(self.clusters.require("beta").enabled)
        self.assertEqual(self.accesses.get(beta), last)
        self.assertEqual(len(self.store.snapshot("memberaccess")), 1)

    def test_credential_and_condition_at_once(self) -> None:
        """A concurrent change affects neither."""
        beta = self.added()
        other = Clusters(self.store, None, Clock(), self.accesses)
        self.addCleanup(other.stop)
        self.store.holding = True
        change = self.clusters.change("beta", lambda old: old, access=by_token("last"))
        condition = other.set_condition("beta", "NodesAvailable", "True", "R", "m")
        self.store.held.reverse()
        self.store.release()
        self.successResultOf(change)
        self.successResultOf(condition)
        self.assertEqual(self.accesses.get(beta), by_token("last"))
        self.assertEqual(len(self.clusters.require("beta").conditions), 1)

    def test_conditions_need_no_cloud(self) -> None:
        """A condition can be written even where the cloud provider was uninstalled since."""
        self.added()
        record = self.store.get("clusters", "beta")
        assert record is not None
        spec = {**record.value["ssh"], "nodes": [], "cloud_provider": "uninstalled"}
        self.successResultOf(self.store.update("clusters", "beta", {**record.value, "ssh": spec}))
        self.successResultOf(self.clusters.set_condition("beta", "NodesAvailable", "False", "R", "m"))
        self.successResultOf(self.clusters.set_enabled("beta", enabled=False))

    def test_removed(self) -> None:
        """With a cluster go its credential, what is known of its nodes, and its port, but no other's."""
        for name in ("beta", "gamma"):
            cluster = self.added(name)
            known = RememberedNodes(self.store, name, cluster.uid)
            known.remember([Node("n1"), Node("n2")])
            known.pins.learn(Node("n1"), b"\0\0\0\x0bssh-ed25519")
        kinds = ("clusters", "ports", "memberaccess", "nodes", "hostkeys")
        self.assertEqual([len(self.store.snapshot(kind)) for kind in kinds], [2] * 5)
        self.successResultOf(self.clusters.remove("beta"))
        self.assertEqual([len(self.store.snapshot(kind)) for kind in kinds], [1] * 5)
        self.assertEqual(self.accesses.get(self.clusters.require("gamma")).server, SERVER)
        self.successResultOf(self.clusters.remove("gamma"))
        self.assertEqual(sum(self.counts()), 0)

    def test_every_kind(self) -> None:
        """Each kind of record is either of a cluster, and goes with it, or known not to be."""
        self.assertEqual(
            set(KINDS) - set(CLUSTER_KINDS),
            {"clusters", "settings", "accesspolicies", "rbacobjects", "loginsessions"},
        )
