"""Keys on EC2's instances: pushed everywhere, and renewed in time for each login."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.cloud.asking import logged
from tests.cloud.aws.kit import A, AWSTestCase, B, C, public_key
from tests.cloud.standins.aws import CONNECT_PATH, EC2_PATH, SECRET, Machine
from tests.cloud.standins.rest import Fault
from tower.cloud.config.public_key import BadPublicKey
from tower.cloud.errors import CloudError, CloudUnreachable, InstanceNotFound

KEY = public_key()
LINE = " ".join(KEY.decode().split()[:2])


class EverywhereTest(AWSTestCase):
    """A key for all instances."""

    def install(self, user: str = "tower", key: bytes = KEY, **kw: Any) -> None:
        """Install a key."""
        self.finish(self.instances(**kw).add_ssh_key_to_all_instances(user, key))

    def test_running(self) -> None:
        """Every instance that runs gets the key, without its comment; stopped ones and Windows do not."""
        self.aws.machines.append(Machine("i-0d0d0d0d0d0d0d0d0", "10.0.0.4", platform="windows"))
        self.install()
        self.assertEqual(sorted(self.aws.pushed), [(A, "tower", LINE), (B, "tower", LINE)])
        self.assertEqual(self.aws.resource.refused, [])

    def test_selected(self) -> None:
        """An instance of another cluster does not get the key."""
        self.aws.machine(B).tags = {"kubernetes.io/cluster/gamma": "owned"}
        self.install()
        self.assertEqual([instance for instance, _, _ in self.aws.pushed], [A])

    def test_nothing_selected(self) -> None:
        """Without a selection, no instance of the account gets a key."""
        self.assertRaises(CloudError, self.install, text="")
        self.assertEqual(self.aws.pushed, [])

    def test_none_runs(self) -> None:
        """Without running instances, the error is clear."""
        self.aws.machines = self.aws.machines[2:]
        error = self.assertRaises(CloudError, self.install)
        self.assertIn("no running instance", str(error))

    def test_some_fail(self) -> None:
        """Instances that do not take the key are named with the reason; the others have it."""
        self.aws.machines += [Machine(f"i-{number:017x}", f"10.1.0.{number}") for number in range(8)]
        instances = self.instances()
        for number in range(7):
            self.aws.machine(f"i-{number:017x}").zone = "us-east-1"  # rejected: not a zone
        error = self.assertRaises(
            CloudError, self.finish, instances.add_ssh_key_to_all_instances("tower", KEY)
        )
        self.assertIn("the key is not on 7 of 10 instances: i-00000000000000000 (ec2-instance-", str(error))
        self.assertIn("InvalidArgsException", str(error))
        self.assertIn(" and 2 more", str(error))
        self.assertEqual({each for each, _, _ in self.aws.pushed}, {A, B, "i-00000000000000007"})

    def test_throttled(self) -> None:
        """When it is throttled, with status 400 here, it waits and continues until all is done."""
        self.aws.rate = 3
        self.aws.machines = [Machine(f"i-{number:017x}", f"10.1.0.{number}") for number in range(12)]
        self.install()
        self.assertEqual(len({each for each, _, _ in self.aws.pushed}), 12)
        self.assertTrue(self.aws.resource.refused)

    def test_parallel(self) -> None:
        """At most eight keys are pushed in parallel."""
        self.aws.machines = [Machine(f"i-{number:017x}", f"10.1.0.{number}") for number in range(20)]
        self.aws.resource.faults = [Fault(None, 1000, CONNECT_PATH)]
        installing = Deferred.fromCoroutine(self.instances().add_ssh_key_to_all_instances("tower", KEY))
        self.assertEqual(self.aws.resource.count("POST", CONNECT_PATH), 8)
        installing.cancel()
        self.failureResultOf(installing)

    def test_stopped(self) -> None:
        """A provider that is stopped while it pushes sends no more requests."""
        self.aws.machines = [Machine(f"i-{number:017x}", f"10.1.0.{number}") for number in range(20)]
        self.aws.resource.faults = [Fault(None, 1000, CONNECT_PATH)]
        provider = self.provider()
        found = provider.instances()
        installing = Deferred.fromCoroutine(found.add_ssh_key_to_all_instances("tower", KEY))
        self.clock.advance(1)
        provider.stop()
        self.failureResultOf(installing, CancelledError)
        self.clock.pump([10] * 30)
        self.assertEqual(self.aws.resource.count("POST", CONNECT_PATH), 8)

    def test_keys_that_are_none(self) -> None:
        """Keys of other types, too long keys and invalid keys are rejected before a request."""
        for key, wanted in {
            public_key(
                "ecdsa-sha2-nistp256"
            ): "does not accept ecdsa-sha2-nistp256 keys: use one of ssh-ed25519, ssh-rsa",
            public_key("ssh-rsa", 3100): "EC2 Instance Connect accepts at most 4096",
            b"ssh-ed25519": "not have the form",
            b"ssh-ed25519 AAAA": "contradicts its type",
            b"ssh-ed25519 n?t": "not have the form",
            KEY + KEY: "more than one",
            b"": "not have the form",
        }.items():
            error = self.assertRaises(BadPublicKey, self.install, key=key)
            self.assertIn(wanted, str(error))
        self.assertEqual(self.aws.resource.asks, [])

    def test_rsa(self) -> None:
        """An RSA key is taken."""
        self.install(key=public_key("ssh-rsa", 259))
        self.assertEqual(len(self.aws.pushed), 2)

    def test_users_that_are_none(self) -> None:
        """A name that Instance Connect does not take as a user's is refused here."""
        for user in ("", "-o", "a b", "x" * 40, "root\n", "0day"):
            self.assertRaises(CloudError, self.install, user=user)
        self.assertEqual(self.aws.resource.asks, [])

    def test_nothing_secret(self) -> None:
        """The log of pushes has no secrets and no keys."""
        self.aws.rate = 1
        with logged() as lines:
            self.install()
        self.assertTrue(lines)
        for line in lines:
            self.assertNotIn(SECRET, line)
            self.assertNotIn(LINE.split()[1], line)


