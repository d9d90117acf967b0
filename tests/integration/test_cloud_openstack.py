"""The provider openstack over real sockets: a key goes by a server's metadata to a node with a real sshd.

The node's sshd runs the script of ``docs/cloud-providers.md``, unchanged.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.cloud.asking import logged
from tests.cloud.standins.openstack import PASSWORD, OpenStack, Server
from tests.integration.cloud_kit import PATIENCE, CloudNodeTestCase, reactor
from tests.integration.guide import DOCS
from tests.integration.sshd import Sshd
from tower.cloud.config.text import ConfigText
from tower.cloud.openstack.config import parse_openstack_config
from tower.cloud.openstack.provider import OpenStackCloud

#: sshd only runs programs that only root can replace: the system's, with the script as its argument.
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
SCRIPT_NAME = "tower-openstack-keys"


def script_of_the_guide() -> str:
    """Return the guide's script for nodes."""
    lines = (DOCS / "cloud-providers.md").read_text().splitlines()
    start = lines.index("#!/usr/bin/python3")
    return "\n".join([*lines[start : lines.index("```", start)], ""])


class OpenStackTests(CloudNodeTestCase):
    """One server."""

    def setUp(self) -> None:
        """Start all of it: the node asks the stand-in's metadata service for keys at each login."""
        super().setUp()
        self.openstack = OpenStack(time.time, "")
        self.service.serve(self.openstack.resource)
        self.openstack.base = self.service.url
        self.server = Server("node-a", [("private", self.node.host, "fixed")])
        self.openstack.servers = [self.server]

    def provider(self, **options: Any) -> OpenStackCloud:
        """Return a provider for the stand-in."""
        text = (
            f"[Global]\nauth-url = {self.service.url}/identity\nregion = RegionOne\n"
            f"username = tower\npassword = {PASSWORD}\ndomain-name = Default\ntenant-name = demo\n"
        )
        config = parse_openstack_config(ConfigText("cloud.conf", text))
        cloud = OpenStackCloud(config, ask=self.asking(**options))
        cloud.initialize(reactor)
        self.addCleanup(cloud.stop)
        return cloud

    def ask_metadata_at_login(self) -> None:
        """Set up the node as in the guide."""
        if PYTHON is None:
            raise SkipTest("the system has no python3")
        script = Path(self.folder / "node" / SCRIPT_NAME)
        script.write_text(script_of_the_guide())
        script.chmod(0o755)
        self.node.kill()
        where = f"{self.service.url}/as/{self.server.id}"
        self.node = Sshd(
            self.folder / "node",
            authorized=[self.known_line],
            options={
                "AuthorizedKeysCommand": f"{PYTHON} {script} %u {where}",
                "AuthorizedKeysCommandUser": self.node.user,
            },
        )
        self.node.start()
        self.addCleanup(self.node.kill)

    async def install(self, cloud: OpenStackCloud) -> None:
        """Install the fresh key."""
        key = self.fresh_line.encode()
        await cloud.instances().add_ssh_key_to_all_instances(self.node.user, key)

    async def test_new_key(self) -> None:
        """An installed key works with the guide's setup of sshd, until it is removed."""
        self.ask_metadata_at_login()
        self.assertEqual([True, False], [await self.accepts(self.known), await self.accepts(self.fresh)])
        with logged() as lines:
            await self.install(self.provider())
        self.assertEqual([True, True], [await self.accepts(self.known), await self.accepts(self.fresh)])
        self.server.metadata.clear()
        self.assertEqual([True, False], [await self.accepts(self.known), await self.accepts(self.fresh)])
        self.assertEqual([], self.openstack.resource.refused)
        self.assertNotIn("gAAAA", "\n".join(lines))
        self.assertNotIn(PASSWORD, "\n".join(lines))

    async def test_no_metadata_service(self) -> None:
        """If the metadata service does not respond, keys in files still work."""
        self.ask_metadata_at_login()
        await self.service.stop()
        self.assertEqual([True, False], [await self.accepts(self.known), await self.accepts(self.fresh)])

    async def test_new_key_by_another_program(self) -> None:
        """Any other program for the metadata's keys finds the installed key among them."""
        self.openstack._on_key = lambda user, line: self.node.authorize(self.known_line, line)
        await self.install(self.provider())
        self.assertEqual([True, True], [await self.accepts(self.known), await self.accepts(self.fresh)])

    async def test_back_again(self) -> None:
        """A service that is killed, and comes back with no token known any more, is used again."""
        cloud = self.provider()
        listed = await cloud.instances().list_instances()
        self.assertEqual([self.node.host], [each.address for each in listed[0].addresses])
        await self.service.stop()
        text = await self.fails(cloud.instances().list_instances, PATIENCE)
        self.assertIn("refused", text)
        self.openstack.revoke()
        self.service.serve(self.openstack.resource)
        self.assertEqual(1, len(await cloud.instances().list_instances()))

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
            self.assertIn("/servers/detail", text)
            await self.service.stop()

    async def test_silent(self) -> None:
        """A service that does not respond times out, with an error."""
        cloud = self.provider(timeout=0.5, attempts=2)
        await self.service.stop()
        self.skip_waits()
        self.service.speak(b"")
        text = await self.fails(cloud.instances().list_instances, PATIENCE)
        self.assertIn("no answer within 0.5 s", text)
