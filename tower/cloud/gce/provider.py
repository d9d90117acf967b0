"""The cloud provider ``gce``: Google Compute Engine."""

from __future__ import annotations

from functools import partial

from attrs import define, field

from tower.cloud.config.text import ConfigText
from tower.cloud.gce.auth import AlternateTokens
from tower.cloud.gce.compute import Compute
from tower.cloud.gce.config import GCEConfig, parse_gce_config
from tower.cloud.gce.federation import Account, AccountTokens, load_account
from tower.cloud.gce.instances import GCEInstances, Machines
from tower.cloud.gce.key_installer import KeyInstaller
from tower.cloud.gce.metadata import MetadataService
from tower.cloud.provider import Provider
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.interfaces import IReactor


@define(eq=False, repr=False, slots=False)
class GCECloud(Provider[GCEInstances]):
    """One project, by default that of *account*, otherwise that of this machine."""

    name = "gce"

    _config: GCEConfig
    _account: Account | None = None
    _project: str = field(default="", init=False)
    _metadata: MetadataService | None = field(default=None, init=False)

    def compose(self, reactor: IReactor, session: CloudSession) -> GCEInstances:
        """See `Provider.compose`."""
        config = self._config
        metadata = MetadataService(session, config.metadata_host)
        tokens = self._tokens(reactor, session, metadata)
        compute = Compute(session, reactor, config.api, self._find_project, tokens)
        machines = Machines(compute, config, self._find_project)
        installer = KeyInstaller(reactor, compute, config, partial(machines.all, metadata=True))
        self._metadata = metadata
        return GCEInstances(machines, installer, config, metadata)

    async def _find_project(self) -> str:
        self._project = (
            self._project or self._config.project or (self._account.project if self._account else "")
        )
        if not self._project and self._metadata is not None:
            self._project = await self._metadata.project()
        return self._project

    def _tokens(
        self, reactor: IReactor, session: CloudSession, metadata: MetadataService
    ) -> RefreshedToken[str]:
        config = self._config
        if config.credentials_file:
            account = AccountTokens(session, config.credentials_file, self._now)
            first = RefreshedToken(reactor, account.fetch)
        else:
            first = RefreshedToken(reactor, metadata.token)
        if not config.token_url:
            return first
        alternate = AlternateTokens(session, config.token_url, config.token_body, first, self._now)
        return RefreshedToken(reactor, alternate.fetch)


def make(config: ConfigText | None) -> GCECloud:
    """Return the provider for a configuration; None: the defaults.

    :raise ConfigurationError: the configuration, or its credentials file, is invalid.
    """
    parsed = parse_gce_config(config)
    account = load_account(parsed.credentials_file) if parsed.credentials_file else None
    return GCECloud(parsed, account)
