"""Tests of `tower.nodes.tunneler`."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from tests.fakes.tunnelers import LINE, TunnelerCase
from tower.cloud.errors import NotImplementedByCloud
from tower.clusters.node import Node
from tower.errors import ClusterUnreachable, ConfigurationError
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.tunneler import SSHTunneler, TunnelSyncUnhealthy, truncate_user
from tower.nodes.tunnels.tunnels import NoTunnels


@implementer(ILogObserver)
class Texts:
    """Captures the log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        """Record the line."""
        self.lines.append(formatEvent(event))


class Logged(TunnelerCase):
    """Captures the log."""

    def setUp(self) -> None:
        """Listen."""
        super().setUp()
        texts = Texts()
        self.events = texts.lines
        globalLogPublisher.addObserver(texts)
        self.addCleanup(globalLogPublisher.removeObserver, texts)


class SyncTests(Logged):
    def test_periods(self) -> None:
        """Nodes are listed every 15 s, the key is installed every 5 min, tunnels are checked each minute."""
        self.run_up()
        self.pass_time(601)
        self.assertEqual(self.listed, [15.0 * number for number in range(41)])
        self.assertEqual([at for at, _, _ in self.installed], [0.0, 300.0, 600.0])
        self.assertEqual(self.checked, [30.0 * number for number in range(2, 21)])

    def test_after_the_last_one_has_ended(self) -> None:
        """A listing that takes long is not followed at once by the next."""
        listing: Deferred[list[Node]] = Deferred()
        self.nodes = listing
        self.run_up()
        self.pass_time(20)
        self.nodes = [Node("a")]
        listing.callback([Node("a")])
        self.pass_time(15)
        self.assertEqual(self.listed, [0.0, 35.0])

    def test_nodes_come_and_go(self) -> None:
        """The tunnels follow the list."""
        self.run_up()
        self.assertEqual(self.hosts(), ["a", "b"])
        self.nodes = [Node("b"), Node("c")]
        self.pass_time(15)
        self.assertEqual(self.hosts(), ["b", "c"])
        self.nodes = []
        self.pass_time(15)
        self.assertEqual(self.hosts(), [])

    def test_a_listing_that_hangs(self) -> None:
        """It is cancelled after 30 s and logged, and the next listing is used."""
        self.nodes = Deferred()
        self.run_up()
        self.pass_time(30)
        self.assertEqual(self.tunneler.status().last_error, "no answer within 30 s")
        self.nodes = [Node("a")]
        self.pass_time(15)
        self.assertEqual((self.hosts(), self.tunneler.status().last_error), (["a"], ""))

    def test_lost_nodes_are_dialed_while_listings_fail(self) -> None:
        """A failed listing, which may need a tunnel itself, does not keep tunnels from being opened again."""
        self.run_up()
        self.nodes = RuntimeError("no connection to the API server")
        for tunnel in self.fleet.made[:2]:
            tunnel.lose()
        for tunnel in self.fleet.made[2:]:
            tunnel.refuse(ConnectionError("not yet"))
        self.assertEqual(self.hosts(), [])
        self.pass_time(15)
        self.assertEqual(self.hosts(), ["a", "b"])

    def test_what_is_logged(self) -> None:
        """The lines are upstream's, with the cluster in front."""
        self.nodes = RuntimeError("boom")
        self.run_up()
        self.pass_time(15)
        self.assertIn("beta: Setting up proxy: joe /keys/id", self.events)
        self.assertEqual(self.events.count("beta: Failed to getAddresses: boom"), 2)
        self.nodes = [Node("a")]
        self.pass_time(15)
        self.assertIn("beta: Calling update w/ addrs: ['a:22']", self.events)
        self.assertIn('beta: Trying to add tunnel to "a:22"', self.events)
        self.assertIn('beta: Successfully added tunnel for "a:22"', self.events)

    def test_a_list_that_is_none(self) -> None:
        """An error that no lister should raise does not end the timer."""
        self.nodes = "nonsense"  # type: ignore[assignment]
        self.run_up()
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.nodes = [Node("a")]
        self.pass_time(15)
        self.assertEqual(self.hosts(), ["a"])

    def test_list_soon(self) -> None:
        """Nodes are listed at once when their source has changed."""
        self.run_up()
        self.pass_time(3)
        self.tunneler.list_soon()
        self.assertEqual(self.listed, [0.0, 3.0])


