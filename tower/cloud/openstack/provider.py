"""The cloud provider ``openstack``: Keystone and Nova."""

from __future__ import annotations

from attrs import define

from tower.cloud.config.text import ConfigText
from tower.cloud.openstack.auth import Keystone
from tower.cloud.openstack.config import OpenStackConfig, parse_openstack_config
from tower.cloud.openstack.metadata import OwnServer
from tower.cloud.openstack.nova import Nova
from tower.cloud.openstack.servers import OpenStackInstances, Servers
from tower.cloud.provider import Provider
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.interfaces import IReactor


@define(eq=False, repr=False, slots=False)
class OpenStackCloud(Provider[OpenStackInstances]):
    """One project."""

    name = "openstack"

    _config: OpenStackConfig

    def open_session(self, reactor: IReactor) -> CloudSession:
        """See `Provider`."""
        return CloudSession(reactor, now=self._now, ca_file=self._config.ca_file)

    def compose(self, reactor: IReactor, session: CloudSession) -> OpenStackInstances:
        """See `Provider.compose`."""
        config = self._config
        keystone = Keystone(session, config, self._now)
        servers = Servers(Nova(session, reactor, RefreshedToken(reactor, keystone.log_in)), config)
        return OpenStackInstances(servers, OwnServer(session, config))


def make(config: ConfigText | None) -> OpenStackCloud:
    """Return the provider for a configuration; raise `ConfigurationError` if it is missing or invalid."""
    return OpenStackCloud(parse_openstack_config(config))
