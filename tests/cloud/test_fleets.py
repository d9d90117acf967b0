"""Fleets of thousands in each cloud: all are listed, and other work is not delayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, finish
from tests.cloud.aws.kit import ENVIRON
from tests.cloud.aws.kit import config as aws_config
from tests.cloud.gce.kit import CONFIG as GCE_CONFIG
from tests.cloud.openstack.kit import BASE, BY_PASSWORD, GLOBAL
from tests.cloud.pumped import CountingClock
from tests.cloud.standins import aws, azure, gce, openstack
from tower.cloud.aws.config import read_aws_config
from tower.cloud.aws.provider import AWS
from tower.cloud.azure.config import read_azure_config
from tower.cloud.azure.provider import Azure
from tower.cloud.config.text import ConfigText
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.provider import GCECloud
from tower.cloud.gcfg import parse
from tower.cloud.interfaces import Instance
from tower.cloud.openstack.config import parse_openstack_config
from tower.cloud.openstack.provider import OpenStackCloud
from tower.cloud.provider import Provider
from tower.cloud.session import CloudSession
from tower.reactor.cooperate import PIECE

Make = Callable[[Callable[[Any], CloudSession]], Provider[Any]]

COUNT = 2000
ADDRESSES = [f"10.1.{number // 250}.{number % 250}" for number in range(COUNT)]


class FleetTests(SynchronousTestCase):
    """Listing `COUNT` instances."""

    def setUp(self) -> None:
        """Make a clock that counts."""
        self.clock = CountingClock()

    def list(self, resource: Any, make: Callable[[Callable[[Any], CloudSession]], Provider[Any]]) -> None:
        """List all instances, and check that other work was delayed by one piece at most.

        :param resource: of the stand-in.
        :param make: makes the provider, of what asks the stand-in.
        """
        agent = self.clock.ask(resource)
        provider = make(lambda reactor: CloudSession(reactor, agent=agent, now=self.clock.seconds))
        provider.initialize(as_reactor(self.clock))
        found: list[Instance] = finish(self.clock, provider.instances().list_instances())
        listed = [each.addresses[0].address for each in found]
        self.assertEqual(sorted(listed), sorted(ADDRESSES))
        self.assertEqual(len({each.provider_id for each in found}), COUNT)
        self.assertGreaterEqual(self.clock.turns, COUNT // PIECE)

    def test_gce(self) -> None:
        """Of Compute Engine, in several zones."""
        cloud = gce.GCE(self.clock.seconds)
        cloud.machines = [
            gce.Machine(f"node-{number}", f"europe-west1-{'bcd'[number % 3]}", address)
            for number, address in enumerate(ADDRESSES)
        ]
        config = parse_gce_config(ConfigText("gce.conf", GCE_CONFIG), {})
        self.list(cloud.resource, lambda ask: GCECloud(config, ask=ask, now=self.clock.seconds))

    def test_aws(self) -> None:
        """Of EC2, with tags and what else is cut out."""
        cloud = aws.AWS(self.clock)
        cloud.machines = [
            aws.Machine(f"i-{number:017x}", address) for number, address in enumerate(ADDRESSES)
        ]
        config = read_aws_config(parse(ConfigText("aws.conf", aws_config())))
        self.list(cloud.resource, lambda ask: AWS(config, environ=ENVIRON, ask=ask, time_of_day=self.clock))

    def test_openstack(self) -> None:
        """Of Nova."""
        cloud = openstack.OpenStack(self.clock.seconds, BASE)
        cloud.servers = [
            openstack.Server(f"node-{number}", [("private", address, "fixed")])
            for number, address in enumerate(ADDRESSES)
        ]
        config = parse_openstack_config(ConfigText("openstack.conf", GLOBAL + BY_PASSWORD))
        self.list(cloud.resource, lambda ask: OpenStackCloud(config, ask=ask, now=self.clock.seconds))

    def test_azure(self) -> None:
        """Of Azure, in a scale set or not."""
        cloud = azure.Azure(self.clock)
        cloud.page_size = 400
        cloud.machines = [
            azure.Machine(f"pool{number:06}", address, scale_set="pool", number=str(number))
            if number % 2
            else azure.Machine(f"node-{number}", address)
            for number, address in enumerate(ADDRESSES)
        ]
        config = read_azure_config(ConfigText("azure.json", azure.configuration("http://azure.test")), {})
        self.list(cloud.resource, lambda ask: Azure(config, ask=ask, now=self.clock.seconds))
