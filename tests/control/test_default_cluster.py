"""Tests of `tower.control.default_cluster`."""

from __future__ import annotations

import json
from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.ssh_spec import DefaultCluster, SSHSpec
from tower.clusters.ssh_spec_object import NAMES, OPTIONS, SPEC_PATH
from tower.control.default_cluster import ensure_default_cluster, read_access
from tower.control.ssh_options import NodeOptions
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.store import MemoryStore
from tower.trust.vault import Vault

ACCESS = KubeAccess("https://10.0.0.1:6443", insecure=True, token="t")
SPEC = SSHSpec("core", "/keys/id", nodes=("h1:22",))


class GivenTests(SynchronousTestCase):
    """The cluster of --ssh-user."""

    def setUp(self) -> None:
        """Make a store."""
        store = MemoryStore()
        self.accesses = MemberCredentials(store, Vault(f"{self.mktemp()}.key"))
        self.clusters = Clusters(store, None, Clock(), self.accesses)

    def ensure(self, spec: SSHSpec = SPEC, access: KubeAccess | None = ACCESS) -> Deferred[None]:
        """Ensure the cluster."""
        return Deferred.fromCoroutine(
            ensure_default_cluster(self.clusters, DefaultCluster("default", spec, None), access)
        )

    def test_added(self) -> None:
        """The first start adds the cluster with its credential."""
        self.successResultOf(self.ensure())
        cluster = self.clusters.require("default")
        self.assertEqual(cluster.ssh, SPEC)
        self.assertEqual(self.accesses.get(cluster).token, "t")

    def test_changed(self) -> None:
        """Later starts update it; fields without an option stay."""
        self.successResultOf(self.ensure())
        first = self.clusters.require("default")
        assert first.ssh is not None
        kept = evolve(first.ssh, targets={"pg": "10.0.0.5:5432"}, allow_system=True)
        kept = evolve(kept, allowed_identities=("system:monitoring",))
        self.successResultOf(self.clusters.change("default", lambda cluster: evolve(cluster, ssh=kept)))
        self.successResultOf(self.ensure(evolve(SPEC, nodes=("h2:22",)), None))
        cluster = self.clusters.require("default")
        self.assertEqual(cluster.ssh, evolve(kept, nodes=("h2:22",)))
        self.assertEqual((cluster.uid, self.accesses.get(cluster).token), (first.uid, "t"))

    def test_same(self) -> None:
        """A start without changes writes nothing."""
        self.successResultOf(self.ensure())
        before = self.clusters.require("default").resource_version
        self.successResultOf(self.ensure(access=None))
        self.assertEqual(self.clusters.require("default").resource_version, before)

    def test_no_credential(self) -> None:
        """Without a credential, new or stored, the start fails with the cure."""
        error = self.failureResultOf(self.ensure(access=None), ConfigurationError)
        self.assertIn("--member-kubeconfig", str(error.value))

    def test_taken(self) -> None:
        """A cluster of that name with an agent is left unchanged."""
        self.successResultOf(self.clusters.add("default"))
        error = self.failureResultOf(self.ensure(), ConfigurationError)
        self.assertIn("--ssh-cluster", str(error.value))
        self.assertIsNone(self.clusters.require("default").ssh)


class ReadingTests(SynchronousTestCase):
    """Checks at the start."""

    def given(self, content: object = None, spec: SSHSpec = SPEC) -> DefaultCluster:
        """Return a cluster with a kubeconfig of this content."""
        path = Path(self.mktemp())
        path.write_text(json.dumps(content))
        return DefaultCluster("default", spec, path if content is not None else None)

    def kubeconfig(self, server: str = "https://10.0.0.1:6443") -> object:
        """Return a cluster."""
        return {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": server}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }

    def test_good(self) -> None:
        """The credential is read from the file, if there is one."""
        access = read_access(self.given(self.kubeconfig()))
        assert access is not None
        self.assertEqual(access.token, "t")
        self.assertIsNone(read_access(self.given()))

    def test_named_by_option(self) -> None:
        """Errors name existing options, and never the fields of an object."""
        for given, wanted in (
            (self.given(self.kubeconfig("http://10.0.0.1:8080")), "--member-kubeconfig: server is http://: "),
            (
                self.given(spec=evolve(SPEC, cloud_provider="nimbus", nodes=())),
                "--cloud-provider: 'nimbus': ",
            ),
            (self.given(spec=evolve(SPEC, nodes=("a:1", "b c"))), "--nodes[1]: 'b c': must be"),
            (self.given(spec=evolve(SPEC, key_file="~/id")), "--ssh-keyfile: '~/id': must be"),
        ):
            error = self.assertRaises(ConfigurationError, read_access, given)
            self.assertIn(wanted, str(error))
            self.assertNotIn("spec.", str(error))
        known = {each[0] for each in (*NodeOptions.optParameters, *NodeOptions.optFlags)}
        self.assertEqual(set(OPTIONS.values()) - known, set())
        fields = {f"{SPEC_PATH}.{name}" for name in NAMES.values()} | {"spec.connection.kubeconfig"}
        self.assertEqual(set(OPTIONS) - fields, set())

    def test_bad(self) -> None:
        """An invalid value ends the program, with the value in the error."""
        for given, wanted in (
            (self.given({}), "kubeconfig"),
            (self.given(self.kubeconfig("http://10.0.0.1:8080")), "use https"),
            (self.given(spec=evolve(SPEC, cloud_provider="nimbus", nodes=())), "nimbus"),
            (self.given(spec=evolve(SPEC, user="")), "user"),
        ):
            error = self.assertRaises(ConfigurationError, read_access, given)
            self.assertIn(wanted, str(error))

    def test_cloud_config(self) -> None:
        """A cloud's configuration that is missing or invalid ends the start with one line."""
        good, bad = Path(self.mktemp()), Path(self.mktemp())
        good.write_text("[fake]\ninstance = node-1 127.0.0.1:22\n")
        bad.write_text("[fake]\ninstance = node-1\n")
        self.assertIsNone(read_access(self.given(spec=self.of_cloud(good))))
        for path, wanted in (
            (bad, f'could not init cloud provider "fake": {bad.absolute()}:2: instance '),
            (Path("/nowhere/fake.conf"), "configuration /nowhere/fake.conf: No such file or directory"),
        ):
            error = str(
                self.assertRaises(ConfigurationError, read_access, self.given(spec=self.of_cloud(path)))
            )
            self.assertIn(wanted, error)
            self.assertEqual(len(error.splitlines()), 1)

    def of_cloud(self, config: Path) -> SSHSpec:
        """Return a specification whose nodes a cloud lists."""
        path = str(config.absolute())
        return evolve(SPEC, key_file=__file__, nodes=(), cloud_provider="fake", cloud_config=path)
