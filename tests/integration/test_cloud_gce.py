"""The provider gce over real sockets: a key goes through project metadata to a node with a real sshd."""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from tests.cloud.asking import logged
from tests.cloud.standins.gce import GCE, PROJECT, Machine
from tests.cloud.standins.rest import Fault
from tests.integration.cloud_kit import PATIENCE, CloudNodeTestCase, reactor
from tower.cloud.config.text import ConfigText
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.provider import GCECloud


class Slow:
    """Makes every delay between attempts as long as possible."""

    def uniform(self, least: float, most: float) -> float:
        """Return the longest."""
        return most


class GCETests(CloudNodeTestCase):
    """One instance, whose guest agent is the stand-in's."""

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.machine = Machine("node-a", internal=self.node.host)
        self.gce = GCE(time.time, on_key=self.give)
        self.gce.machines = [self.machine]
        self.gce.operation_time = 0.2
        self.gce.project.replace({"ssh-keys": f"{self.node.user}:{self.known_line} by@hand"})
        self.service.serve(self.gce.resource)

    def give(self, user: str, key: str) -> None:
        """Do what the guest agent does with the keys in force."""
        keys = [line for name, line in self.gce.keys(self.machine) if name == self.node.user]
        self.node.authorize(*keys)

    def provider(self, text: str = "", **options: Any) -> GCECloud:
        """Return a provider for the stand-in."""
        host = self.service.url.removeprefix("http://")
        config = f"[global]\nproject-id = {PROJECT}\napi-endpoint = http://{host}/compute/v1\n"
        config += f"metadata-host = {host}\n{text}"
        cloud = GCECloud(parse_gce_config(ConfigText("gce.conf", config), {}), ask=self.asking(**options))
        cloud.initialize(reactor)
        self.addCleanup(cloud.stop)
        return cloud

    async def install(self, cloud: GCECloud) -> None:
        """Install the fresh key."""
        key = self.fresh_line.encode()
        await cloud.instances().add_ssh_key_to_all_instances(self.node.user, key)

    async def test_new_key(self) -> None:
        """After its installation a new key works, and the old one until it is removed."""
        self.assertEqual([True, False], [await self.accepts(self.known), await self.accepts(self.fresh)])
        with logged() as lines:
            await self.install(self.provider())
        self.assertEqual([True, True], [await self.accepts(self.known), await self.accepts(self.fresh)])
        self.gce.project.replace({"ssh-keys": self.gce.project.items["ssh-keys"].rpartition("\n")[2]})
        self.gce._tell()
        self.assertEqual([False, True], [await self.accepts(self.known), await self.accepts(self.fresh)])
        self.assertEqual([], self.gce.resource.refused)
        self.assertNotIn("ya29", "\n".join(lines))

    async def test_new_key_of_an_instance(self) -> None:
        """An instance that blocks its project's keys gets it by its own metadata."""
        self.machine.metadata.replace({"block-project-ssh-keys": "TRUE"})
        await self.install(self.provider("key-scope = instance\n"))
        self.assertEqual([False, True], [await self.accepts(self.known), await self.accepts(self.fresh)])

    async def test_killed_meanwhile(self) -> None:
        """A service that is killed while a key is installed, and comes back, delays it and no more."""
        self.gce.operation_time = 4.0
        cloud = self.provider(rng=Slow())
        listed = await cloud.instances().list_instances()
        self.assertEqual([self.node.host], [each.address for each in listed[0].addresses])

        async def interrupt() -> None:
            while not self.gce.operations:
                await deferLater(reactor, 0.05)
            await self.service.stop()
            await deferLater(reactor, 2.0)
            self.service.serve(self.gce.resource)

        interrupting = Deferred.fromCoroutine(interrupt())
        await self.install(cloud)
        await interrupting
        self.assertTrue(await self.accepts(self.fresh))

    async def test_gone(self) -> None:
        """A service that is not there is a clear error in bounded time."""
        cloud = self.provider()
        await self.service.stop()
        text = await self.fails(cloud.instances().list_instances, PATIENCE)
        self.assertIn("/computeMetadata/v1/instance/service-accounts/default/token: ", text)
        self.assertIn("refused", text)

    async def test_garbage(self) -> None:
        """A service that speaks something else is a clear error in bounded time."""
        cloud = self.provider(attempts=2)
        await cloud.instances().list_instances()
        await self.service.stop()
        self.skip_waits()
        for words in (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
            b"\0" * 70_000,
        ):
            self.service.speak(words)
            text = await self.fails(cloud.instances().list_instances, PATIENCE)
            self.assertIn("/aggregated/instances", text)
            await self.service.stop()

    async def test_silent(self) -> None:
        """A service that does not respond times out, with an error."""
        cloud = self.provider(timeout=0.5, attempts=2)
        await cloud.instances().list_instances()
        await self.service.stop()
        self.skip_waits()
        self.service.speak(b"")
        text = await self.fails(cloud.instances().list_instances, PATIENCE)
        self.assertIn("no answer within 0.5 s", text)

    async def test_stopped(self) -> None:
        """Stopping the provider ends what is being asked."""
        cloud = self.provider()
        await cloud.instances().list_instances()
        self.gce.resource.faults.append(Fault(None, 99, "aggregated"))
        reactor.callLater(0.3, cloud.stop)  # whenever that is, there is no answer
        with self.assertRaises(CancelledError):
            await cloud.instances().list_instances()
