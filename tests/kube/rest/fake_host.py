"""An API server in memory: `FakeHost` implements `tower.kube.rest.host_api.HostAPI`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from tests.kube.rest.fake_objects import FakeObjects, Place, place_of
from tests.kube.rest.fake_watches import FakeSelection, FakeWatch
from tower.escaping import reported
from tower.kube.client import APIError
from tower.kube.rest.host_api import WATCH_TIME, Object, ObjectList, ResourceType, WatchEvent
from tower.kube.rest.well_known import NAMESPACES
from tower.web.api.writes.cluster_object import merge

T = TypeVar("T")

#: Called with the verb, the type and the object before each write, which it may change or reject.
Admission = Callable[[str, ResourceType, Object], None]

#: Kinds of Kubernetes that may be updated without a version.
UNCONDITIONAL = frozenset(
    ("ConfigMap", "EndpointSlice", "Event", "Namespace", "Node", "Pod", "Secret", "Service")
)

#: Time of the first object, s since the epoch.
START = 1_800_000_000
TIMEOUT = 15.0

_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}


@define(eq=False)
class PlannedFailure:
    """The next requests fail."""

    error: tuple[int, str, float]
    verbs: frozenset[str]
    plural: str
    is_applied: bool
    left: int


@define(eq=False)
class FakeHost:
    """The host's API server: all writes in one order, with Kubernetes' rules about versions.

    Every answer is immediate and watches deliver before a write returns, unless held or frozen.

    :param clock: with one, requests that a frozen server does not answer fail after `TIMEOUT`; also the
        time of the objects' timestamps.
    :ivar requests: verb, plural and name (empty for lists) of every request.
    :ivar missing: types that the server does not have, as if their CRDs were not installed.
    :ivar without_status: types without a status subresource, in addition to those of Kubernetes.
    :ivar admission: called before each write.
    """

    clock: IReactorTime | None = None
    namespaces: Iterable[str] = ("default", "kube-system", "kubesphere-system")
    requests: list[tuple[str, str, str]] = field(factory=list, init=False)
    missing: set[ResourceType] = field(factory=set, init=False)
    without_status: set[ResourceType] = field(factory=set, init=False)
    admission: list[Admission] = field(factory=list, init=False)
    _stored: FakeObjects = field(init=False)
    _failures: list[PlannedFailure] = field(factory=list, init=False)
    _frozen: list[Deferred[None]] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._stored = FakeObjects(self._now, self.without_status)
        for name in self.namespaces:
            self.put(NAMESPACES, {"metadata": {"name": name}})

    # Controls and views of the test

    @property
    def version(self) -> int:
        """Version of the last change."""
        return self._stored.version

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """Requests that are writes."""
        return [request for request in self.requests if request[0] not in ("get", "list", "watch")]

    @property
    def watches(self) -> list[FakeWatch]:
        """Current watches."""
        return self._stored.history.watches

    def objects(self, resource: ResourceType, namespace: str | None = None) -> list[Object]:
        """Return copies of the stored objects, by namespace and name; no request is counted."""
        places = sorted(
            (place for place in self._stored.items if place[0] == resource),
            key=lambda it: (it[1] or "", it[2]),
        )
        return [
            copy.deepcopy(self._stored.items[it])
            for it in places
            if it[1] is None or namespace in (None, it[1])
        ]

    def object(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object | None:
        """Return a copy of a stored object, or None."""
        return copy.deepcopy(self._stored.items.get(place_of(resource, name, namespace)))

    def put(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """Create or replace an object with its status, as another client would; no request is counted."""
        obj = copy.deepcopy(obj)
        namespace = namespace or obj["metadata"].get("namespace")
        place = place_of(resource, obj["metadata"]["name"], namespace)
        return self._stored.put(place, obj)

    def remove(self, resource: ResourceType, name: str, namespace: str | None = None) -> None:
        """Delete an object, as another client would; one with finalizers only gets its deletionTimestamp."""
        self._stored.delete(place_of(resource, name, namespace))

    def fail_next(
        self,
        code: int,
        message: str = "planned failure",
        *,
        verbs: Iterable[str] = (),
        plural: str = "",
        count: int = 1,
        retry_after: float = 0,
        applied: bool = False,
    ) -> None:
        """Fail the next requests with *code*; 0: without an answer.

        :param verbs: of these requests only, such as ``update``; empty: any.
        :param applied: a write happens although it fails.
        """
        error = (code, message, retry_after)
        self._failures.append(PlannedFailure(error, frozenset(verbs), plural, applied, count))

    def freeze(self) -> None:
        """Answer nothing and deliver no event until `thaw`."""
        if self._frozen is None:
            self._frozen = []
            self._stored.history.hold()

    def thaw(self) -> None:
        """Do the requests that are still waiting, and deliver held events."""
        waiting, self._frozen = self._frozen or [], None
        self._stored.history.release()
        for each in waiting:
            if not each.called:
                each.callback(None)

    def hold_events(self) -> None:
        """Deliver no events until `release_events`; requests are answered."""
        self._stored.history.hold()

    def release_events(self) -> None:
        """Deliver the held events."""
        self._stored.history.release()

    def compact(self) -> None:
        """Forget all past changes: a watch from an earlier version fails with 410."""
        self._stored.history.compact(self._stored.version)

    def bookmark(self) -> None:
        """Send a bookmark to each watch."""
        self._stored.history.bookmark(self._stored.version)

    def end_watches(self, code: int | None = None) -> None:
        """End all watches, as after their time, or with an error: 410 for an expired one, 0 for a cut."""
        reason = "Expired" if code == 410 else ""
        error = None if code is None else APIError("GET", "/watch", code, "watch ended", reason=reason)
        self._stored.history.end(error)

    # HostAPI

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> Object:
        """Return an object."""
        return await self._do(
            "get", resource, name, namespace, lambda: self._found(resource, name, namespace)
        )

    async def list(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        label_selector: str = "",
        *,
        field_selector: str = "",
    ) -> ObjectList:
        """Return all objects."""
        selection = FakeSelection(namespace, label_selector, field_selector)

        def listed() -> ObjectList:
            items = [item for item in self.objects(resource, namespace) if selection.matches(item)]
            return ObjectList(items, str(self._stored.version))

        return await self._do("list", resource, "", namespace, listed)

    async def create(self, resource: ResourceType, obj: Object, namespace: str | None = None) -> Object:
        """Create an object."""
        obj = copy.deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        namespace = namespace or metadata.get("namespace")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self._stored.number():05x}"
        name = metadata.get("name", "")

        def created() -> Object:
            place = self._checked(resource, obj, name, namespace)
            if place in self._stored.items:
                text = f'{resource.name} "{name}" already exists'
                raise self._error("create", place, 409, text, "AlreadyExists")
            if metadata.get("resourceVersion"):
                text = "resourceVersion should not be set on objects to be created"
                raise self._error("create", place, 500, text, "InternalError")
            if self._stored.has_status(resource):
                obj.pop("status", None)
            for key in ("uid", "deletionTimestamp", "generation"):
                metadata.pop(key, None)
            self._admit("create", resource, obj)
            return self._stored.put(place, obj)

        return await self._do("create", resource, name, namespace, created)

    async def update(
        self, resource: ResourceType, obj: Object, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Replace an object, or its status."""
        obj = copy.deepcopy(obj)
        name, namespace = obj["metadata"]["name"], namespace or obj["metadata"].get("namespace")

        def updated() -> Object:
            before = self._found(resource, name, namespace)
            place = self._checked(resource, obj, name, namespace)
            if not obj["metadata"].get("resourceVersion") and resource.kind not in UNCONDITIONAL:
                text = f"{name}: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
                raise self._error("update", place, 422, text, "Invalid")
            return self._replace("update", place, obj, before, subresource)

        return await self._do("update", resource, name, namespace, updated)

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Object,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """Change an object, or its status."""

        def patched() -> Object:
            before = self._found(resource, name, namespace)
            after = copy.deepcopy(merge(before, patch))
            return self._replace("patch", place_of(resource, name, namespace), after, before, subresource)

        return await self._do("patch", resource, name, namespace, patched)

    async def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object, or mark it as deleted."""

        def deleted() -> None:
            place = place_of(resource, name, namespace)
            metadata = self._found(resource, name, namespace)["metadata"]
            for key, wanted in (("uid", uid), ("resourceVersion", resource_version)):
                if wanted is not None and metadata[key] != wanted:
                    text = f"the precondition {key} {wanted} does not hold: it is {metadata[key]}"
                    raise self._error("delete", place, 409, text, "Conflict")
            self._stored.delete(place)

        await self._do("delete", resource, name, namespace, deleted)

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
        """Deliver the changes after a version until `end_watches`."""
        await self._do("watch", resource, "", namespace, lambda: None)
        selection = FakeSelection(namespace, label_selector, field_selector)
        await self._stored.history.watch(resource, selection, int(resource_version), deliver, opened)

    # Inside

    def _now(self) -> float:
        return START + (self.clock.seconds() if self.clock is not None else 0)

    async def _do(
        self, verb: str, resource: ResourceType, name: str, namespace: str | None, doing: Callable[[], T]
    ) -> T:
        """Do a request, unless it is to fail."""
        self.requests.append((verb, resource.plural, name))
        place = (resource, namespace, name)
        if self._frozen is not None:
            waiting: Deferred[None] = Deferred()
            self._frozen.append(waiting)
            await self._limited(verb, place, waiting)
        failure = self._planned(verb, resource)
        if failure is not None:
            if failure.is_applied:
                doing()
            code, message, retry_after = failure.error
            raise self._error(verb, place, code, message, retry_after=retry_after)
        if resource in self.missing:
            raise self._error(verb, place, 404, "404 page not found")
        return doing()

    async def _limited(self, verb: str, place: Place, waiting: Deferred[None]) -> None:
        if self.clock is not None:
            waiting.addTimeout(TIMEOUT, self.clock)
        try:
            await waiting
        except DeferredTimeout:
            raise self._error(verb, place, 0, f"it took longer than {TIMEOUT:g} s") from None

    def _planned(self, verb: str, resource: ResourceType) -> PlannedFailure | None:
        for failure in self._failures:
            if failure.verbs and verb not in failure.verbs:
                continue
            if failure.plural and failure.plural != resource.plural:
                continue
            failure.left -= 1
            if not failure.left:
                self._failures.remove(failure)
            return failure
        return None

    def _error(
        self, verb: str, place: Place, code: int, text: str, reason: str = "", retry_after: float = 0
    ) -> APIError:
        resource, namespace, name = place
        path = resource.path(namespace, name or None)
        method = _METHODS.get(verb, "DELETE")
        detail = reported("the API server", text) if code else text  # as `tower.kube.client` does
        return APIError(method, path, code, detail, reason=reason, retry_after=retry_after)

    def _found(self, resource: ResourceType, name: str, namespace: str | None) -> Object:
        place = place_of(resource, name, namespace)
        if place not in self._stored.items:
            raise self._error("get", place, 404, f'{resource.name} "{name}" not found', "NotFound")
        return copy.deepcopy(self._stored.items[place])

    def _checked(self, resource: ResourceType, obj: Object, name: str, namespace: str | None) -> Place:
        """Return the key of an object to write; raise the server's error if it is invalid."""
        place = place_of(resource, name, namespace)
        if (
            obj.get("apiVersion", resource.api_version) != resource.api_version
            or obj.get("kind", resource.kind) != resource.kind
        ):
            raise self._error(
                "update", place, 400, "the API version or kind is not that of the path", "BadRequest"
            )
        if not name:
            raise self._error("update", place, 422, "name or generateName is required", "Invalid")
        if resource.namespaced:
            if not namespace or obj["metadata"].get("namespace", namespace) != namespace:
                raise self._error(
                    "update", place, 400, "the namespace is not that of the request", "BadRequest"
                )
            if (NAMESPACES, None, namespace) not in self._stored.items:
                raise self._error("update", place, 404, f'namespaces "{namespace}" not found', "NotFound")
        return place

    def _admit(self, verb: str, resource: ResourceType, obj: Object) -> None:
        for check in self.admission:
            check(verb, resource, obj)

    def _replace(self, verb: str, place: Place, obj: Object, before: Object, subresource: str) -> Object:
        """Store *obj* or its status in place of *before*."""
        old, new = before["metadata"], obj["metadata"]
        for key in ("uid", "resourceVersion"):
            if new.get(key) and new[key] != old[key]:
                text = (
                    f'Operation cannot be fulfilled on {place[0].name} "{place[2]}": its {key} is {old[key]}'
                )
                raise self._error(verb, place, 409, text, "Conflict")
        if subresource == "status":
            if not self._stored.has_status(place[0]):
                raise self._error(
                    verb, place, 404, "the server could not find the requested resource", "NotFound"
                )
            obj = {**before, "status": obj.get("status")}
            if obj["status"] is None:
                del obj["status"]
        elif self._stored.has_status(place[0]):
            obj = {key: value for key, value in obj.items() if key != "status"}
            if "status" in before:
                obj["status"] = before["status"]
        self._admit(verb, place[0], obj)
        return self._stored.put(place, obj)
