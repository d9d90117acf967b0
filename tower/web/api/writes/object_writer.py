"""Writes to resources whose objects the API stores unchanged: create, update, patch, apply and delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from tower.errors import Conflict, Invalid
from tower.kube.access.protobuf import PROTOBUF
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp
from tower.web.api.calls.call import Call
from tower.web.api.calls.media_types import APPLY_PATCH
from tower.web.api.discovery import GROUP
from tower.web.api.fields.managers import (
    ManagerKey,
    Managers,
    after_update,
    apply,
    read_managers,
    show_managers,
)
from tower.web.api.objects import delete_response
from tower.web.api.table import Object
from tower.web.api.writes.cluster_object import strings_in
from tower.web.api.writes.create_right import CreateRight
from tower.web.api.writes.object_form import ObjectForm, ObjectStore, T
from tower.web.api.writes.requests import (
    DeleteOptions,
    read_delete_options,
    read_patch,
    require_name,
    version_in,
    write_response,
)
from tower.web.outcome import Response

#: Total size limit of labels and annotations, characters (Kubernetes' limit for annotations).
METADATA_LIMIT = 256 * 1024

_COMMON = ("apiVersion", "kind", "metadata")


@frozen(eq=False, repr=False)
class ObjectWriter(Generic[T]):
    """Writes objects for the API.

    :param shown: returns an object as a request wants it, perhaps as a table.
    """

    _objects: ObjectStore[T]
    _clock: IReactorTime
    _form: ObjectForm[T]
    _shown: Callable[[Call, T], Object]
    _create_right: CreateRight

    async def create(self, call: Call, namespace: str = "") -> Response:
        """Add an object."""
        call.check_write_options()
        value = self._checked(await self._read(call), namespace)
        item = self._new(value, namespace)
        managers = after_update(
            {}, self._writable(item), self._form.facts.schema, {}, self._manager(call), self._now()
        )
        return await self._add(call, self._managed(item, managers))

    async def change(self, call: Call, path: str) -> Response:
        """Update or patch an object."""
        call.check_write_options()
        if call.method == "PUT":
            return await self._put(call, path)
        if call.media == APPLY_PATCH:
            return await self._apply(call, path)
        return await self._patch(call, path)

    async def delete(self, call: Call, path: str) -> Response:
        """Remove an object at once."""
        return await self._delete(path, read_delete_options(call, await call.read()))

    async def delete_all(self, call: Call, paths: Iterable[str]) -> None:
        """Remove several objects at once; the options of the request count for each."""
        options = read_delete_options(call, await call.read())
        for path in paths:
            await self._delete(path, options)

    async def _delete(self, path: str, options: DeleteOptions) -> Response:
        name = _name(path)

        def check(item: T) -> None:
            options.check(name, item.uid, item.resource_version, self._form.facts.what)

        if not options.dry_run:
            removed = await self._objects.remove(path, check)
            return self._removed(name, removed)
        old = self._objects.require(path)
        check(old)
        return with_warnings(self._removed(name, old), await self._form.preview(old, None))

    def _removed(self, name: str, item: T | None) -> Response:
        uid = {} if item is None else {"uid": item.uid}
        return delete_response(self._form.facts.plural, name, group=self._form.facts.group, **uid)

    async def _read(self, call: Call) -> dict[str, Any]:
        """Return the object in the body; clients know Kubernetes' own kinds in protobuf, too."""
        return await call.read(*([PROTOBUF] if self._form.facts.has_strategic else []))

    async def _put(self, call: Call, path: str) -> Response:
        value = self._checked(await self._read(call), _namespace(path))
        require_name(value, _name(path))
        version = version_in(value)
        if version is None and self._form.facts.group == GROUP:
            raise StatusError(422, "metadata.resourceVersion: must be specified for an update")
        return await self._change(call, path, lambda old: self._replaced(call, old, value), version)

    async def _patch(self, call: Call, path: str) -> Response:
        if "force" in call.query:
            raise StatusError(422, "force: only for apply patches")
        namespace = _namespace(path)
        patch = await read_patch(
            call,
            lambda _, value: (self._checked(value, namespace), []),
            lambda _: self._objects.changed_meanwhile(path),
            has_strategic=self._form.facts.has_strategic,
        )

        def edit(old: T) -> T:
            return self._replaced(call, old, patch.result(self._form.show(old))[0])

        return await self._change(call, path, edit, patch.version)

    async def _apply(self, call: Call, path: str) -> Response:
        if not call.query.get("fieldManager"):
            raise StatusError(422, "fieldManager: required for an apply patch")
        config = self._checked(await call.read(APPLY_PATCH), _namespace(path))
        require_name(config, _name(path))
        if config["metadata"].get("managedFields"):
            raise StatusError(400, "metadata.managedFields must be nil")
        version, key = version_in(config), ManagerKey("Apply", call.manager)
        wanted, schema = self._settings(config), self._form.facts.schema
        force, now = call.flag("force"), self._now()
        if self._objects.get(path) is None:
            if version is not None or config["metadata"].get("uid"):
                raise self._objects.not_found(path)
            self._create_right.check(call, path)
            applied = apply({}, wanted, schema, {}, key, now, force=force)
            return await self._add(call, self._managed(self._new(config, _namespace(path)), applied.managers))

        def edit(old: T) -> T:
            managers = read_managers(old.managed)
            result = apply(self._writable(old), wanted, schema, managers, key, now, force=force)
            metadata = {**result.value.get("metadata", {}), "uid": config["metadata"].get("uid")}
            return self._managed(self._edited(old, {**result.value, "metadata": metadata}), result.managers)

        return await self._change(call, path, edit, version)

    async def _add(self, call: Call, item: T) -> Response:
        form = self._form
        form.check(call, None, item)
        warnings = form.warnings(item)
        if not call.dry_run:
            item = await self._objects.add(item)
        elif self._objects.get(item.name) is not None:
            raise self._objects.exists(item.name)
        else:
            warnings += await form.preview(None, item)
        return write_response(self._shown(call, item), 201, warnings)

    async def _change(self, call: Call, path: str, edit: Callable[[T], T], version: int | None) -> Response:
        form = self._form

        def checked(old: T) -> T:
            new = form.settled(old, edit(old))
            form.check(call, old, new)
            return new

        old = self._objects.require(path)
        if not call.dry_run:
            item = await self._objects.change(path, checked, version)
            return write_response(self._shown(call, item), 200, form.warnings(item))
        if version not in (None, old.resource_version):
            raise self._objects.changed_meanwhile(path)
        item = checked(old)
        warnings = form.warnings(item) + await form.preview(old, item)
        return write_response(self._shown(call, item), 200, warnings)

    def _replaced(self, call: Call, old: T, value: Mapping[str, Any]) -> T:
        """Return *old* as the complete object *value* describes it."""
        new = self._edited(old, value)
        entries = value.get("metadata", {}).get("managedFields")
        if entries == [{}]:  # documented: forget all managers
            return self._form.with_parts(new, managed=())
        managers: Managers = read_managers(old.managed)
        if managers:
            managers = after_update(
                self._writable(old),
                self._writable(new),
                self._form.facts.schema,
                managers,
                self._manager(call),
                self._now(),
            )
        return self._managed(new, managers)

    def _managed(self, item: T, managers: Managers) -> T:
        return self._form.with_parts(
            item, managed=tuple(show_managers(managers, self._form.facts.api_version))
        )

    def _new(self, value: Mapping[str, Any], namespace: str) -> T:
        metadata = value.get("metadata") or {}
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            raise Invalid(
                f"metadata.name: required: a name for the {self._form.facts.what}, such as 'developers'"
            )
        item = self._form.new(name, namespace, value)
        return self._with_metadata(item, metadata)

    def _manager(self, call: Call) -> ManagerKey:
        return ManagerKey("Update", call.manager)

    def _now(self) -> str:
        return timestamp(self._clock.seconds())

    def _checked(self, value: dict[str, Any], namespace: str) -> dict[str, Any]:
        """Return the object *value* without its read-only parts.

        Unknown fields are rejected even if the client asks to ignore them: a misspelled field may be a limit.

        :raise TowerError: it is another kind of object, or has an unknown field.
        """
        form = self._form
        for key, right in (("apiVersion", form.facts.api_version), ("kind", form.facts.kind)):
            if value.get(key, right) != right:
                raise StatusError(400, f"{key} {value[key]!r}: must be {right}")
        fields = {*_COMMON, *form.facts.fields}
        if unknown := sorted(map(str, set(value) - fields - {"status"})):
            raise Invalid(f"{unknown[0]}: unknown; the fields are {', '.join(sorted(fields))}")
        metadata = value.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise Invalid("metadata: must be an object")
        for key in ("finalizers", "ownerReferences"):
            if metadata and metadata.get(key):
                raise Invalid(
                    f"metadata.{key}: not supported for {form.facts.what_all}, which are removed at once: "
                    "omit it"
                )
        given = (metadata or {}).get("namespace") or namespace
        if given != namespace:
            raise StatusError(
                400,
                "the namespace of the provided object does not match the namespace sent on the request"
                if namespace
                else f"metadata.namespace: {given!r}: {form.facts.what_all} have no namespace: omit it",
            )
        return {key: part for key, part in value.items() if key != "status"}

    def _edited(self, old: T, value: Mapping[str, Any]) -> T:
        """Return *old* with the settings of the object *value*."""
        metadata = value.get("metadata") or {}
        uid = metadata.get("uid") or old.uid
        if uid != old.uid:
            raise Conflict(
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}: "
                f"{self._form.facts.what} {_name(old.name)} was removed and added again"
            )
        return self._with_metadata(self._form.edited(old, value), metadata)

    def _with_metadata(self, item: T, metadata: Mapping[str, Any]) -> T:
        labels, annotations = strings_in(metadata, "labels"), strings_in(metadata, "annotations")
        size = sum(len(key) + len(text) for key, text in (*labels.items(), *annotations.items()))
        if size > METADATA_LIMIT:
            raise Invalid(f"metadata: labels and annotations exceed {METADATA_LIMIT} characters")
        return self._form.with_parts(item, labels=labels, annotations=annotations)

    def _writable(self, item: T) -> dict[str, Any]:
        """Return the object without its read-only fields."""
        metadata = {
            name: dict(part)
            for name, part in (("labels", item.labels), ("annotations", item.annotations))
            if part
        }
        return {"metadata": metadata, **self._form.body(item)}

    def _settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of an applied *config* that can be owned."""
        metadata = config.get("metadata") or {}
        kept = {name: metadata[name] for name in ("labels", "annotations") if name in metadata}
        return {"metadata": kept, **{key: config[key] for key in self._form.facts.fields if config.get(key)}}


def with_warnings(answer: Response, warnings: list[str]) -> Response:
    """Return *answer* with *warnings*."""
    headers = write_response({}, answer.code, warnings).headers[1:]
    return Response(answer.code, answer.body, (*answer.headers, *headers))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _namespace(path: str) -> str:
    return path.rpartition("/")[0]
