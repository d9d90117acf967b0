"""The host cluster through a slow network: requests that arrive late, and events that are received late."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred

from tests.kube.rest.fake_host import FakeHost
from tower.kube.rest.host_api import Object, ObjectList, ResourceType, WatchEvent

T = TypeVar("T")


@define(eq=False)
class LateHost:
    """Passes requests on; those of a held verb and type arrive with `arrive`, after their sender has stopped.

    :ivar held: verbs and plurals of the requests that are late.
    """

    _host: FakeHost
    held: set[tuple[str, str]] = field(factory=set, init=False)
    _late: list[Callable[[], Coroutine[Deferred[Any], Any, Any]]] = field(factory=list, init=False)
    _unseen: set[ResourceType] = field(factory=set, init=False)
    _events: list[Callable[[], None]] = field(factory=list, init=False)

    async def arrive(self) -> None:
        """Do the late request.

        :raise APIError: it is rejected.
        """
        (late,) = self._late
        await late()

    def hide(self, resource: ResourceType) -> None:
        """Deliver no event of this type until `show`."""
        self._unseen.add(resource)

    def show(self) -> None:
        """Deliver the events."""
        self._unseen.clear()
        events, self._events = self._events, []
        for each in events:
            each()

    # HostAPI

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        """Return an object."""
        return await self._host.get(resource, name, namespace)

    async def list(
        self, resource: ResourceType, namespace: str | None = None, label_selector: str = "", **options: Any
    ) -> ObjectList:
        """Return all objects."""
        return await self._host.list(resource, namespace, label_selector, **options)

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """Create an object."""
        return await self._do("create", resource, partial(self._host.create, resource, obj, namespace))

    async def update(
        self, resource: ResourceType, obj: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Replace an object."""
        return await self._host.update(resource, obj, namespace, subresource)

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Object,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """Change an object."""
        doing = partial(self._host.patch, resource, name, patch, namespace, subresource)
        return await self._do("patch", resource, doing)

    async def delete(
        self, resource: ResourceType, name: str, namespace: str | None = None, **preconditions: Any
    ) -> None:
        """Delete an object."""
        doing = partial(self._host.delete, resource, name, namespace, **preconditions)
        await self._do("delete", resource, doing)

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        **options: Any,
    ) -> None:
        """Deliver the changes."""

        def received(event: WatchEvent) -> None:
            if resource in self._unseen:
                self._events.append(lambda: deliver(event))
            else:
                deliver(event)

        await self._host.watch(resource, namespace, resource_version, received, label_selector, **options)

    async def _do(
        self, verb: str, resource: ResourceType, doing: Callable[[], Coroutine[Deferred[Any], Any, T]]
    ) -> T:
        if (verb, resource.plural) in self.held:
            self._late.append(doing)
            await Deferred()
        return await doing()
