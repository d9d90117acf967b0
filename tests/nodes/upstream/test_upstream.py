"""kube-apiserver's own tests of its tunneler, by their names, and the cases that follow from its code.

If upstream's behaviour was a bug, the case describes Tower's.
"""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.node_tunnels import FakeFleet
from tests.fakes.pipes import FakePipe
from tests.fakes.tunnelers import TunnelerCase
from tower.clusters.node import Node
from tower.errors import StreamRefused
from tower.nodes.health import kubelet_health
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.tunneler import TunnelSyncUnhealthy, truncate_user
from tower.nodes.tunnels.tunnels import NodeTunnels, NoTunnels

DAY = 86400


def _nodes(*hosts: str) -> list[Node]:
    return [Node(host) for host in hosts]


class TestSSHTunnelListUpdate(SynchronousTestCase):
    def setUp(self) -> None:
        """An empty list."""
        self.clock = Clock()
        self.fleet = FakeFleet()
        self.tunnels = NodeTunnels(
            self.clock, self.fleet.create, user="foo", health=None, epoch=self.clock.seconds
        )

    def converges(self, *hosts: str) -> None:
        """Update the list and see what it comes to."""
        self.tunnels.update(_nodes(*hosts))
        self.fleet.let_all_in()
        self.clock.advance(2)
        open_ones = {status.address for status in self.tunnels.states() if status.state == "open"}
        self.assertEqual(open_ones, {f"{host}:22" for host in hosts})
        self.assertEqual(len(self.tunnels.states()), len(hosts))

    def test_converges(self) -> None:
        """The tunnels are those of the latest list."""
        self.converges("1.2.3.4", "5.6.7.8")
        self.converges("1.2.3.4", "5.6.7.8", "9.10.11.12")
        self.converges("1.2.3.4")
        self.converges("21.22.23.24", "25.26.27.28")
        self.converges("21.22.23.24", "25.26.27.28")
        self.assertEqual(len(self.fleet.made), 5)


class TestSecondsSinceSync(TunnelerCase):
    def test_lags(self) -> None:
        """Whole seconds since the last sync, by the time of day, also when that was set back."""
        january = 1_420_070_400.0  # 2015-01-01
        for synced, now, seconds in (
            (january, january + 1e-6, 0),
            (january, january + 1, 1),
            (january, january + 60, 60),
            (january, january + 3600, 3600),
            (january, january + DAY, DAY),
            (january, january + 31 * DAY, 2_678_400),
            (january + 31 * DAY, january, -2_678_400),
        ):
            self.day = synced - self.clock.seconds()
            self.tunneler.run()
            self.tunneler.stop()
            self.day = now - self.clock.seconds()
            self.assertEqual(self.tunneler.seconds_since_sync(), seconds)


