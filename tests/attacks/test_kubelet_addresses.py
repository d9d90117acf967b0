"""CVE-2020-8562 at the kubelets of a cluster without an agent: users cannot name an address."""

from __future__ import annotations

from typing import Any, cast

from tests.attacks.bastion import Bastion
from tests.fakes.gateway import get, ok
from tests.fakes.kubelets import CA, OTHER, KubeletPipe
from tests.fakes.node_tunnels import FakeNodeDialer
from tests.holes.towerkit import status_of
from tests.nodes.kubelets_case import KubeletsCase
from tower.clusters.node import Node
from tower.errors import StreamRefused
from tower.net.addresses import is_loopback
from tower.nodes.cluster_tunnel import SSHClusterTunnel
from tower.nodes.tunnels.tunnels import NodeTunnels

TARGET = b"/clusters/alpha/targets/kubelet/"

#: Addresses of metadata services and loopback addresses, and others that are not those of one machine.
ADDRESSES = (
    "169.254.169.254",
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "fe80::1",
    "ff02::1",
    "224.0.0.1",
    "255.255.255.255",
    "localhost",
    "Localhost.",
    "n1.localhost",
    "0x7f000001",
)


class KubeletAddressTests(KubeletsCase):
    """The door, and a user of alpha, whose nodes n1 and n2 the proxy reaches by SSH."""

    def setUp(self) -> None:
        """Connect the user."""
        super().setUp()
        self.bastion = Bastion(kubelets={"alpha": self.kubelets})
        self.addCleanup(self.bastion.stop)
        tunnel = SSHClusterTunnel("alpha", "core", cast(NodeTunnels, self.nodes), self.apiserver)
        tunnel.kubelets = self.kubelets
        members: dict[str, Any] = self.bastion.members.by_name
        members["alpha"] = tunnel
        self.certificate = self.bastion.registered("alpha", "jane")

    def ask(self, node: bytes, pipe: KubeletPipe | None = None) -> bytes:
        """Request a kubelet's pods, which *pipe* answers; return the answer."""
        user = self.bastion.connect(self.certificate)
        user.deliver(get(TARGET + node))
        if pipe is not None:
            pipe.serve()
            self.bastion.clock.advance(0)
            pipe.serve()
            if pipe.got:
                pipe.answer(ok())
        self.bastion.clock.advance(0)
        return user.taken()

    def test_cve_2020_8562_unlisted(self) -> None:
        """CVE-2020-8562: the path that reaches a listed node reaches no other address, in any spelling."""
        self.nodes.tunnels["n1"] = own = FakeNodeDialer(pipe := KubeletPipe(CA, "n1"))
        self.assertEqual(status_of(self.ask(b"n1/pods", pipe)), 200)
        self.assertIn(b"GET /pods HTTP/1.1", pipe.got)
        self.assertEqual(own.dialed, [("127.0.0.1", 10250)])
        reviews = len(self.api.asked)
        for node in (
            *(address.encode() for address in ADDRESSES),
            b"0.0.0.0",
            b"2130706433",
            b"0x7f.1",
            b"localhost",
            b"[::1]",
            b"[::ffff:127.0.0.1]",
            b"n1.",
            b"n1:22",
            b"n1@169.254.169.254",
            b"192.0.2.1:22",
        ):
            answer = self.ask(node + b"/pods")
            self.assertIn(status_of(answer), (400, 404), node)
            self.failureResultOf(self.kubelets.open(node.decode().strip("[]")))
        self.assertEqual((self.nodes.dialed, own.dialed[1:]), ([], []))
        self.assertEqual(len(self.api.asked), reviews)

    def test_cve_2020_8562_listed(self) -> None:
        """CVE-2020-8562: a node at such an address is dialed neither by another node nor by the proxy."""
        for address in ADDRESSES:
            self.nodes.nodes = [Node("192.0.2.1", 22, "n1"), Node(address, 22, "evil")]
            self.nodes.dialed.clear()
            self.nodes.answer = pipe = KubeletPipe(CA, "evil")
            answer = self.ask(b"evil/pods", pipe)
            self.assertEqual((status_of(answer), pipe.got), (400, b""), address)
            self.assertIn(b"address not allowed: other nodes do not dial", answer)
            self.assertEqual(self.nodes.dialed, [], address)

    def test_cve_2020_8562_other_address(self) -> None:
        """CVE-2020-8562: a server with another certificate at the address of a listed node gets nothing."""
        self.nodes.nodes = [Node("192.0.2.1", 22, "n1"), Node("192.0.2.9", 22, "evil")]
        for of, known in ((OTHER, "evil"), (CA, "n1"), (CA, "192.0.2.9")):
            self.nodes.answer = pipe = KubeletPipe(of, known)
            answer = self.ask(b"evil/pods", pipe)
            self.assertEqual((status_of(answer), pipe.got), (503, b""), known)
        self.assertEqual(set(self.nodes.dialed), {("192.0.2.9", 10250)})

    def test_cve_2020_8562_listed_with_a_tunnel(self) -> None:
        """CVE-2020-8562: a node dials its own loopback, and other addresses only if they are listed."""
        self.nodes.tunnels["n1"] = own = FakeNodeDialer(StreamRefused("refused", "connect failed"))
        self.assertEqual(status_of(self.ask(b"n1/pods")), 503)
        self.assertEqual({host for host, _ in own.dialed}, {"127.0.0.1", "10.0.0.1", "192.0.2.1"})
        self.assertEqual({port for _, port in own.dialed}, {10250})
        for address in ADDRESSES:
            own.dialed.clear()
            self.nodes.nodes = [Node(address, 22, "n1")]
            self.assertEqual(status_of(self.ask(b"n1/pods")), 503)
            hosts = [host for host, _ in own.dialed]
            self.assertIn(hosts, (["127.0.0.1"], ["127.0.0.1", address]))
            self.assertEqual([host for host in hosts if not is_loopback(host)], [], address)
