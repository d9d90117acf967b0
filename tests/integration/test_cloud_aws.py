"""Over real sockets EC2 Instance Connect brings a key to a node with a real sshd, for a while."""

from __future__ import annotations

from typing import Any

from tests.cloud.asking import as_reactor, logged
from tests.cloud.aws.kit import config
from tests.cloud.standins.aws import AWS as Cloud
from tests.cloud.standins.aws import CONNECT_PATH, EC2_PATH, Machine
from tests.integration.cloud_kit import PATIENCE, CloudNodeTestCase, reactor
from tower.cloud.aws.config import read_aws_config
from tower.cloud.aws.provider import AWS, AWSInstances
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import InstanceNotFound
from tower.cloud.gcfg import parse
from tower.reactor.clock import TimeOfDay

LIFE = 60.0  # s, of a key on the instance
DIALS = 12  # in two and a half lives
NODE = "i-0123456789abcdef0"


class Ahead:
    """The reactor, or another clock, for which time may pass at once.

    :ivar by: how far it is ahead, s.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.by = 0.0

    def seconds(self) -> float:
        """Return the time."""
        return float(self._clock.seconds()) + self.by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class AWSTests(CloudNodeTestCase):
    """One instance, whose sshd has the currently valid keys, and a role for this instance."""

    def setUp(self) -> None:
        """Start all of it."""
        super().setUp()
        self.clocks = Ahead(TimeOfDay(reactor)), Ahead(reactor)
        clock: Any = self.clocks[0]
        self.aws = Cloud(clock, on_key=self.show_keys, on_key_gone=self.show_keys)
        self.addCleanup(self.aws.stop)
        self.aws.key_life = LIFE
        self.aws.give_role()
        self.aws.machines = [Machine(NODE, self.node.host)]
        self.service.serve(self.aws.resource)

    def show_keys(self, user: str, line: str) -> None:
        """Write the currently valid keys for the node."""
        self.node.authorize(self.known_line, *self.aws.keys(NODE, self.node.user))

    def pass_time(self, seconds: float) -> None:
        """Advance the clocks of Tower and of the cloud."""
        for clock in self.clocks:
            clock.by += seconds
        self.show_keys("", "")

    def instances(self, **options: Any) -> AWSInstances:
        """Return the instances of a provider that finds out everything but the stand-in's address."""
        text = config(region="", host=self.service.url)
        provider = AWS(
            read_aws_config(parse(ConfigText("aws.conf", text))),
            environ={"HOME": str(self.folder)},
            ask=self.asking(**options),
            key_life=LIFE,
        )
        provider.initialize(as_reactor(self.clocks[1]))
        self.addCleanup(provider.stop)
        return provider.instances()

    async def dial(self, instances: AWSInstances) -> bool:
        """Dial as a tunneler does: with the key prepared."""
        await instances.prepare_dial(self.node.user, self.fresh_line.encode(), self.node.host)
        return await self.accepts(self.fresh)

    async def test_new_key(self) -> None:
        """An installed key works; after its life it does not, until a dial renews it."""
        instances = self.instances()
        self.assertEqual([True, False], [await self.accepts(self.known), await self.accepts(self.fresh)])
        with logged() as lines:
            await instances.add_ssh_key_to_all_instances(self.node.user, self.fresh_line.encode())
            self.assertTrue(await self.accepts(self.fresh))
            self.pass_time(LIFE)
            self.assertFalse(await self.accepts(self.fresh))
            self.assertTrue(await self.dial(instances))
        self.assertEqual(self.aws.resource.refused, [])
        secrets = [each.secret for each in self.aws.credentials.values()]
        secrets += [each.token for each in self.aws.credentials.values() if each.token]
        for line in lines:
            for secret in secrets:
                self.assertNotIn(secret, line)

    async def test_often(self) -> None:
        """Dial after dial succeeds for as long as one likes, with few pushes."""
        instances = self.instances()
        for _ in range(DIALS):
            self.assertTrue(await self.dial(instances))
            self.pass_time(2.5 * LIFE / DIALS)
        self.assertLess(len(self.aws.pushed), DIALS)
        self.assertGreater(len(self.aws.pushed), 1)

    async def test_unknown_host(self) -> None:
        """An unknown host is not found."""
        try:
            await self.instances().prepare_dial("tower", self.fresh_line.encode(), "192.0.2.1")
        except InstanceNotFound:
            return
        raise AssertionError("it was found")

    async def test_back_again(self) -> None:
        """A service that is killed, and comes back with no credentials known any more, is used again."""
        instances = self.instances(timeout=2.0, deadline=5.0)
        self.assertEqual(len(await instances.list_instances()), 1)
        await self.service.stop()
        self.skip_waits()
        text = await self.fails(instances.list_instances, PATIENCE)
        # The last attempt may be refused, or cut short.
        self.assertRegex(text, "refused|no answer within 5 s")
        self.aws.credentials.clear()
        self.aws.sessions.clear()
        self.service.serve(self.aws.resource)
        self.assertTrue(await self.dial(instances))

    async def test_garbage(self) -> None:
        """A service that speaks something else is a clear error in bounded time."""
        instances = self.instances(timeout=1.0, deadline=1.5)
        await instances.list_instances()
        await self.service.stop()
        self.skip_waits()
        for words in (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<a>&b;</a",
            b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n<a>",
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n<html>no<",
            b"\0" * 70_000,
        ):
            self.service.speak(words)
            text = await self.fails(instances.list_instances, PATIENCE)
            self.assertTrue(EC2_PATH in text or "ec2" in text or "the response" in text, text)
            await self.service.stop()

    async def test_silent(self) -> None:
        """A service that does not respond times out, also before a dial."""
        instances = self.instances(timeout=0.5, deadline=2.0)
        await instances.list_instances()
        await self.service.stop()
        self.skip_waits()
        self.service.speak(b"")
        self.assertIn("no answer within", await self.fails(instances.list_instances, PATIENCE))

        async def prepare() -> None:
            await instances.prepare_dial(self.node.user, self.fresh_line.encode(), self.node.host)

        text = await self.fails(prepare, PATIENCE)
        self.assertIn(CONNECT_PATH, text)
