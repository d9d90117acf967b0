"""Which cloud providers there are, and how one is made.

A provider is a name and a factory.  Packages bring theirs by an entry point of the group `GROUP`, as Tower
does for its own; a program may add one with `register_cloud_provider`.  A factory may use all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from twisted.logger import Logger

from tower.cloud.config.text import ConfigText, read_config
from tower.cloud.errors import CloudError, InstanceNotFound, NotImplementedByCloud
from tower.cloud.interfaces import ICloudProvider
from tower.errors import ConfigurationError
from tower.files import ANYWHERE, Files

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

#: The group of entry points that are factories of providers.
GROUP = "tower.cloud_providers"

#: The name that stands for a cloud that something else takes care of.
EXTERNAL = "external"

#: Makes a provider of its configuration; None: there is no file.  Raises `ConfigurationError` for a bad one.
Factory = Callable[[ConfigText | None], ICloudProvider | None]


def _installed() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)


class CloudProviders:
    """Providers by name.

    Entry points are looked up each time and imported only for the provider that is wanted, so a broken one
    hurts nobody else.

    :param installed: returns the entry points there are.
    """

    _log = Logger()

    def __init__(self, installed: Callable[[], Iterable[EntryPoint]] = _installed) -> None:
        self._installed = installed
        self._registered: dict[str, Factory] = {}

    def register(self, name: str, factory: Factory) -> None:
        """Add a provider.

        :raise ConfigurationError: there is one of that name, or nobody could ask for it by that name.
        """
        if not name or name == EXTERNAL:
            raise ConfigurationError(f'Cloud provider "{name}" cannot be registered: the name is taken')
        if self.has(name):
            raise ConfigurationError(f'Cloud provider "{name}" was registered twice')
        self._registered[name] = factory
        self._log.debug('Registered cloud provider "{name}"', name=name)

    def has(self, name: str) -> bool:
        """Tell whether there is a provider of that name; nothing is imported."""
        return name in self._registered or any(each.name == name for each in self._installed())

    def names(self) -> list[str]:
        """Return all names, sorted; nothing is imported."""
        return sorted({*self._registered, *(each.name for each in self._installed())})

    def get(self, name: str, config: ConfigText | None) -> ICloudProvider | None:
        """Make a provider; it has to be initialized, and stopped in the end.

        :return: None: there is none of that name.
        :raise ConfigurationError: its package cannot be used, or two have it.
        :raise Exception: whatever its factory raises.
        """
        factory = self._registered.get(name) or self._load(name)
        if factory is None:
            return None
        made: Any = factory(config)
        if made is not None and not ICloudProvider.providedBy(made):
            kind = type(made).__name__
            raise ConfigurationError(f"its factory made a {kind}, which does not implement ICloudProvider")
        provider: ICloudProvider | None = made
        return provider

    def _load(self, name: str) -> Factory | None:
        """Import the entry point of that name."""
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
        except Exception as e:  # an import runs anybody's code
            raise ConfigurationError(
                f"the package {packages}, which brings it, cannot be imported ({found[0].value}: "
                f"{type(e).__name__}: {e}): repair it with 'pip install --force-reinstall {packages}'"
            ) from e
        if not callable(factory):
            raise ConfigurationError(
                f"the package {packages} brings it by {found[0].value}, which cannot be called: "
                "ask its author for a factory there"
            )
        made: Factory = factory
        return made

    def init(self, name: str, config_file: str, files: Files = ANYWHERE) -> ICloudProvider | None:
        """Make a provider by the name and the file of its configuration that somebody chose.

        :param config_file: empty: its factory gets None.
        :param files: where that is looked for.
        :return: None: no cloud is wanted, or something else takes care of it.
        :raise ConfigurationError: it cannot be; the one line says why.
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
        except Exception as e:  # a factory is anybody's code
            raise ConfigurationError(f'could not init cloud provider "{name}": {e}') from e
        if provider is None:
            self._log.info("the cloud providers here are: {names}", names=", ".join(self.names()))
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
    """Tell whether the name says that something else takes care of the cloud."""
    return name == EXTERNAL


async def get_instance_provider_id(cloud: ICloudProvider, node: str) -> str:
    """Return a node's provider id, ``<provider>://<instance id>``.

    :raise InstanceNotFound: there is no such node.
    :raise NotImplementedByCloud: this cloud cannot say.
    :raise CloudError: something else went wrong.
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
