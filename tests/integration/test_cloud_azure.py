"""The provider azure over real sockets: a key goes by the extension VMAccess to a node with a real sshd."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.cloud.asking import logged
from tests.cloud.standins.azure import SECRET, Machine, configuration
from tests.cloud.standins.azure import Azure as Cloud
from tests.integration.cloud_kit import PATIENCE, CloudNodeTestCase, reactor
from tower.cloud.azure.config import read_azure_config
from tower.cloud.azure.provider import Azure, AzureInstances
from tower.cloud.config.text import ConfigText
from tower.reactor.clock import TimeOfDay

WORK = 1.5  # s, of the extension: in Azure more than a minute
REMEMBERED = 1  # s, what was seen of the machines


class AzureTests(CloudNodeTestCase):
    """One machine of its own and one of a scale set, with one sshd."""

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.lines = [self.known_line]
        self.azure = Cloud(TimeOfDay(reactor), on_key=self.add_key)
        self.azure.work_time = WORK
        self.azure.patience = "1"
        self.azure.machines = [
            Machine("node-a", self.node.host),
            Machine("pool000000", self.node.host, scale_set="pool", number="0"),
        ]
        self.service.serve(self.azure.resource)

    def add_key(self, user: str, line: str) -> None:
        """Add a key to the node, as the extension does."""
        self.assertEqual(user, self.node.user)
        self.lines.append(line)
        self.node.authorize(*self.lines)

    def instances(self, *, managed: bool = False, **options: Any) -> AzureInstances:
        """Return the instances of a provider that asks the stand-in."""
        text = configuration(
            self.service.url, useManagedIdentityExtension=managed, vmCacheTTLInSeconds=REMEMBERED
        )
        provider = Azure(
            read_azure_config(ConfigText("azure.json", text)),
            ask=self.asking(**options),
        )
        provider.initialize(reactor)
        self.addCleanup(provider.stop)
        return provider.instances()

    async def install(self, instances: AzureInstances) -> None:
        """Install the fresh key."""
        await instances.add_ssh_key_to_all_instances(self.node.user, self.fresh_line.encode())

    async def test_new_key(self) -> None:
        """An installed key works with the others; it is installed once on each machine, by any proxy."""
        self.assertEqual([True, False], [await self.accepts(self.known), await self.accepts(self.fresh)])
        with logged() as lines:
            await self.install(self.instances())
            self.assertEqual([True, True], [await self.accepts(self.known), await self.accepts(self.fresh)])
            await self.install(self.instances(managed=True))
        self.assertEqual(self.azure.runs(), {"node-a": 1, "pool000000": 1})
        self.assertEqual(self.azure.resource.refused, [])
        for line in lines:
            for secret in (SECRET, *self.azure.tokens):
                self.assertNotIn(secret, line)

    async def test_back_again(self) -> None:
        """A service that is killed while the extension runs, and comes back with no token, is followed on."""
        instances = self.instances()
        self.azure.work_time = 4.0
        restarting = Deferred.fromCoroutine(self.restart())
        await self.install(instances)
        await restarting
        self.assertEqual(self.azure.runs(), {"node-a": 1, "pool000000": 1})
        self.assertTrue(await self.accepts(self.fresh))

    async def restart(self) -> None:
        """Kill the service when it has begun to work, and start it again."""
        while not self.azure.runs():
            await deferLater(reactor, 0.05)
        await self.service.stop()
        self.azure.tokens.clear()
        self.service.serve(self.azure.resource)

    async def test_garbage(self) -> None:
        """A service that speaks something else is a clear error in bounded time."""
        instances = self.instances(timeout=1.0, deadline=1.5)
        await instances.list_instances()
        await deferLater(reactor, REMEMBERED)
        await self.service.stop()
        self.skip_waits()
        for words in (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"value": []',
            b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{",
            b"\0" * 70_000,
        ):
            self.service.speak(words)
            self.assertIn("/virtualMachine", await self.fails(instances.list_instances, PATIENCE))
            await self.service.stop()

    async def test_silent(self) -> None:
        """A service that does not respond times out, with an error."""
        instances = self.instances(timeout=0.5, attempts=2)
        await instances.list_instances()
        await deferLater(reactor, REMEMBERED)
        await self.service.stop()
        self.skip_waits()
        self.service.speak(b"")
        self.assertIn("no answer within 0.5 s", await self.fails(instances.list_instances, PATIENCE))
