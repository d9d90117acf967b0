"""Registry of cloud providers.

A provider has a name and a factory.  Packages, Tower among them, register theirs with an entry point of the
group `GROUP`; programs can also call `register_cloud_provider`.  Factories may use the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from tower.cloud.config.text import ConfigText, read_config
from tower.cloud.errors import CloudError, InstanceNotFound, NotImplementedByCloud
from tower.cloud.interfaces import ICloudProvider
from tower.errors import ConfigurationError
from tower.files import ANYWHERE, Files

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "CloudProviders",
    "ConfigText",
    "Factory",
    "cloud_providers",
    "get_cloud_provider",
    "get_instance_provider_id",
    "init_cloud_provider",
    "is_cloud_provider",
    "is_external",
    "register_cloud_provider",
]

#: Group of the entry points of factories.
GROUP = "tower.cloud_providers"

#: The name for a cloud that another program manages.
EXTERNAL = "external"

#: Returns the provider for a configuration; None: no file.  Raises `ConfigurationError`.
Factory = Callable[[ConfigText | None], ICloudProvider | None]


def _installed() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # slow to import; most proxies use no cloud provider

    return entry_points(group=GROUP)


class CloudProviders:
    """Providers by name.

    Entry points are looked up each time, and only that of the requested provider is imported, so a broken one
    does not affect others.

    :param installed: returns the installed entry points.
    """

    _log = Logger()

    def __init__(self, installed: Callable[[], Iterable[EntryPoint]] = _installed) -> None:
        self._installed = installed
        self._registered: dict[str, Factory] = {}

    def register(self, name: str, factory: Factory) -> None:
        """Add a provider; raise `ConfigurationError` if the name is registered already, or reserved."""
        if not name or name == EXTERNAL:
            raise ConfigurationError(f'Cloud provider "{name}" cannot be registered: the name is reserved')
        if self.has(name):
            raise ConfigurationError(f'Cloud provider "{name}" was registered twice')
        self._registered[name] = factory
        self._log.debug('Registered cloud provider "{name}"', name=name)

    def has(self, name: str) -> bool:
        """Return whether a provider is registered; does not import it."""
        return name in self._registered or any(each.name == name for each in self._installed())

    def names(self) -> list[str]:
        """Return all names, sorted; does not import the providers."""
        return sorted({*self._registered, *(each.name for each in self._installed())})

    def get(self, name: str, config: ConfigText | None) -> ICloudProvider | None:
        """Return a new provider, which the caller initializes and stops.

        :return: None: the name is not registered.
        :raise ConfigurationError: its package is broken, or two packages have it.
        :raise Exception: raised by its factory.
        """
        factory = self._registered.get(name) or self._load(name)
        if factory is None:
            return None
        made: Any = factory(config)
        if made is not None and not ICloudProvider.providedBy(made):
            kind = type(made).__name__
            raise ConfigurationError(
                f"its factory returned a {kind}, which does not implement ICloudProvider"
            )
        provider: ICloudProvider | None = made
        return provider

    def _load(self, name: str) -> Factory | None:
        """Import the factory of an entry point."""
        found = [each for each in self._installed() if each.name == name]
        if not found:
            return None
        packages = ", ".join(sorted(_package(each) for each in found))
        if len(found) > 1:
            raise ConfigurationError(
                f'Cloud provider "{name}" was registered twice: by the packages {packages}; uninstall one'
            )
        try:
            factory = found[0].load()
        except Exception as e:  # an import runs code of other packages
            raise ConfigurationError(
                f"its package {packages} cannot be imported ({found[0].value}: "
                f"{type(e).__name__}: {e}): repair it with 'pip install --force-reinstall {packages}'"
            ) from e
        if not callable(factory):
            raise ConfigurationError(
                f"{found[0].value} of its package {packages} is not callable: install another version"
            )
        made: Factory = factory
        return made

    def init(self, name: str, config_file: str, files: Files = ANYWHERE) -> ICloudProvider | None:
        """Return a new provider by name and configuration file.

        :param config_file: path; empty: the factory gets None.
        :param files: the files that may be read.
        :return: None: *name* is empty or ``external``.
        :raise ConfigurationError: one line with the reason.
        """
        if not name:
            self._log.info("No cloud provider specified.")
            return None
        if is_external(name):
            self._log.info("External cloud provider specified")
            return None
        config = None
        if config_file:
            try:
                config = read_config(config_file, files)
            except (OSError, ValueError) as e:
                why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
                raise ConfigurationError(
                    f"Couldn't open cloud provider configuration {config_file}: {why}"
                ) from None
        try:
            provider = self.get(name, config)
        except Exception as e:  # a factory is code of another package
            raise ConfigurationError(f'could not init cloud provider "{name}": {e}') from e
        if provider is None:
            self._log.info("registered cloud providers: {names}", names=", ".join(self.names()))
            raise ConfigurationError(f'unknown cloud provider "{name}"')
        return provider


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


_PROVIDERS = CloudProviders()

#: See `CloudProviders.register`, `has`, `names`, `get` and `init`.
register_cloud_provider = _PROVIDERS.register
is_cloud_provider = _PROVIDERS.has
cloud_providers = _PROVIDERS.names
get_cloud_provider = _PROVIDERS.get
init_cloud_provider = _PROVIDERS.init


def is_external(name: str) -> bool:
    """Return whether the name is `EXTERNAL`: another program manages the cloud."""
    return name == EXTERNAL


async def get_instance_provider_id(cloud: ICloudProvider, node: str) -> str:
    """Return a node's provider ID, ``<provider>://<instance id>``.

    :raise InstanceNotFound: there is no such node.
    :raise NotImplementedByCloud: the cloud does not support it.
    :raise CloudError: another error.
    """
    instances = cloud.instances()
    if instances is None:
        raise CloudError("failed to get instances from cloud provider")
    try:
        instance_id = await instances.instance_id(node)
    except (InstanceNotFound, NotImplementedByCloud):
        raise
    except CloudError as e:
        raise CloudError(f"failed to get instance ID from cloud provider: {e}") from e
    return f"{cloud.provider_name()}://{instance_id}"
