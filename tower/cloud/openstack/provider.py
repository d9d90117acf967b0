"""The cloud provider ``openstack``: Keystone and Nova by their REST APIs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tower.cloud.config.text import ConfigText
from tower.cloud.openstack.auth import Keystone
from tower.cloud.openstack.config import OpenStackConfig, parse_openstack_config
from tower.cloud.openstack.metadata import Here
from tower.cloud.openstack.nova import Nova
from tower.cloud.openstack.servers import OpenStackInstances, OpenStackZones, Servers
from tower.cloud.provider import Provider
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken

NAME = "openstack"


class OpenStackCloud(Provider[OpenStackInstances, OpenStackZones]):
    """One project of a cloud, as its configuration describes it.

    :param ask: makes a session of a reactor; None: one that verifies HTTPS.
    :param now: tells the time, s since the epoch.
    """

    name = NAME

    def __init__(
        self,
        config: OpenStackConfig,
        *,
        ask: Callable[[Any], CloudSession] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._config = config
        self._ask = ask
        self._now = now

    def session(self, reactor: Any) -> CloudSession:
        """See `Provider.session`."""
        if self._ask is not None:
            return self._ask(reactor)
        return CloudSession(reactor, now=self._now, ca_file=self._config.ca_file)

    def compose(self, reactor: Any, session: CloudSession) -> tuple[OpenStackInstances, OpenStackZones]:
        """See `Provider.compose`."""
        config = self._config
        keystone = Keystone(session, config, self._now)
        servers = Servers(Nova(session, reactor, RefreshedToken(reactor, keystone.log_in)), config)
        here = Here(session, config)
        return OpenStackInstances(servers, here), OpenStackZones(servers, here)


def make(config: ConfigText | None) -> OpenStackCloud:
    """Make a provider of its configuration.

    :raise ConfigurationError: there is none, or it cannot be used.
    """
    return OpenStackCloud(parse_openstack_config(config))
