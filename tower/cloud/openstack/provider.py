"""The cloud provider ``openstack``: Keystone and Nova by their REST APIs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from tower.cloud.configtext import ConfigText
from tower.cloud.errors import CloudError
from tower.cloud.interfaces import ICloudProvider
from tower.cloud.openstack.auth import Keystone
from tower.cloud.openstack.config import OpenStackConfig, parse_openstack_config
from tower.cloud.openstack.metadata import Here
from tower.cloud.openstack.nova import Nova
from tower.cloud.openstack.servers import OpenStackInstances, OpenStackZones, Servers
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken

NAME = "openstack"


@implementer(ICloudProvider)
class OpenStackCloud:
    """One project of a cloud, as its configuration describes it.

    :param ask: makes a session of a reactor; None: one that verifies HTTPS.
    :param now: tells the time, s since the epoch.
    """

    def __init__(
        self,
        config: OpenStackConfig,
        *,
        ask: Callable[[Any], CloudSession] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._ask = ask or self._session_for
        self._now = now
        self._session: CloudSession | None = None
        self._instances: OpenStackInstances | None = None
        self._zones: OpenStackZones | None = None

    def provider_name(self) -> str:
        """See `ICloudProvider`."""
        return NAME

    def initialize(self, reactor: Any) -> None:
        """See `ICloudProvider`."""
        config = self._config
        session = self._ask(reactor)
        keystone = Keystone(session, config, self._now)
        servers = Servers(Nova(session, RefreshedToken(reactor, keystone.log_in)), config)
        here = Here(session, config)
        self._session = session
        self._instances = OpenStackInstances(servers, here)
        self._zones = OpenStackZones(servers, here)

    def stop(self) -> None:
        """See `ICloudProvider`."""
        if self._session is not None:
            self._session.stop()

    def instances(self) -> OpenStackInstances:
        """See `ICloudProvider`."""
        if self._instances is None:
            raise CloudError("the provider is not initialized")
        return self._instances

    def zones(self) -> OpenStackZones:
        """See `ICloudProvider`."""
        if self._zones is None:
            raise CloudError("the provider is not initialized")
        return self._zones

    def clusters(self) -> None:
        """Not supported."""

    def routes(self) -> None:
        """Not supported."""

    def load_balancer(self) -> None:
        """Not supported."""

    def has_cluster_id(self) -> bool:
        """See `ICloudProvider`."""
        return True

    def _session_for(self, reactor: Any) -> CloudSession:
        return CloudSession(reactor, now=self._now, ca_file=self._config.ca_file)


def make(config: ConfigText | None) -> OpenStackCloud:
    """Make a provider of its configuration.

    :raise ConfigurationError: there is none, or it cannot be used.
    """
    return OpenStackCloud(parse_openstack_config(config))
