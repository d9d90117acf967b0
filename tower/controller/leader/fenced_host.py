"""The API server as a leader uses it: without writes once it no longer leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define

from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object, ObjectList, ResourceType, WatchEvent


@define(eq=False)
class FencedHost:
    """Passes requests on; a write without leadership fails with `APIError` of code 0, and is not sent.

    :param may_write: returns whether this process leads now.
    :param reason: returns why it must not write.
    """

    _api: HostAPI
    _may_write: Callable[[], bool]
    _reason: Callable[[], str] = lambda: "this proxy is not the leader"

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        """See `HostAPI`."""
        return await self._api.get(resource, name, namespace)

    async def list(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        label_selector: str = "",
        **options: Any,
    ) -> ObjectList:
        """See `HostAPI`."""
        return await self._api.list(resource, namespace, label_selector, **options)

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """See `HostAPI`."""
        self._check("POST", resource, namespace)
        return await self._api.create(resource, obj, namespace)

    async def update(
        self, resource: ResourceType, obj: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """See `HostAPI`."""
        self._check("PUT", resource, namespace, obj["metadata"]["name"])
        return await self._api.update(resource, obj, namespace, subresource)

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Object,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """See `HostAPI`."""
        self._check("PATCH", resource, namespace, name)
        return await self._api.patch(resource, name, patch, namespace, subresource)

    async def delete(
        self, resource: ResourceType, name: str, namespace: str | None = None, **preconditions: Any
    ) -> None:
        """See `HostAPI`."""
        self._check("DELETE", resource, namespace, name)
        await self._api.delete(resource, name, namespace, **preconditions)

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        **options: Any,
    ) -> None:
        """See `HostAPI`."""
        await self._api.watch(resource, namespace, resource_version, deliver, label_selector, **options)

    def _check(
        self, method: str, resource: ResourceType, namespace: str | None, name: str | None = None
    ) -> None:
        if not self._may_write():
            raise APIError(method, resource.path(namespace, name), 0, self._reason())
