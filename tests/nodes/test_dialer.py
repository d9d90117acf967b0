"""Tests of `tower.nodes.dialer`: its composition, and invalid options."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.iweb import IAgent

from tests.fakes.instances import FakeAddress, FakeInstance, FakeInstances
from tower.cloud.interfaces import ICloudProvider
from tower.clusters.node import Node
from tower.errors import ConfigurationError
from tower.nodes.cloud import NodeCloud
from tower.nodes.dialer import NodeDialerOptions, create_node_dialer
from tower.nodes.node_sources import fixed_nodes
from tower.reactor.interfaces import ISocketReactor


class FakeProvider:
    """A cloud."""

    def __init__(self, instances: FakeInstances | None) -> None:
        self._instances = instances
        self.calls: list[str] = []

    def initialize(self, reactor: Any) -> None:
        """Record the call."""
        self.calls.append("initialize")

    def stop(self) -> None:
        """Record the call."""
        self.calls.append("stop")

    def instances(self) -> FakeInstances | None:
        """Return them."""
        return self._instances


class FakeKey:
    """A key."""

    def public_line(self) -> bytes:
        """Return it."""
        return b"ssh-ed25519 AAAA\n"


class CreateNodeDialerTests(SynchronousTestCase):
    """As upstream's CreateNodeDialer does."""

    def setUp(self) -> None:
        """A cloud."""
        self.instances = FakeInstances(
            [FakeInstance(name, (FakeAddress("ExternalIP", f"192.0.2.{name}"),)) for name in "12"]
        )
        self.provider = FakeProvider(self.instances)
        self.asked: list[tuple[str, str]] = []
        self.problem: Exception | None = None
        self.clock = Clock()
        path = Path(self.mktemp())
        path.mkdir()
        self.options = NodeDialerOptions(
            ssh_user="core",
            ssh_keyfile=str(path / "key"),
            known_hosts=str(path / "known_hosts"),
            cloud_provider="fake",
            cloud_config="/cloud.conf",
        )

    def init_cloud(self, name: str, config: str) -> Any:
        """Return the cloud."""
        self.asked.append((name, config))
        if self.problem is not None:
            raise self.problem
        return self.provider if name else None

    def create(self, **options: Any) -> Any:
        """Return what is made."""
        lister = options.pop("lister", None)
        return create_node_dialer(
            evolve(self.options, **options),
            cast(ISocketReactor, self.clock),
            lister=lister,
            init_cloud=self.init_cloud,
            reach=self.reach,
        )

    def reach(self, reactor: Any, host: str, port: int, *, timeout: float) -> Deferred[Any]:
        """Record the address; no connection opens."""
        self.instances.calls.append(("reach", host, port, timeout))
        return Deferred()

    def why_not(self, **options: Any) -> str:
        """Return why nothing is."""
        return str(self.assertRaises(ConfigurationError, self.create, **options))

    def test_composed(self) -> None:
        """The cloud lists the nodes and installs the key, and the tunneler is not running yet."""
        tunneler, agent = self.create()
        self.assertTrue(IAgent.providedBy(agent))
        self.assertEqual((self.asked, self.provider.calls), ([("fake", "/cloud.conf")], ["initialize"]))
        self.assertFalse(tunneler.running)
        self.assertEqual(tunneler.user, "core")
        tunneler.run()
        self.assertEqual([node.host for node in tunneler.tunnels.nodes], ["192.0.2.1", "192.0.2.2"])
        (_, _, line), *others = self.instances.calls
        self.assertTrue(line.startswith(b"ssh-ed25519 "), line)
        self.assertEqual(self.instances.calls[0], ("key", "core", line))
        for host in ("192.0.2.1", "192.0.2.2"):
            lease, reach = [call for call in others if host in call]
            self.assertEqual(lease, ("lease", "core", line, host))
            self.assertEqual(reach, ("reach", host, 22, 150.0))
        self.successResultOf(Deferred.fromCoroutine(tunneler.close()))
        self.assertEqual(self.provider.calls, ["initialize", "stop"])

    def test_own_lister(self) -> None:
        """The caller may pass a lister."""
        tunneler, _ = self.create(lister=fixed_nodes([Node("h1")]))
        tunneler.run()
        self.assertEqual(tunneler.tunnels.nodes, [Node("h1")])
        self.successResultOf(Deferred.fromCoroutine(tunneler.close()))

    def test_long_user(self) -> None:
        """A user's name that is too long is cut, for the login as for the key."""
        tunneler, _ = self.create(ssh_user="u" * 40)
        self.assertEqual((tunneler.user, tunneler.tunnels.user), ("u" * 32, "u" * 32))

    def test_no_cloud(self) -> None:
        """Without a cloud the key is not installed, which is not an error, and a lister is required."""
        tunneler, _ = self.create(cloud_provider="")
        self.assertEqual(tunneler.seconds_since_ssh_key_sync(), 0)
        self.assertRaises(ConfigurationError, tunneler.run)

    def test_cloud_without_instances(self) -> None:
        """A cloud without instances does not install the key either."""
        self.provider = FakeProvider(None)
        tunneler, _ = self.create(lister=fixed_nodes([]))
        tunneler.run()
        self.successResultOf(Deferred.fromCoroutine(tunneler.close()))
        self.assertEqual(self.instances.calls, [])

    def test_no_user(self) -> None:
        """Without a user there is no tunneler, and no cloud is created; the agent connects directly."""
        tunneler, agent = self.create(ssh_user="", kubelet_port=0)
        self.assertIsNone(tunneler)
        self.assertTrue(IAgent.providedBy(agent))
        self.assertEqual(self.asked, [])
        agent.request(b"GET", b"http://10.1.2.3:8080/")
        self.assertEqual(self.instances.calls, [("reach", "10.1.2.3", 8080, 30.0)])

    def test_bad_cloud(self) -> None:
        """The cloud's error has upstream's prefix."""
        self.problem = ConfigurationError('unknown cloud provider "fake"')
        self.assertEqual(
            self.why_not(), 'cloud provider could not be initialized: unknown cloud provider "fake"'
        )

    def test_no_kubelet_port(self) -> None:
        """The kubelet port is required for health checks; the cloud's error takes precedence."""
        self.assertEqual(
            self.why_not(kubelet_port=0), "must enable kubelet port if proxy ssh-tunneling is specified"
        )
        self.assertEqual(self.provider.calls, [])
        self.problem = ConfigurationError("x")
        self.assertIn("cloud provider could not be initialized", self.why_not(kubelet_port=0))

    def test_no_key(self) -> None:
        """A user needs a key file."""
        self.assertIn("ssh_keyfile is missing", self.why_not(ssh_keyfile=""))

    def test_bad_authority(self) -> None:
        """If the CA file cannot be read, the error names it."""
        self.assertEqual(self.why_not(kubelet_authority="/no/such"), "/no/such: No such file or directory")

    def test_lease(self) -> None:
        """A cloud that grants access for a short time does so right before each connection."""
        calls = self.instances.calls

        def dial(host: str, port: int) -> Deferred[Any]:
            calls.append(("dial", host, port))
            return succeed("connection")

        key: Any = FakeKey()
        reactor = cast(ISocketReactor, self.clock)
        cloud = NodeCloud(reactor, cast(ICloudProvider, FakeProvider(self.instances)))
        leased = cloud.dialer(dial, "core", key)
        self.assertEqual(self.successResultOf(leased("192.0.2.1", 22)), "connection")
        self.assertEqual(
            calls, [("lease", "core", b"ssh-ed25519 AAAA\n", "192.0.2.1"), ("dial", "192.0.2.1", 22)]
        )
        self.assertIs(NodeCloud(reactor, None).dialer(dial, "core", key), dial)
