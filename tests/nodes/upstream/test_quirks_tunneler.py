"""Upstream's bugs 1 to 7 and 10, each fixed; the numbers are those of the list of quirks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.node_tunnels import FakeFleet
from tests.fakes.pipes import FakePipe
from tests.fakes.tunnelers import TunnelerCase
from tower.clusters.node import Node
from tower.errors import ClusterUnreachable
from tower.nodes.health import kubelet_health
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.tunneler import TunnelSyncUnhealthy
from tower.nodes.tunnels.tunnel import NodeTunnel
from tower.nodes.tunnels.tunnels import CHECK_TIMEOUT, NodeTunnels


class QuirkTests(TunnelerCase):
    def test_quirk_1_a_key_that_cannot_be_read_is_tried_again(self) -> None:
        """An address whose tunnel could not even be made is retried with the next list."""
        folder = Path(self.mktemp())
        folder.mkdir()
        keys = KeyPairFiles(folder / "id")
        used: list[ClientKey] = []

        def create(node: Node) -> NodeTunnel:
            used.append(keys.private())
            return self.fleet.create(node)

        tunnels = NodeTunnels(self.clock, create, user="joe", health=None, epoch=self.epoch)
        tunnels.update([Node("a")])
        self.assertEqual([status.state for status in tunnels.states()], ["failed"])
        self.assertIn("error reading SSH key", tunnels.states()[0].error)
        (folder / "id").touch(0o600)
        (folder / "id").write_bytes(b"no key")
        tunnels.update([Node("a")])
        self.assertIn("error parsing SSH key", tunnels.states()[0].error)
        (folder / "id").unlink()
        keys.ensure()
        tunnels.update([Node("a")])
        self.fleet.let_all_in()
        self.assertEqual([status.state for status in tunnels.states()], ["open"])

    def test_quirk_2_a_failed_listing_keeps_the_tunnels(self) -> None:
        """It closes no tunnel, and does not count as a sync."""
        self.run_up()
        self.pass_time(15)
        self.nodes = RuntimeError("the API server is away")
        self.pass_time(30)
        self.assertEqual([tunnel.calls for tunnel in self.fleet.made], [["open"], ["open"]])
        self.assertEqual(self.tunneler.seconds_since_sync(), 30)
        self.assertEqual(self.tunneler.status().last_sync, 1_000_015.0)
        self.assertEqual(self.tunneler.status().last_error, "the API server is away")
        self.pass_time(571)
        with self.assertRaises(TunnelSyncUnhealthy):
            self.tunneler.check_healthy()
        self.nodes = [Node("a")]
        self.pass_time(15)
        self.tunneler.check_healthy()

    def test_quirk_3_no_installer_no_key_lag(self) -> None:
        """If nothing can install the key, it is never overdue."""
        self.tunneler = self.make(install=False)
        self.run_up()
        self.pass_time(2000, 5)
        self.assertEqual(self.tunneler.seconds_since_ssh_key_sync(), 0)
        self.tunneler.check_healthy()

    def test_quirk_7_dial_before_run(self) -> None:
        """It fails with an explanation."""
        failure = self.failureResultOf(self.tunneler.dial("a", 1), ClusterUnreachable)
        self.assertEqual(str(failure.value), "The SSH tunneler was not started: no node was dialed yet.")


class HealthQuirkTests(SynchronousTestCase):
    def setUp(self) -> None:
        """One node, checked as its test decides."""
        self.clock = Clock()
        self.fleet = FakeFleet()
        self.asked: list[Any] = []

    def up(self, health: Any, *nodes: Node) -> NodeTunnels:
        """Open the tunnels."""
        tunnels = NodeTunnels(
            self.clock, self.fleet.create, user="joe", health=health, epoch=self.clock.seconds
        )
        tunnels.update(nodes)
        self.fleet.let_all_in()
        return tunnels

    def test_quirk_4_a_check_that_hangs_ends(self) -> None:
        """It is given up in time, its tunnel is replaced, and checks never pile up."""

        async def hang(tunnel: Any) -> str:
            self.asked.append(tunnel)
            answer: str = await Deferred()
            return answer

        tunnels = self.up(hang, Node("a"))
        for _ in range(3):
            tunnels.check()
        self.assertEqual(len(self.asked), 1)
        self.clock.advance(CHECK_TIMEOUT)
        self.assertEqual(self.fleet.made[0].calls, ["open", "close"])
        self.fleet.let_all_in()
        tunnels.check()
        self.assertEqual(self.asked, self.fleet.made)
        self.assertEqual(len(self.asked), 2)

    def test_quirk_5_not_every_answer_is_healthy(self) -> None:
        """500 is not, 401 and 403 are; a tunnel that is not quite healthy is kept and chosen last."""
        tunnels = self.up(kubelet_health("http://127.0.0.1:10255/healthz", self.clock), Node("a"), Node("b"))
        for code, state in (
            (500, "degraded"),
            (401, "open"),
            (503, "degraded"),
            (403, "open"),
            (500, "degraded"),
        ):
            pipe = FakePipe()
            self.fleet.made[0].dial = lambda *_, pipe=pipe: succeed(pipe)  # type: ignore[method-assign]
            tunnels.check()
            pipe.deliver(b"HTTP/1.1 %d Reason\r\n\r\n" % code)
            self.assertEqual(tunnels.states()[0].state, state)
        self.assertEqual(tunnels.states()[0].error, "the kubelet answered 500")
        for _ in range(20):
            tunnels.dial("elsewhere", 443)
        self.assertEqual(len(self.fleet.made[1].dials), 20)

    def test_quirk_6_ipv6_targets_match_their_node(self) -> None:
        """A stream to a node's IPv6 address uses that node, with any spelling of the address."""
        tunnels = self.up(
            None,
            Node("192.0.2.1"),
            Node("2001:db8::a"),
            Node("192.0.2.3", aliases=frozenset({"2001:db8::b"})),
        )
        for host in ("2001:db8::a", "[2001:db8::a]", "2001:db8:0::A"):
            tunnels.dial(host, 10250)
        tunnels.dial("[2001:db8::b]", 10250)
        self.assertEqual([len(tunnel.dials) for tunnel in self.fleet.made], [0, 3, 1])
        self.assertEqual(self.fleet.made[1].dials[1][0], "2001:db8::a")


class KeyQuirkTests(SynchronousTestCase):
    def test_quirk_10_public_without_private(self) -> None:
        """A public key without its private key is replaced with a new pair at the next run."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for kind in ("ed25519", "rsa"):
            keys = KeyPairFiles(folder / kind, kind)
            keys.ensure()
            before = keys.public_line()
            keys.path.unlink()
            keys.ensure()
            self.assertNotEqual(keys.public_line(), before)
            self.assertEqual(keys.public_line(), keys.private().authorized_key)