class KeyTests(Logged):
    def test_installed(self) -> None:
        """The line goes to the user's account, and its time is shown."""
        self.run_up()
        self.assertEqual(self.installed, [(0.0, "joe", LINE)])
        self.assertEqual(self.tunneler.status().last_key_install, 1_000_000.0)

    def test_refused_nodes_are_dialed_when_it_is_installed(self) -> None:
        """A node that lacked the key is tried again as soon as the key is installed."""
        installing: Deferred[None] = Deferred()
        self.install_result = installing
        self.tunneler.run()
        for tunnel in self.fleet.made[:]:
            tunnel.refuse(ConnectionError("permission denied"))
        installing.callback(None)
        self.fleet.let_all_in()
        self.assertEqual(self.hosts(), ["a", "b"])

    def test_a_failure(self) -> None:
        """The failure is logged, and tried again after 5 min."""
        self.install_result = RuntimeError("quota")
        self.run_up()
        self.assertIn("beta: Failed to install ssh key: quota", self.events)
        status = self.tunneler.status()
        self.assertEqual((status.last_error, status.last_key_install), ("quota", None))
        self.install_result = None
        self.pass_time(300)
        status = self.tunneler.status()
        self.assertEqual((status.last_error, status.last_key_install), ("", 1_000_300.0))

    def test_a_cloud_that_cannot(self) -> None:
        """It is logged, and the key does not count as overdue."""
        self.install_result = NotImplementedByCloud("unimplemented: too long")
        self.run_up()
        self.pass_time(1200)
        self.assertIn("beta: Won't attempt to install ssh key: unimplemented: too long", self.events)
        self.assertEqual(self.tunneler.status().last_error, "unimplemented: too long")
        self.assertEqual(self.tunneler.seconds_since_ssh_key_sync(), 0)
        self.tunneler.check_healthy()
        self.install_result = None
        self.pass_time(300)
        self.assertEqual(self.tunneler.status().last_error, "")

    def test_one_that_hangs(self) -> None:
        """It is given up after 2 min."""
        self.install_result = Deferred()
        self.run_up()
        self.pass_time(120)
        self.assertEqual(self.tunneler.status().last_error, "no answer within 120 s")
        self.install_result = None
        self.pass_time(300)
        self.assertEqual(self.tunneler.status().last_error, "")

    def test_another_user(self) -> None:
        """A new user and installer apply at once; a late result of the previous installer is ignored."""
        late: Deferred[None] = Deferred()
        self.install_result = late
        self.tunneler.run()
        others: list[str] = []

        async def install(user: str, line: bytes) -> None:
            others.append(user)

        self.tunneler.switch("u" * 33, install)
        self.assertEqual(self.tunneler.user, "u" * 32)
        late.errback(RuntimeError("the cloud of before"))
        self.pass_time(1)
        self.assertEqual(others, ["u" * 32])
        status = self.tunneler.status()
        self.assertEqual((status.last_error, status.last_key_install), ("", 1_000_001.0))
        self.tunneler.switch("bob", None)
        self.pass_time(1000)
        self.assertIsNone(self.tunneler.status().last_key_install)
        self.tunneler.check_healthy()

    def test_a_new_key(self) -> None:
        """A key that changed on the disk is installed with the next list, not after minutes."""
        self.run_up()
        self.pass_time(20)
        self.keys.is_new = True
        self.pass_time(10)
        self.assertEqual([at for at, _, _ in self.installed], [0.0, 30.0])
        self.pass_time(299)
        self.assertEqual(len(self.installed), 2)
        self.pass_time(1)
        self.assertEqual(len(self.installed), 3)

    def test_a_new_node(self) -> None:
        """The key is installed when there is a new node, which may lack it."""
        self.run_up()
        self.nodes = [Node("a"), Node("b"), Node("c")]
        self.pass_time(30)
        self.assertEqual([at for at, _, _ in self.installed], [0.0, 15.0])

    def test_a_list_that_keeps_growing(self) -> None:
        """The cloud is asked once a minute while nodes are new, and then every 5 min again."""
        self.run_up()
        for number in range(20):
            self.nodes = [Node(f"n{each}") for each in range(number + 2)]
            self.pass_time(15)
        self.pass_time(700)
        times = [at for at, _, _ in self.installed]
        self.assertEqual(times, [0.0, 15.0, 75.0, 135.0, 195.0, 255.0, 315.0, 615.0, 915.0])

    def test_a_new_key_and_a_list_that_grows(self) -> None:
        """Another key is installed with the next list all the same."""
        self.run_up()
        for number in range(2):
            self.nodes = [Node(f"n{each}") for each in range(number + 3)]
            self.pass_time(15)
        self.keys.is_new = True
        self.pass_time(15)
        self.assertEqual([at for at, _, _ in self.installed], [0.0, 15.0, 45.0])

    def test_a_key_that_cannot_be_used(self) -> None:
        """It is logged, nothing is installed, and each attempt checks again."""
        self.keys.problem = "the disk is full"
        self.run_up()
        self.assertIn("beta: Failed to create key pair: the disk is full", self.events)
        self.assertIn("beta: Failed to load public key: the disk is full", self.events)
        self.assertEqual((self.installed, self.tunneler.status().last_error), ([], "the disk is full"))
        self.assertEqual(self.hosts(), ["a", "b"])
        self.keys.problem = ""
        self.pass_time(300)
        self.assertEqual((len(self.installed), self.tunneler.status().last_error), (1, ""))

    def test_without_installer(self) -> None:
        """Then the key is made all the same."""
        self.tunneler = self.make(install=False)
        self.keys.problem = "the disk is full"
        self.run_up()
        self.keys.problem = ""
        self.pass_time(300)
        self.assertEqual((self.keys.ensured, self.installed), (3, []))
        self.assertEqual(self.tunneler.status().last_error, "")
        self.assertIn("beta: Won't attempt to install ssh key: InstallSSHKey function is nil", self.events)


