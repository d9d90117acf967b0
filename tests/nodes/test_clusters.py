"""Tests of `tower.nodes.clusters` and `tower.nodes.cluster`; lists of nodes fail, so nothing connects."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from attrs import evolve
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW
from tests.fakes.chains import family, pem
from tests.fakes.tls_servers import MisdatedServer
from tower.clusters import Clusters
from tower.clusters.cluster import Cluster
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node import Node
from tower.clusters.ssh_spec import SSHSpec
from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_cures import SYNCHRONIZE
from tower.kube.member_status import Check, MemberStatus
from tower.kube.status import StatusError
from tower.net.budget import Budget
from tower.nodes import cluster as cluster_module
from tower.nodes.cluster import NodeCluster
from tower.nodes.clusters import REPORT_PERIOD, NodeClusters
from tower.nodes.node_sources import Lister, ListingFailed
from tower.nodes.record_files import NodeFiles
from tower.nodes.ssh.client_key import KeyUnusable
from tower.reactor.interfaces import IReactor
from tower.reactor.poller import Poller
from tower.reactor.timers import Wheel
from tower.store import MemoryStore
from tower.trust.vault import Vault
from tower.tunnels import Tunnels

ACCESS = KubeAccess("https://10.0.0.1:6443", insecure=True, token="of-beta")


def host_key(number: int) -> str:
    """Return the line of a public key."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32).public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def warnings(events: Iterable[LogEvent]) -> list[str]:
    """Return the logged warnings about system identities that users may act as."""
    said = [eventAsText(event) for event in events if event["log_level"] is LogLevel.warn]
    return [text for text in said if "may act as" in text]


