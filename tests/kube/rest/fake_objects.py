"""Stored objects of a `tests.kube.rest.fake_host.FakeHost`, with Kubernetes' rules about metadata."""

from __future__ import annotations

import copy
import itertools
from base64 import b64encode
from collections.abc import Callable

from attrs import define, field

from tests.kube.rest.fake_watches import FakeChange, FakeHistory, Kind
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.timestamps import timestamp

#: Kinds of Kubernetes without a status subresource.
WITHOUT_STATUS = frozenset(("ConfigMap", "EndpointSlice", "Event", "Lease", "Secret"))

#: Metadata that only the server changes.
SERVERS = (
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)

#: Type, namespace and name of an object.
Place = tuple[ResourceType, str | None, str]


def place_of(resource: ResourceType, name: str, namespace: str | None) -> Place:
    """Return the key of an object."""
    return resource, namespace if resource.namespaced else None, name


@define(eq=False)
class FakeObjects:
    """All objects, by type, namespace and name, with one version for all.

    :param now: time of the objects' timestamps, s since the epoch.
    """

    now: Callable[[], float]
    without_status: set[ResourceType]
    items: dict[Place, Object] = field(factory=dict, init=False)
    version: int = field(default=0, init=False)
    history: FakeHistory = field(factory=FakeHistory, init=False)
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1), init=False)

    def number(self) -> int:
        """Return a number that was not used before."""
        return next(self._numbers)

    def has_status(self, resource: ResourceType) -> bool:
        """Return whether the type has a status subresource."""
        return resource.kind not in WITHOUT_STATUS and resource not in self.without_status

    def put(self, place: Place, obj: Object) -> Object:
        """Store *obj* and return a copy; nothing happens if it is equal to the stored one."""
        resource, namespace, name = place
        before = self.items.get(place)
        obj.update(apiVersion=resource.api_version, kind=resource.kind)
        metadata = obj["metadata"] = {**obj["metadata"], "name": name}
        if namespace:
            metadata["namespace"] = namespace
        if resource.kind == "Secret":
            _finish_secret(obj)
        self._set_metadata(resource, obj, before)
        if obj == before:
            return copy.deepcopy(obj)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self._forget(place, obj)
        else:
            self.items[place] = obj
            self._changed("MODIFIED" if before else "ADDED", resource, obj, before)
        return copy.deepcopy(obj)

    def _set_metadata(self, resource: ResourceType, obj: Object, before: Object | None) -> None:
        metadata = obj["metadata"]
        for key in SERVERS:
            metadata.pop(key, None)
            if before is not None and key in before["metadata"]:
                metadata[key] = before["metadata"][key]
        if before is None:
            metadata["uid"] = f"00000000-0000-4000-8000-{self.number():012x}"
            metadata["creationTimestamp"] = timestamp(self.now())
        if "." not in resource.group or resource.group.endswith(".k8s.io"):
            return
        if before is None:
            metadata["generation"] = 1
        elif self._significant(resource, obj) != self._significant(resource, before):
            metadata["generation"] = before["metadata"]["generation"] + 1

    def _significant(self, resource: ResourceType, obj: Object) -> Object:
        """Return the part of a custom object whose changes count as a generation."""
        ignored = ("metadata", "status") if self.has_status(resource) else ("metadata",)
        return {key: value for key, value in obj.items() if key not in ignored}

    def delete(self, place: Place) -> None:
        """Remove an object, or mark it as deleted if it has finalizers."""
        before = self.items[place]
        obj = copy.deepcopy(before)
        metadata = obj["metadata"]
        if not metadata.get("finalizers"):
            self._forget(place, obj)
        elif not metadata.get("deletionTimestamp"):
            metadata.update(deletionTimestamp=timestamp(self.now()), deletionGracePeriodSeconds=0)
            self.items[place] = obj
            self._changed("MODIFIED", place[0], obj, before)

    def _forget(self, place: Place, obj: Object) -> None:
        self._changed("DELETED", place[0], obj, self.items.pop(place))

    def _changed(self, kind: Kind, resource: ResourceType, obj: Object, before: Object | None) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        change = FakeChange(self.version, resource, kind, copy.deepcopy(obj), copy.deepcopy(before))
        self.history.add(change)


def _finish_secret(obj: Object) -> None:
    """Do what the server does to a new or changed Secret."""
    obj.setdefault("type", "Opaque")
    for key, text in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[key] = b64encode(text.encode()).decode()
