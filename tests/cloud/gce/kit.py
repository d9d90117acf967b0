"""A stand-in for Compute Engine in memory, with a provider that uses it."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, asking, finish, started_clock
from tests.cloud.standins.gce import GCE, PROJECT, Machine
from tower.cloud.config.text import ConfigText
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.provider import GCECloud

CONFIG = f"""\
[global]
api-endpoint = http://gce.test/compute/v1
metadata-host = gce.test
project-id = {PROJECT}
"""


class GCETestCase(SynchronousTestCase):
    """A stand-in with three instances in two zones, and a provider for it."""

    def setUp(self) -> None:
        """Start them."""
        self.clock = started_clock()
        self.gce = GCE(self.clock.seconds)
        self.gce.machines = [
            Machine("node-a", external="203.0.113.1", tags=("node",)),
            Machine("node-b", "europe-west1-c", "10.0.0.3", ipv6="2001:db8::3", tags=("node", "gpu")),
            Machine("other", "us-east1-b", "10.1.0.2", status="TERMINATED"),
        ]
        self.cloud = self.provider("")

    def provider(self, text: str, config: str = CONFIG) -> GCECloud:
        """Return a provider with *text* at the end of its configuration."""
        cloud = GCECloud(
            parse_gce_config(ConfigText("gce.conf", config + text), {}),
            ask=asking(self.gce.resource, self.clock),
            now=self.clock.seconds,
        )
        cloud.initialize(as_reactor(self.clock))
        self.addCleanup(cloud.stop)
        return cloud

    def names(self, cloud: GCECloud) -> list[str]:
        """Return the names of the instances that *cloud* lists."""
        return [each.name for each in finish(self.clock, cloud.instances().list_instances())]


KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAzIWC9Y0cTcYkKBOFHUTZFB2rUdKrFg0bZBVEQO0pEl"
