"""Keys on Azure's machines: an extension that takes its time, and is not run twice for nothing."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred

from tests.cloud.asking import logged
from tests.cloud.aws.kit import public_key
from tests.cloud.azure.kit import AzureTestCase
from tests.cloud.standins.azure import SECRET, Extension, Machine, error
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.azure.keys import NAME
from tower.cloud.config.public_key import BadPublicKey
from tower.cloud.errors import CloudError, CloudUnreachable

KEY = public_key()
LINE = " ".join(KEY.decode().split()[:2])
RUNNING = ["node-a", "node-b", "pool000000", "pool000001"]


class InstallTest(AzureTestCase):
    """A key for all machines."""

    def setUp(self) -> None:
        """Make a provider that keeps its instances."""
        super().setUp()
        self.nodes = self.instances()

    def install(self, user: str = "tower", key: bytes = KEY) -> None:
        """Install a key."""
        self.finish(self.nodes.add_ssh_key_to_all_instances(user, key))

    def error(self) -> str:
        """Return the error of an installation."""
        return str(self.assertRaises(CloudError, self.install))

    def puts(self) -> int:
        """Return the number of requests for extensions."""
        return sum(ask.method == "PUT" for ask in self.azure.resource.asks)

    def test_running(self) -> None:
        """Every Linux machine that runs gets the key, those of scale sets too, once its extension has run."""
        self.azure.machines.append(Machine("win", "10.0.0.9", system="Windows"))
        before = self.clock.seconds()
        self.install()
        self.assertEqual(self.azure.runs(), dict.fromkeys(RUNNING, 1))
        self.assertEqual(self.keys, [("tower", LINE)] * 4)
        self.assertGreaterEqual(self.clock.seconds() - before, self.azure.work_time)
        self.assertEqual({reply.code for _, reply in self.azure.resource.refused}, set())

    def test_other_links(self) -> None:
        """Work is followed by its location too, or by the state of the extension."""
        self.azure.location_only = True
        self.install()
        self.assertEqual(self.azure.runs(), dict.fromkeys(RUNNING, 1))

    def test_not_twice(self) -> None:
        """The same key is not installed twice, not by another provider of ours either; another key is."""
        self.install()
        self.install()
        self.assertEqual(self.puts(), 4)
        self.nodes = self.instances()
        self.install()
        self.assertEqual(self.puts(), 4)
        self.install(key=public_key(fill=8))
        self.assertEqual(self.azure.runs(), dict.fromkeys(RUNNING, 2))
        self.install(user="other")
        self.assertEqual(self.azure.runs(), dict.fromkeys(RUNNING, 3))

    def test_new_machine(self) -> None:
        """A machine that comes later, or starts, gets the key the next time; the others are left alone."""
        self.install()
        self.azure.machines.append(Machine("node-d", "10.0.0.7"))
        self.azure.machine("node-c").power = "running"
        self.install()
        self.assertEqual(self.azure.runs(), dict.fromkeys([*RUNNING, "node-c", "node-d"], 1))

    def test_repeated(self) -> None:
        """A machine that was replaced by one of the same name gets the key again."""
        self.install()
        self.azure.machines = [each for each in self.azure.machines if each.name != "node-a"]
        self.install()
        self.azure.machines.append(Machine("node-a"))
        self.install()
        self.assertEqual(self.azure.runs()["node-a"], 1)

    def test_other_name(self) -> None:
        """An extension with another name is used: there can be only one."""
        kind = {
            "publisher": "Microsoft.OSTCExtensions",
            "type": "VMAccessForLinux",
            "forceUpdateTag": "theirs",
        }
        other = {"publisher": "Microsoft.Azure.Extensions", "type": "CustomScript"}
        self.azure.machine("node-a").extensions = {
            "script": Extension("script", other, "Succeeded"),
            "VMAccessAgent": Extension("VMAccessAgent", kind, "Succeeded", 1),
        }
        self.install()
        self.assertEqual(set(self.azure.machine("node-a").extensions), {"script", "VMAccessAgent"})
        self.assertEqual(self.azure.machine("node-a").extensions["VMAccessAgent"].runs, 2)
        self.assertEqual(set(self.azure.machine("node-b").extensions), {NAME})

    def test_failed(self) -> None:
        """Machines whose extension fails are named with Azure's code; it is run there again the next time."""
        self.azure.broken = {"node-b"}
        text = self.error()
        self.assertIn("the key is not on 1 of 4 machines: node-b (PUT ", text)
        self.assertIn("VMExtensionProvisioningError: VM has reported a failure", text)
        self.azure.broken = set()
        self.nodes = self.instances()
        self.install()
        self.assertEqual(self.azure.runs(), dict.fromkeys(RUNNING, 1))

    def test_busy(self) -> None:
        """A machine whose extension another client is changing is named."""
        kind = {"publisher": "Microsoft.OSTCExtensions", "type": "VMAccessForLinux"}
        self.azure.machine("node-a").extensions = {NAME: Extension(NAME, kind, "Updating")}
        self.assertIn("node-a (PUT /subscriptions/", self.error())

    def test_endless(self) -> None:
        """An extension that never ends is given up after a quarter of an hour."""
        self.azure.work_time = 1e9
        before = self.clock.seconds()
        self.assertIn("not done within 900 s", self.error())
        self.assertLess(self.clock.seconds() - before, 1000)

    def test_patience(self) -> None:
        """Operations are polled at Azure's interval."""
        self.azure.work_time = 300
        self.install()
        polls = [ask for ask in self.azure.resource.asks if "/operations/" in ask.path]
        self.assertLessEqual(len(polls), 4 * 31)

    def test_trouble_while_waiting(self) -> None:
        """An error while work is followed does not start it again; a 429 is waited for."""
        busy = error(429, "TooManyRequests", "", Retry_After="20")
        self.azure.resource.faults = [Fault(busy, 4, "/operations/"), Fault(Reply(503), 2, "/operations/")]
        self.install()
        self.assertEqual(self.puts(), 4)
        self.assertEqual(self.azure.runs(), dict.fromkeys(RUNNING, 1))

    def test_elsewhere(self) -> None:
        """A link to an operation on another host is not followed: the token is not sent there."""
        self.azure.elsewhere = "http://evil.example"
        self.assertIn("it is not followed", self.error())

    def test_stopped(self) -> None:
        """A provider that is stopped while the extension runs sends no more requests."""
        provider = self.provider()
        found = provider.instances()
        installing = Deferred.fromCoroutine(found.add_ssh_key_to_all_instances("tower", KEY))
        self.clock.pump([1] * 20)
        provider.stop()
        self.failureResultOf(installing, CancelledError)
        before = len(self.azure.resource.asks)
        self.clock.pump([10] * 100)
        self.assertEqual(len(self.azure.resource.asks), before)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_none_runs(self) -> None:
        """Without running machines, the error is clear."""
        self.azure.machines = [self.azure.machine("node-c")]
        self.assertIn("no running Linux machine", self.error())

    def test_not_allowed(self) -> None:
        """Keys of other kinds, and users that no machine has, are refused here."""
        self.assertRaises(BadPublicKey, self.install, key=public_key("ecdsa-sha2-nistp256"))
        for user in ("", "-x", "Root User", "a" * 40, "a\n"):
            self.assertRaises(CloudError, self.install, user=user)
        self.assertEqual(self.azure.resource.asks, [])

    def test_silence(self) -> None:
        """Machines whose extension request times out are named, within a limited time."""
        self.azure.resource.faults = [Fault(None, 10_000, "/extensions")]
        before = self.clock.seconds()
        self.assertIn("the key is not on 4 of 4 machines", self.error())
        self.assertLess(self.clock.seconds() - before, 200)
        self.assertRaises(CloudUnreachable, self.failed_poll)

    def failed_poll(self) -> None:
        """Send requests that get no response."""
        self.azure.resource.faults = [Fault(None, 10_000)]
        self.install()

    def test_nothing_secret(self) -> None:
        """The log of installations has no secrets, tokens and keys."""
        busy = error(429, "TooManyRequests", "", Retry_After="2")
        self.azure.resource.faults = [Fault(busy, 4, "/extensions")]
        with logged() as lines:
            self.install()
        self.assertTrue(lines)
        for line in lines:
            for secret in (SECRET, LINE.split()[1], *self.azure.tokens):
                self.assertNotIn(secret, line)
