"""One region of AWS: its services, and the credentials for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.api import AWSAPI, ICredentials
from tower.cloud.aws.command import Command
from tower.cloud.aws.config import EC2_SERVICE, INSTANCE_CONNECT, STS, AWSConfig
from tower.cloud.aws.credentials import CredentialChain, Environment, FixedCredentials, ISource, NoCredentials
from tower.cloud.aws.ec2 import EC2
from tower.cloud.aws.instances import REGION
from tower.cloud.aws.metadata import Metadata, NoMetadata
from tower.cloud.aws.profiles import DEFAULT, Profile, ProfileFiles, ProfileMethods, Role
from tower.cloud.aws.roles import AssumedRole, Container, InstanceRole, WebIdentity
from tower.cloud.aws.signing import AWSCredentials
from tower.cloud.errors import CloudError
from tower.cloud.session import CloudSession
from tower.reactor.interfaces import IReactor


@frozen
class _Services:
    """The services, once the region is known."""

    ec2: EC2
    instance_connect: AWSAPI


@define(eq=False, repr=False)
class Region:
    """The region of a configuration, or of this machine.

    :param clock: the reactor; runs programs too.
    :param time_of_day: its ``seconds()`` count from the epoch.
    :ivar metadata: of this instance.
    """

    config: AWSConfig
    _environ: Mapping[str, str]
    _session: CloudSession
    _clock: IReactor
    _time_of_day: IReactorTime
    metadata: Metadata
    _services: _Services | None = field(default=None, init=False)

    async def ec2(self) -> EC2:
        """Return EC2."""
        return (await self._known()).ec2

    async def instance_connect(self) -> AWSAPI:
        """Return EC2 Instance Connect."""
        return (await self._known()).instance_connect

    async def _known(self) -> _Services:
        if self._services is None:
            region = (
                self.config.region_in(self._environ)
                or self._files().values(self._profile_name() or DEFAULT).get("region")
                or await self._own_region()
            )
            if not REGION.fullmatch(region):
                raise CloudError("the region is unknown: set Region or Zone")
            credentials = self._credentials(region)
            self._services = _Services(
                EC2(self._api(EC2_SERVICE, region, credentials), self._clock),
                self._api(INSTANCE_CONNECT, region, credentials),
            )
        return self._services

    async def _own_region(self) -> str:
        try:
            return await self.metadata.get("placement/region")
        except NoMetadata as e:
            raise CloudError(f"the region is unknown: set Region or Zone ({e})") from None

    def _api(self, service: str, region: str, credentials: ICredentials) -> AWSAPI:
        return AWSAPI(self._session, self._time_of_day, self.config.endpoint(service, region), credentials)

    def _credentials(self, region: str) -> ICredentials:
        found = self._chain(self._sources(region))
        if self.config.role:
            role = Role(self.config.role, self.config.external_id)
            return self._chain([AssumedRole(self._api(STS, region, found), role)])
        return found

    def _sources(self, region: str) -> list[ISource]:
        environment = Environment(self._environ)
        container = Container(self._session, self._environ)
        instance = InstanceRole(self.metadata)
        url = self.config.endpoint(STS, region).url

        async def assume(credentials: AWSCredentials, role: Role) -> AWSCredentials:
            return await AssumedRole(self._api(STS, region, FixedCredentials(credentials)), role).fetch()

        async def assume_with_token(token_file: str, role: Role) -> AWSCredentials:
            settings = {
                "AWS_WEB_IDENTITY_TOKEN_FILE": token_file,
                "AWS_ROLE_ARN": role.arn,
                "AWS_ROLE_SESSION_NAME": role.session,
            }
            found = await WebIdentity(self._session, url, settings).fetch()
            if found is None:
                raise NoCredentials(f"no credentials for {role.arn}")
            return found

        sources: dict[str, ISource] = {
            "Environment": environment,
            "EcsContainer": container,
            "Ec2InstanceMetadata": instance,
        }
        name, files = self._profile_name(), self._files()
        is_named = bool(self.config.profile or self.config.credentials_file)
        required = is_named or bool(name or self._environ.get("AWS_SHARED_CREDENTIALS_FILE"))
        run = Command(self._clock, self._environ).credentials
        methods = ProfileMethods(sources, assume, assume_with_token, run)
        profile = Profile(files, name or DEFAULT, required=required, methods=methods)
        if is_named:
            # A cluster's configuration takes precedence: the environment may be for another account.
            return [profile]
        return [environment, profile, WebIdentity(self._session, url, self._environ), container, instance]

    def _chain(self, sources: Sequence[ISource]) -> CredentialChain:
        return CredentialChain(self._clock, self._time_of_day, sources)

    def _profile_name(self) -> str:
        return self.config.profile or self._environ.get("AWS_PROFILE", "")

    def _files(self) -> ProfileFiles:
        path = self.config.credentials_file or self._environ.get("AWS_SHARED_CREDENTIALS_FILE", "")
        other = self._environ.get("AWS_CONFIG_FILE", "")
        return ProfileFiles(self._home(path or "~/.aws/credentials"), self._home(other or "~/.aws/config"))

    def _home(self, path: str) -> Path:
        home = self._environ.get("HOME", "")
        return Path(home + path[1:] if home and path.startswith("~/") else path).expanduser()
