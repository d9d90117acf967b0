"""Writes objects of the host that differ from the wanted ones, and only the differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from tower.controller.objects.differences import difference, without_removals
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object, ResourceType

_NOT_FOUND, _CONFLICT = 404, 409


@frozen
class Applier:
    """Writes to one namespace.

    :ivar namespace: ignored for types without namespaces.
    """

    _api: HostAPI
    namespace: str

    async def get(self, resource: ResourceType, name: str) -> Object | None:
        """Return an object, or None if it does not exist.

        :raise APIError: it cannot be read.
        """
        try:
            return await self._api.get(resource, name, self.namespace)
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
        return None

    async def apply(
        self, resource: ResourceType, wanted: Mapping[str, Any], current: Object | None
    ) -> Object:
        """Create or change an object, if it differs; return it as stored.

        :param wanted: see `difference`.
        :param current: as known; None: it does not exist.  A wrong guess costs requests, nothing else.
        :raise APIError: it cannot be written.
        """
        name = wanted["metadata"]["name"]
        if current is None:
            try:
                return await self._api.create(resource, without_removals(wanted), self.namespace)
            except APIError as e:
                if e.reason != "AlreadyExists":
                    raise
            current = await self._api.get(resource, name, self.namespace)
        patch = difference(current, wanted)
        if not patch:
            return current
        try:
            return await self._api.patch(resource, name, patch, self.namespace)
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
        return await self._api.create(resource, without_removals(wanted), self.namespace)

    async def delete(self, resource: ResourceType, current: Mapping[str, Any]) -> bool:
        """Delete an object, but no later one of the same name; return whether it existed.

        :raise APIError: it cannot be deleted.
        """
        metadata = current["metadata"]
        try:
            await self._api.delete(resource, metadata["name"], self.namespace, uid=metadata["uid"])
        except APIError as e:
            if e.code not in (_NOT_FOUND, _CONFLICT):
                raise
            return False
        return True