class LeaseTest(AWSTestCase):
    """A key for one instance, right before a login."""

    def setUp(self) -> None:
        """Make a provider that keeps its instances."""
        super().setUp()
        self.nodes = self.instances()

    def prepare(self, host: str, key: bytes = KEY) -> None:
        """Prepare a dial."""
        self.finish(self.nodes.prepare_dial("tower", key, host))

    def pushes(self) -> list[str]:
        """Return the instances that got a key since the last time."""
        found = [instance for instance, _, _ in self.aws.pushed]
        self.aws.pushed.clear()
        return found

    def test_any_address(self) -> None:
        """An instance is known by each of its addresses and names."""
        for host in (
            *("10.0.0.1", "10.0.0.101", "203.0.113.1", "2001:db8::1"),
            *("ip-10-0-0-1.ec2.internal", "ec2-203-0-113-1.compute-1.amazonaws.com", A),
        ):
            self.prepare(host)
            self.assertEqual((host, self.pushes()), (host, [A]))
            self.clock.advance(50)

    def test_renewed(self) -> None:
        """A key is pushed again once it is 45 s old, so it is valid at every login."""
        self.finish(self.nodes.add_ssh_key_to_all_instances("tower", KEY))
        self.pushes()
        for wait, wanted in ((44, []), (1, [A]), (44, []), (2, [A]), (3600, [A]), (0, [])):
            self.clock.advance(wait)
            self.prepare("10.0.0.1")
            self.assertEqual((wait, self.pushes()), (wait, wanted))
            self.assertIn(("tower", LINE), self.keys)

    def test_other_key(self) -> None:
        """Another key, or another user, is pushed at once."""
        self.prepare("10.0.0.1")
        self.prepare("10.0.0.1", public_key(fill=8))
        self.finish(self.nodes.prepare_dial("ubuntu", KEY, "10.0.0.1"))
        self.assertEqual(self.pushes(), [A, A, A])

    def test_one_look(self) -> None:
        """For many dials in parallel, EC2 lists the instances once."""
        self.aws.machines = [Machine(f"i-{number:017x}", f"10.1.0.{number}") for number in range(40)]
        preparing = [
            Deferred.fromCoroutine(self.nodes.prepare_dial("tower", KEY, f"10.1.0.{number}"))
            for number in range(40)
        ]
        for each in preparing:
            self.successResultOf(each)
        self.assertEqual(len(self.pushes()), 40)
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 1)

    def test_unknown_host(self) -> None:
        """An unknown host is not found, and EC2 is not asked again for each dial."""
        for _ in range(5):
            self.assertRaises(InstanceNotFound, self.prepare, "192.0.2.1")
        self.assertEqual(self.aws.resource.count("POST", EC2_PATH), 1)
        self.clock.advance(10)
        self.aws.machines.append(Machine("i-0d0d0d0d0d0d0d0d0", "192.0.2.1"))
        self.prepare("192.0.2.1")
        self.assertEqual(self.pushes(), ["i-0d0d0d0d0d0d0d0d0"])

    def test_moved(self) -> None:
        """If another instance has an address now, that one gets the key."""
        self.prepare("10.0.0.1")
        self.aws.machines[0] = Machine("i-0d0d0d0d0d0d0d0d0", "10.0.0.1")
        self.clock.advance(60)
        self.prepare("10.0.0.1")
        self.assertEqual(self.pushes(), [A, "i-0d0d0d0d0d0d0d0d0"])

    def test_stopped(self) -> None:
        """A key for an instance that is stopped is an error with AWS's word for it."""
        error = self.assertRaises(CloudError, self.prepare, "10.0.0.3")
        self.assertIn("EC2InstanceStateInvalidException", str(error))
        self.assertEqual(self.aws.machine(C).state, "stopped")

    def test_silence(self) -> None:
        """A dial waits 20 s for its key, and no longer."""
        self.prepare("10.0.0.2")
        self.aws.resource.faults = [Fault(None, 1000)]
        before = self.clock.seconds()
        error = self.assertRaises(CloudUnreachable, self.prepare, "10.0.0.1")
        self.assertEqual(str(error), "no key for 10.0.0.1 within 20 s")
        self.assertLessEqual(self.clock.seconds() - before, 21)
        self.aws.resource.faults = []
        self.prepare("10.0.0.1")
        self.assertEqual(self.pushes(), [B, A])
