"""Writes one change to the host cluster, with preconditions, and reads what conflicts."""

from __future__ import annotations

from attrs import define, field

from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.store.kubernetes.host_change import HostRequest, RecordChange, StoredObject, requests_of
from tower.store.kubernetes.object_codec import ObjectCodec

NOT_FOUND = 404
CONFLICT = 409

#: Attempts to finish a change that conflicts with writes of other programs.
_ATTEMPTS = 10


class FieldsDropped(Exception):
    """The API server accepted a write, but dropped fields of it: its CRD is not Tower's."""


@define(eq=False)
class HostWriter:
    """Writes to one namespace.

    :ivar has_status: whether clusters have a status subresource; corrected by writes.
    """

    _api: HostAPI
    _namespace: str
    has_status: bool = field(default=True, init=False)

    def count(self, codec: ObjectCodec, change: RecordChange, stored: StoredObject | None) -> int:
        """Return the number of requests that *change* takes."""
        return len(self._requests(codec, change, stored))

    async def read(self, codec: ObjectCodec, name: str) -> Object | None:
        """Return the object of the record *name*; None: it does not exist.

        :raise APIError: it cannot be read.
        """
        try:
            return await self._api.get(codec.resource, codec.object_name(name), self._namespace)
        except APIError as e:
            if e.code != NOT_FOUND:
                raise
            return None

    async def begin(
        self, codec: ObjectCodec, change: RecordChange, stored: StoredObject | None, transaction: str = ""
    ) -> Object | None:
        """Send the first request of *change* if the object is still *stored*; return the object after it.

        :param transaction: ID for the object's annotation.
        :raise APIError: nothing was written, unless its code is 0; 404 and 409: the object has changed.
        """
        request = self._requests(codec, change, stored, transaction)[0]
        try:
            return await self._send(codec, change.name, request, stored)
        except APIError as e:
            if e.code != NOT_FOUND or request.verb != "status":
                raise
            if await self.read(codec, change.name) is None:
                raise
        self.has_status = False
        request = self._requests(codec, change, stored, transaction)[0]
        return await self._send(codec, change.name, request, stored)

    async def finish(
        self, codec: ObjectCodec, change: RecordChange, stored: StoredObject | None, transaction: str = ""
    ) -> Object | None:
        """Send the requests that lead from *stored* to the changed object; return it.

        Overwrites concurrent changes of the same fields; an object that was removed meanwhile stays so.

        :raise APIError: not all were sent.
        :raise FieldsDropped: see there.
        """
        obj = None if stored is None else stored.answer
        earlier: HostRequest | None = None
        for _ in range(_ATTEMPTS):
            if (change.value is None or change.uid) and (stored is None or stored.uid != change.uid):
                return obj if change.value is None else None
            requests = self._requests(codec, change, stored, transaction)
            if not requests:
                return obj or await self.read(codec, change.name)
            if requests[0] == earlier:
                if self.has_status or "status" not in earlier.body:
                    break
                self.has_status = True
                continue
            obj, is_sent = await self._try(codec, change.name, requests[0], stored)
            if is_sent and not codec.is_shared:
                return obj
            earlier = requests[0] if is_sent else None
            stored = None if obj is None else StoredObject.of(codec, obj)
        raise FieldsDropped

    async def _try(
        self, codec: ObjectCodec, name: str, request: HostRequest, stored: StoredObject | None
    ) -> tuple[Object | None, bool]:
        """Return the object after *request*, and whether it was accepted; False: the object has changed."""
        try:
            return await self._send(codec, name, request, stored), True
        except APIError as e:
            if e.code not in (NOT_FOUND, CONFLICT):
                raise
            obj = await self.read(codec, name)
            if obj is None and request.verb == "create":
                raise  # its namespace or its CRD is missing
            if obj is not None and e.code == NOT_FOUND and request.verb == "status":
                self.has_status = False
            return obj, False

    def _requests(
        self, codec: ObjectCodec, change: RecordChange, stored: StoredObject | None, transaction: str = ""
    ) -> list[HostRequest]:
        body = None if stored is None else stored.body
        return requests_of(codec, change, body, transaction, has_status=self.has_status)

    async def _send(
        self, codec: ObjectCodec, name: str, request: HostRequest, stored: StoredObject | None
    ) -> Object | None:
        resource, object_name = codec.resource, codec.object_name(name)
        if request.verb == "create":
            return await self._api.create(resource, request.body, self._namespace)
        assert stored is not None
        version = str(stored.version)
        if request.verb == "delete":
            await self._api.delete(
                resource, object_name, self._namespace, uid=stored.uid, resource_version=version
            )
            has_finalizers = bool(stored.body.get("metadata", {}).get("finalizers"))
            return await self.read(codec, name) if has_finalizers else None
        metadata = {**request.body.get("metadata", {}), "resourceVersion": version}
        body = {**request.body, "metadata": metadata}
        if request.verb == "update":
            return await self._api.update(resource, body, self._namespace)
        below = "status" if request.verb == "status" else ""
        obj = await self._api.patch(resource, object_name, body, self._namespace, below)
        is_removed = "deletionTimestamp" in obj["metadata"] and not obj["metadata"].get("finalizers")
        return None if is_removed else obj