class RunTests(Logged):
    def test_no_lister(self) -> None:
        """A lister is required."""
        tunneler = SSHTunneler(
            self.clock,
            "joe",
            cast(KeyPairFiles, self.keys),
            self.tunneler.tunnels,
            lister=None,
            install=None,
            epoch=self.epoch,
        )
        with self.assertRaises(ConfigurationError):
            tunneler.run()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        tunneler.run(self.list)
        self.assertEqual(self.listed, [0.0])
        tunneler.stop()
        tunneler.run()
        self.assertEqual(self.listed, [0.0, 0.0])
        tunneler.stop()

    def test_as_a_service(self) -> None:
        """It runs while its service does."""
        self.tunneler.startService()
        self.tunneler.startService()
        self.assertEqual(self.listed, [0.0])
        self.successResultOf(self.tunneler.stopService())
        self.pass_time(600)
        self.assertEqual(self.listed, [0.0])

    def test_stopped_while_listing(self) -> None:
        """A list that comes after that changes nothing."""
        self.nodes = Deferred()
        self.run_up()
        self.tunneler.stop()
        self.assertEqual((self.fleet.made, self.tunneler.status().last_error), ([], ""))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost_after_a_stop(self) -> None:
        """It is not reopened until the next run."""
        self.run_up()
        self.tunneler.stop()
        self.fleet.made[0].lose()
        self.fleet.let_all_in()
        self.assertEqual(self.hosts(), ["b"])
        self.run_up()
        self.assertEqual(self.hosts(), ["a", "b"])

    def test_stopped_while_installing(self) -> None:
        """Nothing is logged about it."""
        self.install_result = Deferred()
        self.run_up()
        self.tunneler.stop()
        self.assertEqual(self.tunneler.status().last_error, "")

    def test_close(self) -> None:
        """The connections are ended, and no timer is left."""
        self.run_up()
        self.successResultOf(Deferred.fromCoroutine(self.tunneler.close()))
        self.assertEqual(self.tunneler.status().nodes, ())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertFalse(any(tunnel.is_open for tunnel in self.fleet.made))

    def test_dial(self) -> None:
        """It leads through the tunnels, also after a stop."""
        self.run_up()
        self.tunneler.stop()
        dialed = self.tunneler.dial("b", 10250)
        self.assertIs(self.fleet.last("b").answer(), self.successResultOf(dialed))

    def test_dial_without_tunnels(self) -> None:
        """The error while no node has accepted a login."""
        self.tunneler.run()
        self.failureResultOf(self.tunneler.dial("b", 1), NoTunnels)

    def test_dial_before_run(self) -> None:
        """The error before the first dial is another one."""
        failure = self.failureResultOf(self.tunneler.dial("b", 1), ClusterUnreachable)
        self.assertIn("was not started", str(failure.value))


