"""A stand-in for Azure in memory, with a provider that asks it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, finish
from tests.cloud.pumped import PumpedClock
from tests.cloud.standins.azure import Azure, Machine, configuration
from tower.cloud.azure.config import read_azure_config
from tower.cloud.azure.provider import Azure as Provider
from tower.cloud.azure.provider import AzureInstances
from tower.cloud.config.text import ConfigText
from tower.cloud.session import CloudSession

T = TypeVar("T")

HOST = "http://azure.test"


class AzureTestCase(SynchronousTestCase):
    """Three stand-alone machines and two of a scale set; all except one run."""

    def setUp(self) -> None:
        """Start them."""
        self.clock = PumpedClock()
        self.environ: Mapping[str, str] = {}
        self.keys: list[tuple[str, str]] = []
        self.azure = Azure(self.clock, on_key=lambda user, line: self.keys.append((user, line)))
        self.azure.machines = [
            Machine("node-a", "10.0.0.4", "203.0.113.4", "fd00::4"),
            Machine("node-b", "10.0.0.5", zones=()),
            Machine("node-c", "10.0.0.6", power="deallocated"),
            Machine("pool000000", "10.0.1.4", "203.0.113.14", scale_set="pool", number="0", zones=("2",)),
            Machine("pool000001", "10.0.1.5", scale_set="pool", number="1", zones=("3",)),
        ]
        self.agent = self.clock.ask(self.azure.resource)

    def provider(self, **keys: object) -> Provider:
        """Return a provider with *keys* in its configuration."""
        config = read_azure_config(ConfigText("azure.json", configuration(HOST, **keys)), self.environ)
        provider = Provider(config, ask=self.session, now=self.clock.seconds)
        provider.initialize(as_reactor(self.clock))
        self.addCleanup(provider.stop)
        return provider

    def instances(self, **keys: object) -> AzureInstances:
        """Return the instances of such a provider."""
        return self.provider(**keys).instances()

    def zones(self, **keys: object) -> AzureInstances:
        """Return the zones of such a provider."""
        return self.provider(**keys).zones()

    def session(self, reactor: Any) -> CloudSession:
        """Return what asks the stand-in."""
        return CloudSession(reactor, agent=self.agent, now=self.clock.seconds)

    def finish(self, work: Awaitable[T], limit: float = 2000.0) -> T:
        """Return the result of *work*."""
        return finish(self.clock, work, limit)
