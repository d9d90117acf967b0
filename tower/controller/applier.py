"""Writes objects of the host that differ from the wanted ones, and only the differences.

Each write has the version of the object that it is based on: if another program, or a later leader, has
changed the object since, the API server refuses the write, also one that arrives late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from tower.controller.objects.differences import difference, without_removals
from tower.errors import Conflict
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object, ResourceType

_NOT_FOUND = 404


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
        :param current: as known; None: it does not exist.
        :raise APIError: it cannot be written; 409: it is not *current* any more.
        :raise Conflict: it was removed concurrently.
        """
        name = wanted["metadata"]["name"]
        if current is None:
            try:
                return await self._api.create(resource, without_removals(wanted), self.namespace)
            except APIError as e:
                if e.reason != "AlreadyExists":
                    raise
            current = await self.get(resource, name)
            if current is None:
                raise Conflict(f"{resource.kind} {name} was removed concurrently")
        patch = difference(current, wanted)
        if not patch:
            return current
        patch.setdefault("metadata", {})["resourceVersion"] = current["metadata"]["resourceVersion"]
        try:
            return await self._api.patch(resource, name, patch, self.namespace)
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
        return await self._api.create(resource, without_removals(wanted), self.namespace)

    async def delete(self, resource: ResourceType, current: Mapping[str, Any]) -> None:
        """Delete an object, if it exists.

        :raise APIError: it cannot be deleted; 409: it is not *current* any more.
        """
        metadata = current["metadata"]
        try:
            await self._api.delete(
                resource,
                metadata["name"],
                self.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        except APIError as e:
            if e.code != _NOT_FOUND:
                raise
