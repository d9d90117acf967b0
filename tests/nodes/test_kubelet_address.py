"""Tests of `tower.nodes.kubelet_address`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.node_tunnels import FakeNodeDialer
from tower.clusters.node import Node
from tower.errors import StreamRefused, TunnelLost
from tower.nodes.kubelet_address import KubeletAddresses, internal_addresses
from tower.nodes.tunnels.tunnel import NodeTunnel

NODE = Node("192.0.2.1", 22, "n1", frozenset({"10.0.0.1", "n1.example"}))


class KubeletTunnel(FakeNodeDialer):
    """The tunnel to a node on which something listens at some addresses.

    :ivar errors: the node's errors, by address.
    """

    def __init__(self, *listening: str) -> None:
        super().__init__()
        self.listening = set(listening)
        self.errors: dict[str, Exception] = {}

    def answer_to(self, host: str, port: int) -> Any:
        """Return the address as the stream, or an error."""
        if host in self.listening:
            return host, port
        return self.errors.get(host) or StreamRefused("refused", f"nothing at {host}", 2)

    def taken(self) -> list[str]:
        """Return the hosts dialed since the last call."""
        dialed, self.dialed = self.dialed, []
        return [host for host, _ in dialed]


class KubeletAddressesTests(SynchronousTestCase):
    """Addresses of kubelets."""

    def setUp(self) -> None:
        """Know nothing yet."""
        self.addresses = KubeletAddresses()

    def dial(self, tunnel: KubeletTunnel, node: Node = NODE) -> Deferred[Any]:
        """Dial a kubelet."""
        return Deferred.fromCoroutine(self.addresses.dial(cast(NodeTunnel, tunnel), node, 10250))

    def test_loopback(self) -> None:
        """One that listens at all addresses is dialed at the loopback alone."""
        tunnel = KubeletTunnel("127.0.0.1", "10.0.0.1", "192.0.2.1")
        for _ in range(2):
            self.assertEqual(self.successResultOf(self.dial(tunnel)), ("127.0.0.1", 10250))
        self.assertEqual(tunnel.taken(), ["127.0.0.1", "127.0.0.1"])

    def test_own_address(self) -> None:
        """One that listens at its node's own address is found there, and looked for there from then on."""
        tunnel = KubeletTunnel("192.0.2.1")
        self.assertEqual(self.successResultOf(self.dial(tunnel)), ("192.0.2.1", 10250))
        self.assertEqual(tunnel.taken(), ["127.0.0.1", "10.0.0.1", "192.0.2.1"])
        self.successResultOf(self.dial(tunnel))
        self.assertEqual(tunnel.taken(), ["192.0.2.1"])

    def test_each_node_by_itself(self) -> None:
        """Each node's address is cached separately."""
        self.successResultOf(self.dial(KubeletTunnel("10.0.0.1")))
        other = KubeletTunnel("127.0.0.1")
        self.successResultOf(self.dial(other, Node("192.0.2.2")))
        self.assertEqual(other.taken(), ["127.0.0.1"])

    def test_moved(self) -> None:
        """A kubelet that moved is searched again, and the new address is cached."""
        tunnel = KubeletTunnel("10.0.0.1")
        self.successResultOf(self.dial(tunnel))
        tunnel.listening = {"127.0.0.1"}
        tunnel.taken()
        for _ in range(2):
            self.successResultOf(self.dial(tunnel))
        self.assertEqual(tunnel.taken(), ["10.0.0.1", "127.0.0.1", "127.0.0.1"])

    def test_nowhere(self) -> None:
        """If no address answers, the error has the node's text for each."""
        tunnel = KubeletTunnel()
        tunnel.errors["127.0.0.1"] = StreamRefused("not-allowed", "forbidden", 1)
        error = self.failureResultOf(self.dial(tunnel), StreamRefused).value
        self.assertEqual((error.code, error.reason), ("not-allowed", 1))
        self.assertEqual(str(error), "forbidden; nothing at 10.0.0.1; nothing at 192.0.2.1")

    def test_other_failures(self) -> None:
        """After a timeout, a shortage or a lost tunnel, no other address is tried."""
        for problem in (StreamRefused("timeout", "x"), StreamRefused("busy", "x"), TunnelLost("x")):
            tunnel = KubeletTunnel("10.0.0.1")
            tunnel.errors["127.0.0.1"] = problem
            self.assertIs(self.failureResultOf(self.dial(tunnel)).value, problem)
            self.assertEqual(tunnel.taken(), ["127.0.0.1"])

    def test_bounded(self) -> None:
        """However many nodes come and go, what is remembered stays little."""
        for number in range(3000):
            name = f"n{number}.example"
            self.successResultOf(self.dial(KubeletTunnel(name), Node(name)))
        tunnel = KubeletTunnel("n0.example")
        self.successResultOf(self.dial(tunnel, Node("n0.example")))
        self.assertEqual(tunnel.taken(), ["127.0.0.1", "n0.example"])


class InternalAddressesTests(SynchronousTestCase):
    """Internal addresses of nodes."""

    def test_private_first(self) -> None:
        """Private addresses come first, then where sshd is; names that are only aliases do not come."""
        self.assertEqual(internal_addresses(NODE), ["10.0.0.1", "192.0.2.1"])
        self.assertEqual(internal_addresses(Node("n2.example")), ["n2.example"])
        self.assertEqual(internal_addresses(Node("fd00::1", 22, "n3")), ["fd00::1"])

    def test_not_allowed(self) -> None:
        """CVE-2020-8562: addresses of other services are left out; the node itself may dial its loopback."""
        for host in ("127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "224.0.0.1", "localhost"):
            self.assertEqual(internal_addresses(Node(host, 22, "n5")), [], host)
            own = internal_addresses(Node(host, 22, "n5"), is_own=True)
            self.assertEqual(own, [host] if host in ("127.0.0.1", "::1", "localhost") else [], host)
            node = Node(host, 22, "n6", frozenset({"10.0.0.6", "127.0.0.2", "::ffff:169.254.169.254"}))
            self.assertEqual(internal_addresses(node), ["10.0.0.6"], host)

    def test_few(self) -> None:
        """At most three addresses are tried."""
        many = frozenset(f"10.0.0.{number}" for number in range(1, 100))
        self.assertEqual(len(internal_addresses(Node("8.8.8.8", 22, "n4", many))), 3)
