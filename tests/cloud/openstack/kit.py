"""A stand-in for OpenStack in memory, with a provider that uses it."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, asking, finish, started_clock
from tests.cloud.standins.openstack import (
    PASSWORD,
    OpenStack,
    Server,
)
from tower.cloud.config.text import ConfigText
from tower.cloud.openstack.config import parse_openstack_config
from tower.cloud.openstack.provider import OpenStackCloud

BASE = "http://cloud.test"


GLOBAL = f"""\
[Global]
auth-url = {BASE}/identity
region = RegionOne
"""


BY_PASSWORD = f"username = tower\npassword = {PASSWORD}\ndomain-name = Default\ntenant-name = demo\n"


class OpenStackTestCase(SynchronousTestCase):
    """A stand-in with three servers, and a provider for it."""

    def setUp(self) -> None:
        """Start them."""
        self.clock = started_clock()
        self.told: list[tuple[str, str]] = []
        self.openstack = OpenStack(
            self.clock.seconds, BASE, on_key=lambda user, line: self.told.append((user, line))
        )
        both = [("private", "10.0.0.11", "fixed"), ("private", "203.0.113.11", "floating")]
        six = [("private", "10.0.0.12", "fixed"), ("private", "fd00::12", "fixed")]
        self.openstack.servers = [
            Server("node-a", both, metadata={"cluster": "beta"}),
            Server("node-b", six, access_v6="2001:db8::12", metadata={"cluster": "beta"}, zone="az2"),
            Server("other", [("public", "198.51.100.1", "fixed")], status="SHUTOFF", flavor="m1.big"),
            Server("not-ours", project="somebody-elses"),
        ]
        self.cloud = self.provider()

    def provider(self, text: str = "", login: str = BY_PASSWORD, start: str = GLOBAL) -> OpenStackCloud:
        """Return a provider with *text* at the end of its configuration."""
        config = parse_openstack_config(ConfigText("cloud.conf", start + login + text))
        ask = asking(self.openstack.resource, self.clock)
        cloud = OpenStackCloud(config, ask=ask, now=self.clock.seconds)
        cloud.initialize(as_reactor(self.clock))
        self.addCleanup(cloud.stop)
        return cloud

    def names(self, cloud: OpenStackCloud) -> list[str]:
        """Return the names of the servers that *cloud* lists."""
        return [each.name for each in finish(self.clock, cloud.instances().list_instances())]

    def number(self, name: str) -> str:
        """Return the provider id of a server."""
        (found,) = (each.id for each in self.openstack.servers if each.name == name)
        return f"openstack:///{found}"

    def logins(self) -> int:
        """Return the number of logins."""
        return self.openstack.resource.count("POST", "/auth/tokens")
