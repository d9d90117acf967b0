"""What providers have in common: a session, made when there is a reactor, and what is built on it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from zope.interface import implementer

from tower.cloud.errors import CloudError
from tower.cloud.interfaces import ICloudProvider, IInstances, IZones
from tower.cloud.session import CloudSession

Machines = TypeVar("Machines", bound=IInstances)
Places = TypeVar("Places", bound=IZones)


@implementer(ICloudProvider)
class Provider(Generic[Machines, Places]):
    """A cloud that knows machines and zones, and makes neither clusters nor routes nor load balancers.

    :cvar name: the provider's.
    """

    name: str

    def __init__(self) -> None:
        self._session: CloudSession | None = None
        self._parts: tuple[Machines, Places] | None = None

    def session(self, reactor: Any) -> CloudSession:
        """Return a session of this configuration's.  Override."""
        raise NotImplementedError

    def compose(self, reactor: Any, session: CloudSession) -> tuple[Machines, Places]:
        """Return what knows the machines, and what knows the zones.  Override."""
        raise NotImplementedError

    def provider_name(self) -> str:
        """See `ICloudProvider`."""
        return self.name

    def initialize(self, reactor: Any) -> None:
        """See `ICloudProvider`."""
        self._session = session = self.session(reactor)
        self._parts = self.compose(reactor, session)

    def stop(self) -> None:
        """See `ICloudProvider`."""
        if self._session is not None:
            self._session.stop()

    @property
    def is_initialized(self) -> bool:
        """Whether it can be asked."""
        return self._parts is not None

    def _ready(self) -> tuple[Machines, Places]:
        if self._parts is None:
            raise CloudError("the provider is not initialized")
        return self._parts

    def instances(self) -> Machines:
        """See `ICloudProvider`."""
        return self._ready()[0]

    def zones(self) -> Places:
        """See `ICloudProvider`."""
        return self._ready()[1]

    def clusters(self) -> None:
        """Not supported."""

    def routes(self) -> None:
        """Not supported."""

    def load_balancer(self) -> None:
        """Not supported."""

    def has_cluster_id(self) -> bool:
        """See `ICloudProvider`.  Override if it need not be known."""
        return True