class TestGenerateSSHKey(SynchronousTestCase):
    def setUp(self) -> None:
        """Name a key in an empty directory."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.path, self.public = folder / "id", folder / "id.pub"

    def test_generate(self) -> None:
        """A pair is there and usable in the end, whichever half was there before, for both kinds."""
        for kind in ("rsa", "ed25519"):
            keys = KeyPairFiles(self.path, kind)
            for leave_out in ((), (self.public,), (self.path,)):
                for path in leave_out:
                    path.unlink()
                keys.ensure()
                self.assertEqual(keys.public_line(), keys.private().authorized_key)
            self.path.unlink()
            self.public.unlink()


class TestIsTunnelSyncHealthy(TunnelerCase):
    def test_healthy(self) -> None:
        """A lag of 540 s is healthy, one of 720 s is not."""
        self.tunneler.run()
        self.day += 540
        self.tunneler.check_healthy()
        self.day += 180
        with self.assertRaises(TunnelSyncUnhealthy):
            self.tunneler.check_healthy()


class TestDerived(TunnelerCase):
    """Section 7.3, items 1 to 10, by their numbers."""

    def unhealthy(self) -> str:
        """Return why it is not healthy."""
        with self.assertRaises(TunnelSyncUnhealthy) as caught:
            self.tunneler.check_healthy()
        return str(caught.exception)

    def test_01_limits_of_lags(self) -> None:
        """600 s and 900 s are healthy, one second more is not; tunnels are reported before keys."""
        self.tunneler.run()
        self.tunneler.stop()
        self.day += 600
        self.tunneler.check_healthy()
        self.day += 1
        self.assertEqual(self.unhealthy(), "tunnel sync is taking too long: 601")
        self.day += 300
        self.assertEqual(self.unhealthy(), "tunnel sync is taking too long: 901")

    def test_01_limits_of_key_lags(self) -> None:
        """The key's lag alone."""
        self.install_result = RuntimeError("no")
        self.run_up()
        self.pass_time(900, 5)
        self.tunneler.check_healthy()
        self.clock.advance(1)
        self.assertEqual(self.unhealthy(), "SSHKey sync is taking too long: 901")

    def test_02_run_and_stop(self) -> None:
        """A second run does nothing; one after a stop works; a stop leaves connections open."""
        self.run_up()
        self.tunneler.run()
        self.assertEqual(len(self.listed), 1)
        self.successResultOf(self.tunneler.stop())
        self.assertEqual(self.hosts(), ["a", "b"])
        self.pass_time(60)
        self.assertEqual(len(self.listed), 1)
        self.run_up()
        self.assertEqual(len(self.listed), 2)
        self.assertEqual([tunnel.calls for tunnel in self.fleet.made], [["open"], ["open"]])

    def test_03_long_user(self) -> None:
        """The first 32 bytes of a name are used for both, and both have one function for that."""
        self.tunneler = self.make("u" * 40)
        self.tunneler.run()
        self.assertEqual([user for _, user, _ in self.installed], ["u" * 32])
        self.assertEqual((self.tunneler.user, truncate_user("u" * 40)), ("u" * 32, "u" * 32))

    def test_04_files(self) -> None:
        """Modes 0600, SPKI in PEM for RSA, no draft left, and an existing pair is not touched."""
        folder = Path(self.mktemp())
        folder.mkdir()
        path = folder / "id"
        KeyPairFiles(path, "rsa").ensure()
        self.assertEqual({file.name for file in folder.iterdir()}, {"id", "id.pub"})
        for file in folder.iterdir():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertTrue((folder / "id.pub").read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----\n"))
        load_pem_public_key((folder / "id.pub").read_bytes())
        before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
        KeyPairFiles(path, "rsa").ensure()
        after = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
        self.assertEqual(after, before)

    def checked_list(self) -> NodeTunnels:
        """Return a list whose tunnels are checked by their kubelets, with one node."""
        tunnels = NodeTunnels(
            self.clock,
            self.fleet.create,
            user="joe",
            health=kubelet_health("http://127.0.0.1:10255/healthz", self.clock),
            epoch=self.epoch,
        )
        tunnels.update([Node("a")])
        self.fleet.let_all_in()
        return tunnels

    def test_05_answers_keep_the_tunnel(self) -> None:
        """401 and 500 keep it, though with 500 it is degraded."""
        tunnels = self.checked_list()
        for code, state in ((401, "open"), (500, "degraded")):
            pipe = FakePipe()
            self.fleet.made[0].dial = lambda *_, pipe=pipe: succeed(pipe)  # type: ignore[method-assign]
            tunnels.check()
            pipe.deliver(b"HTTP/1.1 %d Reason\r\n\r\n" % code)
            self.assertEqual([status.state for status in tunnels.states()], [state])
        self.assertEqual(self.fleet.made[0].calls, ["open"])

    def test_05_refused(self) -> None:
        """A refused connection has the tunnel removed, closed, and opened again once."""
        tunnels = self.checked_list()
        refused = StreamRefused("refused", "connect failed: Connection refused", 2)
        self.fleet.made[0].dial = lambda *_: fail(refused)  # type: ignore[method-assign]
        tunnels.check()
        self.assertEqual(self.fleet.made[0].calls, ["open", "close"])
        self.assertEqual(len(self.fleet.made), 2)
        self.fleet.made[1].refuse(ConnectionError("no"))
        self.clock.advance(14)
        self.assertEqual(len(self.fleet.made), 2)
        tunnels.update([Node("a")])
        self.assertEqual(len(self.fleet.made), 3)
        self.successResultOf(tunnels.close())

    def test_05_removed_before(self) -> None:
        """A node that left the list while it was checked is not opened again, as it was upstream."""
        tunnels = self.checked_list()
        answer: Deferred[Any] = Deferred()
        self.fleet.made[0].dial = lambda *_: answer  # type: ignore[method-assign]
        tunnels.check()
        tunnels.update([])
        self.assertEqual((len(self.fleet.made), tunnels.states()), (1, []))

    def test_06_staggered_checks(self) -> None:
        """Four tunnels are looked at 0, 15, 30 and 45 s after the tick."""
        self.nodes = _nodes("a", "b", "c", "d")
        self.run_up()
        self.pass_time(119)
        self.assertEqual(self.checked, [60.0, 75.0, 90.0, 105.0])

    def test_07_update_while_opening(self) -> None:
        """There is one opening only; an address that is removed meanwhile does not appear at all."""
        self.tunneler.run()
        self.pass_one_list()
        self.assertEqual(len(self.fleet.made), 2)
        self.nodes = _nodes("b")
        self.pass_one_list()
        self.assertTrue(self.fleet.last("a").cancelled)
        self.fleet.last("b").let_in()
        self.assertEqual(self.hosts(), ["b"])

    def pass_one_list(self) -> None:
        """Update the list without opening tunnels."""
        self.clock.advance(15)

    def test_08_dial(self) -> None:
        """Without entries the exact text; the matching host; otherwise any, uniformly."""
        self.tunneler.run()
        failure = self.failureResultOf(self.tunneler.dial("a", 1), NoTunnels)
        self.assertEqual(
            str(failure.value),
            'No SSH tunnels currently open. Were the targets able to accept an ssh-key for user "joe"?',
        )
        self.fleet.let_all_in()
        self.tunneler.dial("b", 1)
        self.assertEqual([len(tunnel.dials) for tunnel in self.fleet.made], [0, 1])
        tunnels = NodeTunnels(self.clock, self.fleet.create, user="joe", health=None, epoch=self.epoch)
        tunnels.update(_nodes("c", "d", "e"))
        self.fleet.let_all_in()
        for _ in range(1200):
            tunnels.dial("10.0.0.1", 443)
        dials = Counter({tunnel.node.host: len(tunnel.dials) for tunnel in self.fleet.made[2:]})
        for host in "cde":  # 400 expected; six standard deviations are 98
            self.assertLess(abs(dials[host] - 400), 98)
        for tunnel in self.fleet.made:
            while tunnel.dials:
                tunnel.answer()
        self.successResultOf(tunnels.close())

    def test_09_counters(self) -> None:
        """Each attempt counts once, each that failed once more."""
        self.tunneler.run()
        counters = self.tunneler.tunnels.counters
        self.fleet.made[0].let_in()
        self.fleet.made[1].refuse(ConnectionError("no"))
        self.assertEqual((counters.open_count, counters.open_fail_count), (2, 1))
        self.pass_time(15)
        self.assertEqual((counters.open_count, counters.open_fail_count), (3, 1))

    def test_10_the_listing_fails(self) -> None:
        """Tower keeps the tunnels and lets the lag grow; upstream closed all and counted it as a sync."""
        self.run_up()
        self.nodes = RuntimeError("no")
        self.pass_time(601)
        self.assertEqual(self.hosts(), ["a", "b"])
        self.assertEqual(self.unhealthy(), "tunnel sync is taking too long: 601")
