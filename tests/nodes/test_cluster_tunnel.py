"""Tests of `tower.nodes.cluster_tunnel` and `tower.nodes.apiserver`, with fake nodes."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.node_tunnels import FakeNodeDialer
from tests.fakes.pipes import FakePipe
from tower.clusters.node_status import NodeStatus
from tower.errors import ConfigurationError, StreamRefused
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.cluster_tunnel import SSHClusterTunnel
from tower.nodes.kubelets import Kubelets
from tower.nodes.tunnels.tunnels import NodeTunnels
from tower.reactor.interfaces import ISocketReactor

JANE = b"Impersonate-User: jane\r\nAccept: */*\r\nHost: x\r\n\r\n"


class FakeNodeTunnels(FakeNodeDialer):
    """Three nodes, to which nothing is dialed."""

    def __init__(self) -> None:
        self.pipe = FakePipe()
        super().__init__(self.pipe)
        self.is_closed = False

    def states(self) -> list[NodeStatus]:
        """Return two open tunnels and one that is being opened."""
        return [
            NodeStatus("a", "a:22", "open", 0.0, streams=1, round_trip=0.007),
            NodeStatus("b", "b:22", "open", 0.0, streams=2, round_trip=0.004),
            NodeStatus("c", "c:22", "connecting", 0.0),
        ]

    def close(self) -> None:
        """Record it."""
        self.is_closed = True


class FakeKubelets:
    """Records the node."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, node: str) -> Deferred[Any]:
        """Record the node."""
        self.opened.append(node)
        return succeed(FakePipe())

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Mark it."""
        return b"for a kubelet: " + head


class SSHClusterTunnelTests(SynchronousTestCase):
    """One way for all nodes of a cluster."""

    def setUp(self) -> None:
        """A cluster whose API server has no TLS."""
        self.access: KubeAccess | Exception = KubeAccess("http://10.0.0.1:8080/prefix")
        self.identities = NONE_ALLOWED
        self.tunnels = FakeNodeTunnels()
        self.apiserver = MemberAPIServer(
            Clock(),
            cast(ISocketReactor, None),
            self.load,
            identities=lambda: self.identities,
            why_not="use a flag",
        )
        self.apiserver.renew()
        self.tunnel = SSHClusterTunnel("beta", "core", cast(NodeTunnels, self.tunnels), self.apiserver)

    def load(self) -> KubeAccess:
        """Return the credential, or fail as the test wants."""
        if isinstance(self.access, Exception):
            raise self.access
        return self.access

    def rewritten(self, head: bytes) -> bytes:
        """Return a head as it goes to the API server."""
        rewrite = self.tunnel.rewrite_for("kubernetes")
        assert rewrite is not None
        return rewrite(head, False)

    def test_api_server(self) -> None:
        """A node connects to the address of the kubeconfig; heads impersonate jane."""
        pipe = self.successResultOf(self.tunnel.open("kubernetes"))
        self.assertIs(pipe, self.tunnels.pipe)
        self.assertEqual(self.tunnels.dialed, [("10.0.0.1", 8080)])
        self.assertEqual(
            self.rewritten(b"GET /api HTTP/1.1\r\n" + JANE),
            b"GET /prefix/api HTTP/1.1\r\nImpersonate-User: jane\r\n"
            b"Accept: */*\r\nHost: 10.0.0.1:8080\r\n\r\n",
        )
        self.assertEqual(self.tunnel.server, b"10.0.0.1:8080/prefix")

    def test_server_path(self) -> None:
        """Paths that escape the server's path are rejected here, because no agent does it."""
        for path in (b"/api//v1", b"/a%5cb", b"/a/../b"):
            with self.assertRaises(StatusError) as caught:
                self.rewritten(b"GET " + path + b" HTTP/1.1\r\n" + JANE)
            self.assertEqual(caught.exception.code, 403)
        self.access = KubeAccess("http://10.0.0.1:8080")
        self.apiserver.renew()
        self.assertIn(b"GET /api//v1 HTTP/1.1\r\n", self.rewritten(b"GET /api//v1 HTTP/1.1\r\n" + JANE))

    def test_no_system_identities(self) -> None:
        """Users cannot use the credential as a system identity, unless the cluster's record allows it."""
        head = b"GET /api HTTP/1.1\r\n" + JANE.replace(b"jane", b"system:node:n1")
        with self.assertRaises(StatusError) as caught:
            self.rewritten(head)
        self.assertIn("use a flag", str(caught.exception))
        self.identities = SystemIdentities(["system:node:n1"])
        self.apiserver.renew()
        self.assertIn(b"system:node:n1", self.rewritten(head))

    def test_no_credential(self) -> None:
        """Without a usable credential the error has the reason; the next credential is used."""
        self.access = ConfigurationError("the credential cannot be opened: give it again")
        self.apiserver.renew()
        error = self.failureResultOf(self.tunnel.open("kubernetes"), StreamRefused).value
        self.assertIn("give it again", str(error))
        self.assertEqual((self.apiserver.problem, self.tunnel.server), (str(self.access), b""))
        with self.assertRaises(ConfigurationError):
            self.rewritten(b"GET /api HTTP/1.1\r\n" + JANE)
        self.access = KubeAccess("http://[fd00::1]:8080")
        self.apiserver.renew()
        self.successResultOf(self.tunnel.open("kubernetes"))
        self.assertEqual((self.tunnels.dialed, self.apiserver.problem), ([("fd00::1", 8080)], ""))

    def test_a_replaced_credential_is_not_used(self) -> None:
        """Connections that use the previous credential are not reused."""
        self.access = KubeAccess("https://10.0.0.1:6443", insecure=True, token="one")
        self.apiserver.renew()
        opening = self.tunnel.open("kubernetes")
        handshake: Any = self.tunnels.pipe.receiver
        owner = handshake._owner  # the future owner of the pipe
        self.assertFalse(owner.draining)
        self.access = KubeAccess("https://10.0.0.1:6443", insecure=True, token="two")
        self.apiserver.renew()
        self.assertTrue(owner.draining)
        self.assertIn(b"Bearer two", self.rewritten(b"GET /api HTTP/1.1\r\n" + JANE))
        self.tunnels.pipe.lose()
        self.failureResultOf(opening)

    def test_named_targets(self) -> None:
        """A named address is dialed unchanged, and heads for it are not rewritten."""
        self.tunnel.targets = {"postgres": ("10.0.0.5", 5432)}
        self.successResultOf(self.tunnel.open("postgres"))
        self.assertEqual(self.tunnels.dialed, [("10.0.0.5", 5432)])
        self.assertIsNone(self.tunnel.rewrite_for("postgres"))
        error = self.failureResultOf(self.tunnel.open("mysql"), StreamRefused).value
        assert isinstance(error, StreamRefused)
        self.assertEqual(error.code, "no-such-target")
        self.assertIn("--target mysql=HOST:PORT", str(error))

    def test_what_a_node_may_not(self) -> None:
        """A node whose sshd forwards nothing is unreachable, not forbidden, to users."""
        self.tunnels.answer = StreamRefused("not-allowed", "prohibited", 1)
        self.tunnel.targets = {"postgres": ("10.0.0.5", 5432)}
        for target in ("kubernetes", "postgres"):
            error: Any = self.failureResultOf(self.tunnel.open(target), StreamRefused).value
            self.assertEqual((error.code, error.reason, str(error)), ("unreachable", 1, "prohibited"))

    def test_kubelets(self) -> None:
        """Kubelets are targets by the name of their node, where they are any."""
        error = self.failureResultOf(self.tunnel.open("kubelet/node1"), StreamRefused).value
        assert isinstance(error, StreamRefused)
        self.assertEqual(error.code, "no-such-target")
        kubelets = FakeKubelets()
        self.tunnel.kubelets = cast(Kubelets, kubelets)
        self.successResultOf(self.tunnel.open("kubelet/node1"))
        self.assertEqual(kubelets.opened, ["node1"])
        rewrite = self.tunnel.rewrite_for("kubelet/node1")
        assert rewrite is not None
        self.assertEqual(rewrite(b"GET", True), b"for a kubelet: GET")

    def test_properties(self) -> None:
        """It counts the streams of all nodes, has the nearest node's round trip, and closes all tunnels."""
        self.assertEqual(
            (self.tunnel.streams, self.tunnel.round_trip, self.tunnel.protocol), (3, 0.004, "ssh")
        )
        self.tunnel.drain()
        self.tunnel.close("the cluster was removed")
        self.assertTrue(self.tunnels.is_closed)