class NodeClustersTests(SynchronousTestCase):
    """Clusters come, change and go with their records."""

    def setUp(self) -> None:
        """A store, and a service that follows it."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = MemoryStore()
        self.accesses = MemberCredentials(self.store, Vault(self.folder / "secrets.key"))
        self.clusters = Clusters(self.store, None, self.clock, self.accesses)
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        files = NodeFiles(self.folder)
        create = partial(
            NodeCluster,
            reactor=cast(IReactor, self.clock),
            poller=cast(Poller, None),
            clock=Wheel(self.clock),
            store=self.store,
            tunnels=self.tunnels,
            credentials=self.accesses,
            budget=Budget(1 << 20),
            epoch=self.clock.seconds,
            keepalive=15.0,
            files=files,
        )
        self.nodes = NodeClusters(self.clusters, self.accesses, self.tunnels, files, create)
        self.nodes.startService()
        self.addCleanup(self.stop)

    def stop(self) -> None:
        """Stop; nothing is left on the clock."""
        stopping = self.nodes.stopService()
        self.clock.advance(30)
        self.successResultOf(stopping)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def spec(self, **more: Any) -> SSHSpec:
        """Return a spec whose file of nodes does not exist."""
        parts = {"key_file": str(self.folder / "key"), "nodes_file": str(self.folder / "nodes"), **more}
        return SSHSpec("core", **parts)

    def add(self, access: KubeAccess | None = ACCESS, **more: Any) -> Cluster:
        """Add beta."""
        return self.successResultOf(self.clusters.add("beta", ssh=self.spec(**more), access=access))

    def change(self, **parts: Any) -> None:
        """Change how beta is reached."""

        def edit(cluster: Cluster) -> Cluster:
            assert cluster.ssh is not None
            return evolve(cluster, ssh=evolve(cluster.ssh, **parts))

        self.successResultOf(self.clusters.change("beta", edit))

    def look(self) -> None:
        """Report once."""
        self.successResultOf(Deferred.fromCoroutine(self.nodes.report()))

    def said(self, kind: str) -> tuple[str, str, str] | None:
        """Return status, reason and message of a condition of beta."""
        found = self.clusters.require("beta").condition(kind)
        return None if found is None else (found.status, found.reason, found.message)

    def test_comes_and_goes(self) -> None:
        """One that is added is kept until it is disabled or removed; one with an agent is left alone."""
        self.successResultOf(self.clusters.add("alpha"))
        self.add()
        self.assertIsNone(self.nodes.get("alpha"))
        self.assertIsNotNone(self.nodes.get("beta"))
        self.assertIn("No SSH tunnels currently open", self.tunnels.why_not("beta"))
        self.successResultOf(self.clusters.set_enabled("beta", False))
        self.assertIsNone(self.nodes.get("beta"))
        self.successResultOf(self.clusters.set_enabled("beta", True))
        self.assertIsNotNone(self.nodes.get("beta"))
        self.successResultOf(self.clusters.remove("beta"))
        self.assertIsNone(self.nodes.get("beta"))
        self.assertIsNone(self.nodes.status("beta"))
        self.assertIn("agent of cluster beta", self.tunnels.why_not("beta"))

    def test_there_before(self) -> None:
        """Clusters that are in the store when the service starts run, too."""
        self.add()
        self.stop()
        self.assertIsNone(self.nodes.get("beta"))
        self.nodes.startService()
        self.assertIsNotNone(self.nodes.get("beta"))

    def test_list_from_before(self) -> None:
        """After a restart the nodes of the last list are dialed, which counts as no look at the list."""
        self.add(nodes_file="")
        running = self.nodes.get("beta")
        assert running is not None
        running.remembered.remember([Node("10.0.0.1")])
        self.stop()
        self.nodes.startService()
        status = self.nodes.status("beta")
        assert status is not None
        self.assertEqual([node.address for node in status.nodes], ["10.0.0.1:22"])
        self.assertIsNone(status.last_sync)

    def test_what_changes_alone(self) -> None:
        """Other nodes, targets, kubelets, users and clouds disturb no tunnel."""
        self.add()
        first = self.nodes.get("beta")
        assert first is not None
        self.change(targets={"pg": "10.0.0.5:5432"}, kubelet_port=0, allow_system=True)
        self.assertEqual(first.cluster_tunnel.targets, {"pg": ("10.0.0.5", 5432)})
        self.assertIsNone(first.kubelets)
        self.change(user="other")
        self.assertEqual((first.tunneler.user, first.cluster_tunnel.peer), ("other", "nodes as other"))
        self.assertEqual(first.login.user, "other")
        self.assertIn('for user "other"', self.tunnels.why_not("beta"))
        self.assertIs(self.nodes.get("beta"), first)
        self.assertTrue(first.tunneler.running)

    def test_identities_of_the_system(self) -> None:
        """Changed system identities apply at once, and are logged, at the start as well."""
        asked = b"GET /api HTTP/1.1\r\nImpersonate-User: system:monitoring\r\nHost: x\r\n\r\n"
        with capturedLogs() as events:
            self.add()
            running = self.nodes.get("beta")
            assert running is not None
            self.assertRaises(StatusError, running.apiserver.rewrite, asked, False)
        self.assertEqual(warnings(events), [])
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({"allowed_identities": ("system:monitoring",)}, "may act as system:monitoring (allowed"),
            (
                {"allowed_identities": (), "allow_system": True},
                "cluster beta: allowSystemIdentities is insecure: users may act as any",
            ),
        )
        for changes, text in cases:
            with capturedLogs() as events:
                self.change(**changes)
            self.assertIn(
                b"\r\nImpersonate-User: system:monitoring\r\n", running.apiserver.rewrite(asked, False)
            )
            (said,) = warnings(events)
            self.assertIn(text, said)
            with capturedLogs() as events:
                self.change(targets={"pg": f"10.0.0.5:{len(text)}"})
            self.assertEqual(warnings(events), [])
        self.stop()
        with capturedLogs() as events:
            self.nodes.startService()
        self.assertIn("is insecure", "".join(warnings(events)))

    def test_another_cloud(self) -> None:
        """Another cloud lists and installs from then on; an unusable one changes nothing."""
        config = self.folder / "fake.conf"
        config.write_text("[fake]\n")
        self.add(nodes_file="", cloud_provider="fake", cloud_config=str(config))
        running: Any = self.nodes.get("beta")
        cloud = running.cloud
        self.change(cloud_config=str(self.folder / "other.conf"))
        self.assertIs(self.nodes.get("beta"), running)
        self.assertIs(running.cloud, cloud)
        self.assertIn("Couldn't open cloud provider configuration", running.status().last_error)
        (self.folder / "other.conf").write_text("[fake]\n")
        self.clock.advance(15)
        self.assertIsNot(running.cloud, cloud)
        self.assertNotIn("replace it", running.status().last_error)
        self.assertEqual(running.tunneler.install, running.cloud.install)
        self.change(cloud_provider="", cloud_config="", nodes=("192.0.2.9",))
        self.assertIsNone(running.cloud.instances)
        self.assertIsNone(running.tunneler.install)
        self.assertEqual([node.address for node in running.status().nodes], ["192.0.2.9:22"])

    def test_list_of_the_api(self) -> None:
        """The API lists the nodes and the cloud installs the key; the cloud lists while no tunnel is up."""
        answers: list[Any] = [ListingFailed("no tunnel"), ListingFailed("no route")]

        def api_nodes(*_: object, **__: object) -> Lister:
            async def listing() -> list[Node]:
                answer = answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return [answer]

            return listing

        self.patch(cluster_module, "api_nodes", api_nodes)
        config = self.folder / "fake.conf"
        config.write_text("[fake]\ninstance = n1 192.0.2.1:22\n")
        self.add(nodes_file="", nodes_from_api=True, cloud_provider="fake", cloud_config=str(config))
        running: Any = self.nodes.get("beta")
        self.assertEqual([node.name for node in running.status().nodes], ["n1"])
        self.assertIsNotNone(running.tunneler.install)
        answers.append(Node("192.0.2.2", name="n2"))
        self.clock.advance(15)
        self.assertEqual([node.name for node in running.status().nodes], ["n2"])
        self.patch(type(running.tunnels), "is_up", True)
        answers.extend((ListingFailed("no tunnel"), ListingFailed("no route")))
        self.clock.advance(15)
        self.assertEqual([node.name for node in running.status().nodes], ["n2"])
        self.assertEqual(running.status().last_error, "no tunnel; no route")

    def test_another_rule_for_host_keys(self) -> None:
        """Nodes that were never verified are reconnected if the new mode rejects them; all others stay."""
        self.add(host_keys="insecure-ignore")
        running: Any = self.nodes.get("beta")
        good, bad, lost, known = nodes = [Node(f"192.0.2.{number}") for number in (1, 2, 3, 4)]
        updates: list[list[Node]] = []
        tunnels = SimpleNamespace(
            nodes=nodes,
            at=lambda node: None if node is lost else node,
            update=updates.append,
            retry=lambda: None,
            is_up=True,
            trouble="",
            check=lambda: None,
        )
        running.tunnels, real = tunnels, running.tunnels
        lines = [host_key(1), host_key(2)]
        for node, line in zip((good, bad), lines, strict=True):
            running.host_keys.accepted(node, base64.b64decode(line.split()[1]))
        hosts = self.folder / "hosts"
        hosts.write_text(f"192.0.2.1 {lines[0]}\n192.0.2.2 {lines[0]}\n")
        self.change(host_keys="known-hosts", known_hosts=str(hosts))
        self.assertIs(self.nodes.get("beta"), running)
        self.assertEqual(updates, [[good, known], nodes])
        hosts.write_text("")
        self.change(host_keys="accept-new")
        self.assertEqual(updates[2:], [[good, bad, known], nodes])
        running.tunnels = real

    def test_another_key(self) -> None:
        """Another key and other known hosts count for the next login, and disturb no tunnel."""
        self.add()
        first: Any = self.nodes.get("beta")
        line = first.key.public_line()
        other = self.folder / "other"
        self.change(key_file=str(other), key_type="rsa", known_hosts=str(self.folder / "hosts"))
        self.assertIs(self.nodes.get("beta"), first)
        self.assertIn("RSA PRIVATE KEY", other.read_text())
        self.assertEqual(first.login.key().kind, b"ssh-rsa")
        self.assertNotEqual(first.key.public_line(), line)
        self.assertEqual([file.path for file in first.host_keys.rule.files], [self.folder / "hosts"])
        self.change(key_file=str(self.folder / "nowhere" / "id"))
        self.assertRaises(KeyUnusable, first.login.key)
        self.change(key_file=str(self.folder / "key"))
        self.assertEqual(first.key.public_line(), line)

    def test_checked_when_the_first_tunnel_opens(self) -> None:
        """When the first tunnel comes the API server is looked for at once, but not for the next one."""
        self.add()
        running: Any = self.nodes.get("beta")
        looks: list[bool] = []
        running.tunnels = SimpleNamespace(is_up=True, trouble="", check=lambda: looks.append(True))
        for is_up, count in ((True, 1), (True, 1), (False, 1), (True, 2)):
            running.tunnels.is_up = is_up
            running.tunnels_changed()
            self.assertEqual(len(looks), count)
        running.tunnels = running.tunneler.tunnels

    def test_trouble(self) -> None:
        """While no open tunnel works, the registry has the reason; then it has none."""
        self.add()
        running: Any = self.nodes.get("beta")
        for is_up, trouble in ((True, ""), (True, "refused"), (False, ""), (True, "refused"), (True, "")):
            running.tunnels = SimpleNamespace(is_up=is_up, trouble=trouble, check=lambda: None)
            running.tunnels_changed()
            self.assertEqual(self.tunnels.trouble("beta"), trouble)
        running.tunnels = running.tunneler.tunnels

    def test_key(self) -> None:
        """A new key has the type in the record."""
        self.add(key_type="rsa")
        self.assertIn("RSA PRIVATE KEY", (self.folder / "key").read_text())

    def test_added_anew(self) -> None:
        """A cluster that was removed and added again under its name is another one."""
        self.add()
        first = self.nodes.get("beta")
        self.successResultOf(self.clusters.remove("beta"))
        self.add()
        self.assertIsNot(self.nodes.get("beta"), first)

    def test_credential(self) -> None:
        """A credential that cannot be unsealed is reported; its replacement is used at once."""
        self.add()
        self.stop()
        (self.folder / "secrets.key").unlink()
        self.nodes.startService()
        running = self.nodes.get("beta")
        assert running is not None
        self.assertIn("--member-kubeconfig", running.apiserver.problem)
        state = self.tunnels.member_status("beta")
        assert state is not None
        self.assertEqual(state.credential, Check("False", "CredentialUnusable", running.apiserver.problem))
        self.assertEqual(self.nodes.status("beta").last_error, running.apiserver.problem)  # type: ignore[union-attr]
        looks: list[bool] = []
        running.tunnels.check = lambda: looks.append(True)  # type: ignore[method-assign]
        self.successResultOf(self.clusters.change("beta", lambda cluster: cluster, access=ACCESS))
        self.assertEqual(running.apiserver.problem, "")
        self.assertEqual(looks, [True])
        self.assertIn(b"of-beta", running.apiserver.upstream().credential_line)
        self.assertIsNone(self.tunnels.member_status("beta"))

    def test_checks_the_member(self) -> None:
        """A change of the API server's state, and a new credential, cause checks of the nodes."""
        self.add()
        running: Any = self.nodes.get("beta")
        tunnel = running.cluster_tunnel
        looks: list[str] = []
        running.tunnels = SimpleNamespace(
            is_up=True,
            trouble="refused",
            check=lambda: looks.append("all"),
            recheck=lambda: looks.append("degraded"),
        )
        good, down = Check("True", "Reachable"), Check("False", "ConnectionRefused", "start it")
        rejected = Check("False", "CredentialRejected", "replace it")
        for status, wanted in (
            (MemberStatus(down), ["all"]),
            (MemberStatus(down), []),
            (MemberStatus(good, rejected), ["degraded"]),
        ):

            async def check(status: MemberStatus = status) -> MemberStatus:
                return status

            running._checker = SimpleNamespace(check=check)
            tunnel.member_status = self.successResultOf(Deferred.fromCoroutine(tunnel.check_member()))
            self.assertEqual((tunnel.member_status, looks), (status, wanted))
            looks.clear()
        self.assertEqual(running.status().last_error, "replace it")
        changes: list[bool] = []
        tunnel.on_change = lambda: changes.append(True)
        self.successResultOf(self.clusters.change("beta", lambda cluster: cluster, access=ACCESS))
        self.assertEqual((tunnel.member_status, bool(changes)), (None, True))
        self.assertNotIn("replace it", running.status().last_error)
        running.tunnels = running.tunneler.tunnels

    def test_misdated(self) -> None:
        """If the API server's certificate is not valid yet, its clock is read without a credential."""
        self.clock.advance(time.time() - self.clock.seconds())
        root = pem(family()[0][0])
        self.add(KubeAccess("https://tower.example:6443", ca_data=root, token="of-beta"))
        running: Any = self.nodes.get("beta")
        server = MisdatedServer(self.clock.seconds())
        tunnels, running.tunnels = running.tunnels, SimpleNamespace(dial=server.open)
        checking = Deferred.fromCoroutine(running._checker.check())
        server.serve()
        status = self.successResultOf(checking)
        self.assertEqual(status.api_server.reason, "CertificateNotYetValid")
        self.assertIn("the clock of the proxy, which is 60m behind", status.api_server.message)
        self.assertEqual(status.api_server.cure, SYNCHRONIZE)
        self.assertEqual(server.pipes[0].requests, b"")
        self.assertNotIn(b"of-beta", server.pipes[1].requests)
        running.tunnels = tunnels

    def test_cannot_be_put_together(self) -> None:
        """A missing configuration is reported, and tried again; once it works it is kept."""
        config = self.folder / "fake.conf"
        self.add(nodes_file="", cloud_provider="fake", cloud_config=str(config))
        self.assertIsNone(self.nodes.get("beta"))
        status = self.nodes.status("beta")
        assert status is not None
        self.assertIn(f"Couldn't open cloud provider configuration {config}", status.last_error)
        self.assertEqual(self.tunnels.why_not("beta"), status.last_error)
        self.look()
        self.assertIsNone(self.nodes.get("beta"))
        config.write_text("[fake]\n")
        self.look()
        self.assertIsNotNone(self.nodes.get("beta"))
        self.assertIn("No SSH tunnels currently open", self.tunnels.why_not("beta"))

    def test_files_elsewhere(self) -> None:
        """An old record that names a file elsewhere is reported once, and works after it is changed."""
        self.successResultOf(self.nodes.stopService())
        with capturedLogs() as events:
            self.add(key_file="/etc/tower/id", known_hosts="/etc/tower/known")
            self.nodes.startService()
            self.look()
        said = [event["problem"] for event in events if event["log_level"] is LogLevel.error]
        self.assertEqual(len(said), 2)
        self.assertIsNone(self.nodes.get("beta"))
        status = self.nodes.status("beta")
        assert status is not None
        for text, field in zip(
            said, ("keyFile: '/etc/tower/id'", "knownHosts: '/etc/tower/known'"), strict=True
        ):
            self.assertIn(field, text)
            self.assertIn(text, status.last_error)
            self.assertIn(text, self.tunnels.why_not("beta"))
        self.change(key_file="id")
        self.assertIsNone(self.nodes.get("beta"))
        self.change(known_hosts="known")
        self.assertIsNotNone(self.nodes.get("beta"))

    def test_problem_of_a_removed_cluster(self) -> None:
        """The problem of a configuration that is no longer in the record is dropped."""
        self.add(nodes_file="", cloud_provider="fake", cloud_config=str(self.folder / "none"))
        self.successResultOf(self.clusters.set_enabled("beta", False))
        self.assertIn("agent of cluster beta", self.tunnels.why_not("beta"))

    def test_synced(self) -> None:
        """The condition of the listing: not yet, synced, or last attempt failed."""
        self.add()
        nodes = self.folder / "nodes"
        self.look()
        self.assertEqual(
            self.said("NodesSynced"), ("Unknown", "NotYet", f"{nodes}: No such file or directory")
        )
        nodes.write_text("192.0.2.1\n")
        self.nodes.get("beta").tunneler.list_soon()  # type: ignore[union-attr]
        self.look()
        status, reason, message = self.said("NodesSynced") or ("", "", "")
        self.assertEqual((status, reason), ("True", "Synced"))
        self.assertIn("The nodes are listed", message)
        nodes.unlink()
        self.nodes.get("beta").tunneler.list_soon()  # type: ignore[union-attr]
        self.look()
        status, reason, message = self.said("NodesSynced") or ("", "", "")
        self.assertEqual((status, reason), ("True", "Synced"))
        self.assertIn(f"but a recent one succeeded: {nodes}: No such file", message)

    def test_health(self) -> None:
        """If the listing fails for ten minutes, the health check fails; the condition has the cause."""
        self.add()
        self.look()
        self.assertEqual((self.nodes.unhealthy(), self.said("NodesSynced")), ("", self.said("NodesSynced")))
        for _ in range(int(615 / REPORT_PERIOD)):
            self.clock.advance(REPORT_PERIOD)
        self.assertEqual(self.nodes.unhealthy(), "tunnel sync is taking too long: 615")
        self.look()
        status, reason, message = self.said("NodesSynced") or ("", "", "")
        self.assertEqual((status, reason), ("False", "TooLongAgo"))
        self.assertIn(str(self.folder / "nodes"), message)
        self.assertEqual(dict(self.nodes.readings())["beta"].since_sync, 615)
