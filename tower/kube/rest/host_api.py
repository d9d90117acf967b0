"""Interface of the host cluster's API server: objects of all kinds, read, written and watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol
from urllib.parse import quote

from attrs import frozen

#: An object of the API, as JSON.
Object = dict[str, Any]

#: Types of changes, and a bookmark.
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

#: Default time after which the server ends a watch, s.
WATCH_TIME = 300


@frozen
class ResourceType:
    """A type of objects.

    :ivar group: empty for the core group.
    :ivar plural: name in paths.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Value of ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """Plural and group, as in messages and names of CRDs."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None, name: str | None = None, subresource: str = "") -> str:
        """Return the path of an object, or of the list.

        :param namespace: None: all namespaces, or the type has none.
        :param name: None: the list.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "".join(f"/{quote(part, safe='')}" for part in parts)


@frozen
class WatchEvent:
    """A change of an object; a bookmark's object has only its version."""

    type: EventType
    object: Object

    @property
    def resource_version(self) -> str:
        """Version to continue from after this event."""
        version: str = self.object["metadata"]["resourceVersion"]
        return version


@frozen
class ObjectList:
    """All objects of a type at one version.

    :ivar resource_version: version to watch from.
    """

    items: list[Object]
    resource_version: str


class HostAPI(Protocol):
    """The API server of the host cluster.

    Namespaces are ignored for types without them.  Returned objects belong to the caller.  Every method
    raises `tower.kube.client.APIError`: its code is the answer's status, 0 without an answer, after which a
    write may or may not have happened; its reason distinguishes ``AlreadyExists`` from ``Conflict``.
    """

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        """Return an object."""
        ...

    async def list(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        label_selector: str = "",
        *,
        field_selector: str = "",
    ) -> ObjectList:
        """Return all objects, read in pages; starts again once if a page expired.

        :param namespace: None: all namespaces.
        :param field_selector: such as ``metadata.name=tower``.
        """
        ...

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """Create an object and return it as stored.

        :param namespace: None: the object's.
        """
        ...

    async def update(
        self, resource: ResourceType, obj: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Replace an object and return it as stored.

        :param obj: with ``metadata.resourceVersion``: 409 if the stored object has another.
        """
        ...

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Object,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """Change an object by a JSON merge patch (RFC 7396) and return it as stored.

        :param patch: with ``metadata.resourceVersion``: 409 if the stored object has another.
        """
        ...

    async def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object, and its dependents in the background; one with finalizers stays until they end.

        :param uid: with *resource_version*, preconditions: 409 if the stored object has another.
        """
        ...

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        *,
        field_selector: str = "",
        seconds: int = WATCH_TIME,
        opened: Callable[[], None] | None = None,
    ) -> None:
        """Deliver all changes after a version, and bookmarks, until the server ends the watch.

        Cancel the Deferred to stop.  *deliver* must not raise.

        :param seconds: after which the server ends it.
        :param opened: called once when the server accepted the watch.
        :raise APIError: 410: the version is too old, list again; also during the watch.
        """
        ...