class UserTests(Logged):
    def test_cut(self) -> None:
        """Names are cut at 32 bytes, never inside a character."""
        self.assertEqual(truncate_user("joe"), "joe")
        self.assertEqual(truncate_user("x" * 32), "x" * 32)
        self.assertEqual(truncate_user("x" * 33), "x" * 32)
        self.assertEqual(truncate_user("x" * 31 + "ü"), "x" * 31)
        self.assertEqual(truncate_user("ü" * 20), "ü" * 16)

    def test_warning(self) -> None:
        """It is logged at the start only."""
        warning = "beta: SSH User is too long, truncating to 32 chars"
        self.run_up()
        self.assertNotIn(warning, self.events)
        self.tunneler.stop()
        self.tunneler = self.make("x" * 40)
        self.assertNotIn(warning, self.events)
        self.run_up()
        self.assertEqual(self.events.count(warning), 1)


class LagTests(TunnelerCase):
    def test_before_it_runs(self) -> None:
        """Nothing lags."""
        self.assertEqual(
            (self.tunneler.seconds_since_sync(), self.tunneler.seconds_since_ssh_key_sync()), (0, 0)
        )
        self.tunneler.check_healthy()

    def test_whole_seconds(self) -> None:
        """Seconds of the time of day are counted, not the time between."""
        self.day = 1_000_000.75
        self.nodes = RuntimeError("no")
        self.run_up()
        self.day = 1_000_001.25
        self.assertEqual(self.tunneler.seconds_since_sync(), 1)

    def test_the_key(self) -> None:
        """Its lag is that of the last success."""
        self.run_up()
        self.install_result = RuntimeError("no")
        self.pass_time(900, 15)
        self.assertEqual(self.tunneler.seconds_since_ssh_key_sync(), 900)
        self.tunneler.check_healthy()
        self.clock.advance(1)
        with self.assertRaisesRegex(TunnelSyncUnhealthy, "^SSHKey sync is taking too long: 901$"):
            self.tunneler.check_healthy()

    def test_status(self) -> None:
        """Only what was done is shown as done."""
        self.nodes = RuntimeError("no")
        self.install_result = RuntimeError("not that either")
        self.run_up()
        status = self.tunneler.status()
        self.assertEqual((status.last_sync, status.last_key_install, status.last_error), (None, None, "no"))
        self.nodes = []
        self.pass_time(15)
        status = self.tunneler.status()
        self.assertEqual((status.last_sync, status.last_error), (1_000_015.0, "not that either"))
