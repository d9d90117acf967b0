"""The group `rbac.authorization.k8s.io` of Tower's own API: roles and bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field
from twisted.internet.interfaces import IReactorTime

from tower.clusters.policies.rbac_object import API_VERSION, RBAC_KINDS, RbacKind, RbacObject
from tower.clusters.policies.rbac_objects import RbacObjects, RbacObjectsOfKind
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.discovery import RBAC
from tower.web.api.pages import check_version, paged
from tower.web.api.policies.rbac_form import RbacForm, show_rbac
from tower.web.api.selectors import Fields, Selection
from tower.web.api.table import TABLES, Column, Object, age_column, name_column, table
from tower.web.api.watch import WATCH_HEADERS, Watching, WatchLimits
from tower.web.api.writes.create_right import CreateRight
from tower.web.api.writes.object_writer import ObjectWriter
from tower.web.outcome import Outcome, Response, StreamingResponse

_FIELDS: Fields = {
    "metadata.name": lambda item: str(item["metadata"]["name"]),
    "metadata.namespace": lambda item: str(item["metadata"].get("namespace", "")),
}


class RbacApi:
    """The group.

    :param version: returns the store's resource version.
    """

    def __init__(
        self,
        objects: RbacObjects,
        rights: OwnRights,
        version: Callable[[], int],
        clock: IReactorTime,
        limits: WatchLimits,
    ) -> None:
        self._kinds = {
            kind.plural: _KindApi(
                kind,
                objects.of(kind),
                version,
                clock,
                RbacForm(kind, objects, rights.rbac, rights),
                limits,
                CreateRight(rights, RBAC, kind.plural),
            )
            for kind in RBAC_KINDS
        }

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match below:
            case ("namespaces", namespace, plural, *rest) if namespace:
                handler = self._kinds.get(plural)
                if handler is not None and handler.is_namespaced:
                    return await handler.answer(call, namespace, tuple(rest))
            case (plural, *rest) if plural in self._kinds:
                handler = self._kinds[plural]
                if not (handler.is_namespaced and rest):
                    return await handler.answer(call, "", tuple(rest))
        raise not_found()


@define(eq=False, repr=False)
class _KindApi:
    """One of its resources."""

    _kind: RbacKind
    _objects: RbacObjectsOfKind
    _version: Callable[[], int]
    _clock: IReactorTime
    _form: RbacForm
    _limits: WatchLimits
    _create_right: CreateRight
    _watching: Watching[RbacObject] = field(init=False)
    _writer: ObjectWriter[RbacObject] = field(init=False)

    def __attrs_post_init__(self) -> None:
        kind = (API_VERSION, self._kind.name)
        self._writer = ObjectWriter(self._objects, self._clock, self._form, self._shown, self._create_right)
        self._watching = Watching(self._objects, self._version, show_rbac, self._clock, self._limits, kind)

    @property
    def is_namespaced(self) -> bool:
        """Whether its objects have a namespace."""
        return self._kind.is_namespaced

    async def answer(self, call: Call, namespace: str, below: tuple[str, ...]) -> Outcome:
        """Answer a request; *below* are the path segments after the plural name."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                return self._list_or_watch(call, namespace)
            case "POST", () if bool(namespace) == self.is_namespaced:
                return await self._writer.create(call, namespace)
            case "DELETE", () if bool(namespace) == self.is_namespaced:
                return await self._delete_all(call, namespace)
            case _, (name,) if name:
                path = f"{namespace}/{name}" if namespace else name
                return await self._one(call, path)
            case _, ():
                raise method_not_allowed(call)
        raise not_found()

    async def _one(self, call: Call, path: str) -> Outcome:
        match call.method:
            case "GET" | "HEAD":
                check_version(call, self._version(), self._objects.check)
                item = show_rbac(self._objects.require(path))
                if call.table:
                    version = {"resourceVersion": item["metadata"]["resourceVersion"]}
                    return self._table(call, [item], version)
                return Response.of_json(item)
            case "DELETE":
                return await self._writer.delete(call, path)
            case "PUT" | "PATCH":
                return await self._writer.change(call, path)
        raise method_not_allowed(call)

    async def _delete_all(self, call: Call, namespace: str) -> Outcome:
        selection = Selection(call.query, _FIELDS)
        found = [
            item
            for item in self._objects.list()
            if item.namespace == namespace and selection.matches(show_rbac(item))
        ]
        await self._writer.delete_all(call, [item.name for item in found])
        return self._listed([show_rbac(item) for item in found], {})

    def _list_or_watch(self, call: Call, namespace: str) -> Outcome:
        if namespace:
            extra = call.query.get("fieldSelector", "")
            selector = f"metadata.namespace={namespace}" + (f",{extra}" if extra else "")
            call = evolve(call, query={**call.query, "fieldSelector": selector})
        selection = Selection(call.query, _FIELDS)
        if call.flag("watch"):
            return self._watch(call, selection)
        items = [item for item in map(show_rbac, self._objects.list()) if selection.matches(item)]
        items, metadata = paged(call, items, self._version(), self._objects.check)
        return self._table(call, items, metadata) if call.table else self._listed(items, metadata)

    def _listed(self, items: list[Object], metadata: dict[str, Any]) -> Response:
        kind = f"{self._kind.name}List"
        value = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "items": items}
        return Response.of_json(value)

    def _watch(self, call: Call, selection: Selection) -> StreamingResponse:
        media = call.table

        def form(item: Object) -> Object:
            now = self._clock.seconds()
            return table(self._columns, [item], now, media=media, include=call.include)

        start = self._watching.watch(call.query, selection, form if media else None, bookmarks=not media)
        return StreamingResponse(start, 200, WATCH_HEADERS)

    def _table(self, call: Call, items: list[Object], metadata: dict[str, Any]) -> Response:
        now, media, include = self._clock.seconds(), call.table, call.include
        value = table(self._columns, items, now, media=media, include=include, metadata=metadata)
        return Response.of_json(value)

    def _shown(self, call: Call, item: RbacObject) -> Object:
        value = show_rbac(item)
        if call.table in TABLES:
            return table(self._columns, [value], self._clock.seconds(), media=call.table)
        return value

    @property
    def _columns(self) -> tuple[Column, ...]:
        return BINDING_COLUMNS if self._kind.is_binding else ROLE_COLUMNS


def _created(item: Object, _now: float) -> str:
    return str(item["metadata"]["creationTimestamp"])


def _role(item: Object, _now: float) -> str:
    return f"{item['roleRef']['kind']}/{item['roleRef']['name']}"


def _subjects(item: Object, kind: str) -> str:
    found = [each for each in item.get("subjects") or () if each["kind"] == kind]
    return ", ".join(
        f"{each['namespace']}/{each['name']}" if "namespace" in each else each["name"] for each in found
    )


ROLE_COLUMNS = (
    name_column("Name of the role."),
    Column("Created At", "Time when the role was created.", _created, format="date-time"),
)
BINDING_COLUMNS = (
    name_column("Name of the binding."),
    Column("Role", "The role that it grants.", _role),
    age_column(),
    Column("Users", "Users that it grants the role.", lambda item, _: _subjects(item, "User"), priority=1),
    Column("Groups", "Groups that it grants the role.", lambda item, _: _subjects(item, "Group"), priority=1),
    Column(
        "ServiceAccounts",
        "Service accounts that it grants the role.",
        lambda item, _: _subjects(item, "ServiceAccount"),
        priority=1,
    ),
)
