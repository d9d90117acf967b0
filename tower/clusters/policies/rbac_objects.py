"""The roles and bindings of Tower's own API in a store: reading, writing and watching them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.policies.rbac_object import RBAC_KINDS, RbacKind, RbacObject
from tower.errors import AlreadyExists, Conflict, NotFound
from tower.escaping import quoted
from tower.kube.access.rbac import GROUP
from tower.store import IStore
from tower.store.kinds import RBAC_OBJECTS
from tower.store.records import (
    Event,
    EventType,
    Record,
    RecordChanged,
    RecordExists,
    RecordMissing,
    Value,
    Watch,
)

#: Most objects of all kinds.
OBJECT_LIMIT = 20_000

_KINDS = {kind.name: kind for kind in RBAC_KINDS}
_ATTEMPTS = 10


def not_found(kind: RbacKind, path: str) -> NotFound:
    """Return the error for an unknown object."""
    return NotFound(f"{kind.plural}.{GROUP} {quoted(path.rpartition('/')[2])} not found")


def exists(kind: RbacKind, path: str) -> AlreadyExists:
    """Return the error for a second object of a name."""
    return AlreadyExists(f"{kind.plural}.{GROUP} {quoted(path.rpartition('/')[2])} already exists")


def changed_meanwhile(kind: RbacKind, path: str) -> Conflict:
    """Return the error for a write to an old version."""
    return Conflict(
        f"Operation cannot be fulfilled on {kind.plural}.{GROUP} {quoted(path.rpartition('/')[2])}: the "
        "object has been modified; please apply your changes to the latest version and try again"
    )


@define(eq=False, repr=False)
class RbacObjects:
    """The objects of all kinds; a record that cannot be read grants nothing, and is logged.

    :param clock: its ``seconds()`` are since the epoch.
    """

    _log = Logger()

    store: IStore
    _clock: IReactorTime
    _decoded: dict[str, RbacObject] = field(factory=dict, init=False)

    def of(self, kind: RbacKind) -> RbacObjectsOfKind:
        """Return the objects of one kind."""
        return RbacObjectsOfKind(self, kind)

    def list(self) -> list[RbacObject]:
        """Return all objects, by kind and name."""
        records = self.store.snapshot(RBAC_OBJECTS)
        found = [self.read(records[name]) for name in sorted(records)]
        return [each for each in found if each is not None]

    def watch(self, callback: Callable[[EventType, RbacObject], None]) -> Watch:
        """Call *callback* for each object ADDED, MODIFIED or DELETED from now on.

        An object that can no longer be read is DELETED.
        """

        def changed(event: Event) -> None:
            before = self._decoded.pop(event.record.name, None)
            found = self.read(event.record, keep=event.type != "DELETED")
            if found is not None:
                callback(event.type, found)
            elif before is not None:
                callback("DELETED", before)

        return self.store.watch(RBAC_OBJECTS, changed)

    def new(self, kind: RbacKind, path: str, body: Mapping[str, Any]) -> RbacObject:
        """Return an object that is not stored yet."""
        return RbacObject(kind, path, str(uuid.uuid4()), 0, self._clock.seconds(), body)

    def read(self, record: Record, *, keep: bool = True) -> RbacObject | None:
        """Return the object in a record, or None."""
        known = self._decoded.get(record.name)
        if known is not None and known.resource_version == record.version:
            return known
        try:
            found = decode_rbac(record)
        except (LookupError, TypeError, ValueError):
            self._log.error(
                "the role or binding {name} grants nothing, because this Tower cannot read its record: if a "
                "newer one wrote it, upgrade this one; else delete the object and apply it again",
                name=record.name,
            )
            return None
        if keep:
            self._decoded[record.name] = found
        return found


@define(eq=False, repr=False)
class RbacObjectsOfKind:
    """The objects of one kind, by name: see `RbacObject.name`."""

    objects: RbacObjects
    kind: RbacKind

    def get(self, path: str) -> RbacObject | None:
        """Return an object, or None."""
        record = self.objects.store.get(RBAC_OBJECTS, self._key(path))
        return None if record is None else self.objects.read(record)

    def require(self, path: str) -> RbacObject:
        """Return an object.

        :raise NotFound: there is none of that name.
        """
        found = self.get(path)
        if found is None:
            raise not_found(self.kind, path)
        return found

    def list(self) -> list[RbacObject]:
        """Return all objects, by name."""
        return [each for each in self.objects.list() if each.kind is self.kind]

    def watch(self, callback: Callable[[EventType, RbacObject], None]) -> Watch:
        """Call *callback* for each object ADDED, MODIFIED or DELETED from now on."""

        def changed(event: EventType, found: RbacObject) -> None:
            if found.kind is self.kind:
                callback(event, found)

        return self.objects.watch(changed)

    def changes(self, since: int) -> Sequence[tuple[EventType, RbacObject]]:
        """Return the changes after a resource version; see `IStore.changes`."""
        found: list[tuple[EventType, RbacObject]] = []
        for event in self.objects.store.changes(RBAC_OBJECTS, since):
            each = self.objects.read(event.record, keep=False)
            if each is not None and each.kind is self.kind:
                found.append((event.type, each))
        return found

    def check(self, since: int) -> None:
        """Check that the changes after a resource version are known.

        :raise Expired: they are not.
        """
        self.objects.store.changes(RBAC_OBJECTS, since)

    def changed_meanwhile(self, path: str) -> Conflict:
        """Return the error for a write to an old version."""
        return changed_meanwhile(self.kind, path)

    def not_found(self, path: str) -> NotFound:
        """Return the error for an unknown object."""
        return not_found(self.kind, path)

    def exists(self, path: str) -> AlreadyExists:
        """Return the error for a second object of a name."""
        return exists(self.kind, path)

    async def add(self, new: RbacObject) -> RbacObject:
        """Store a new object.

        :raise AlreadyExists: there is one of this name.
        """
        if len(self.objects.store.snapshot(RBAC_OBJECTS)) >= OBJECT_LIMIT:
            raise Conflict(f"the limit of {OBJECT_LIMIT} roles and bindings is reached: remove some")
        try:
            record = await self.objects.store.create(RBAC_OBJECTS, self._key(new.name), encode_rbac(new))
        except RecordExists as e:
            raise exists(self.kind, new.name) from e
        return evolve(new, resource_version=record.version)

    async def change(
        self, path: str, edit: Callable[[RbacObject], RbacObject], version: int | None = None
    ) -> RbacObject:
        """Change an object.

        :param edit: a pure function; called again after a conflict.
        :param version: required resource version, or None.
        :raise NotFound: there is none of this name.
        :raise Conflict: it has another version, or changes all the time.
        """
        for _ in range(_ATTEMPTS):
            old = self.require(path)
            if version not in (None, old.resource_version):
                break
            new = edit(old)
            try:
                record = await self.objects.store.update(
                    RBAC_OBJECTS, self._key(path), encode_rbac(new), old.resource_version
                )
            except RecordMissing as e:
                raise not_found(self.kind, path) from e
            except RecordChanged:
                continue
            return evolve(new, resource_version=record.version)
        raise changed_meanwhile(self.kind, path)

    async def remove(self, path: str, check: Callable[[RbacObject], None]) -> RbacObject | None:
        """Remove an object; return it, or None if it could not be read.

        :param check: raises if it must not be removed.
        :raise NotFound: there is none of this name.
        """
        for _ in range(_ATTEMPTS):
            record = self.objects.store.get(RBAC_OBJECTS, self._key(path))
            if record is None:
                raise not_found(self.kind, path)
            found = self.objects.read(record)
            if found is not None:
                check(found)
            try:
                await self.objects.store.delete(RBAC_OBJECTS, self._key(path), record.version)
            except RecordMissing as e:
                raise not_found(self.kind, path) from e
            except RecordChanged:
                continue
            return found
        raise changed_meanwhile(self.kind, path)

    def _key(self, path: str) -> str:
        return f"{self.kind.plural}/{path}"


def encode_rbac(item: RbacObject) -> Value:
    """Return the value of the record."""
    value = {
        "kind": item.kind.name,
        "namespace": item.namespace,
        "name": item.own_name,
        "uid": item.uid,
        "created": item.created,
        "labels": dict(item.labels),
        "annotations": dict(item.annotations),
        "managed": [dict(each) for each in item.managed],
        "body": dict(item.body),
    }
    return {key: part for key, part in value.items() if key == "body" or part not in ("", [], {})}


def decode_rbac(record: Record) -> RbacObject:
    """Return the object in a record.

    :raise ValueError: it cannot be read; also other errors of wrong types and missing fields.
    """
    value: dict[str, Any] = dict(record.value)
    kind = _KINDS[value["kind"]]
    path = f"{value['namespace']}/{value['name']}" if value.get("namespace") else value["name"]
    body = value["body"]
    if record.name != f"{kind.plural}/{path}" or not set(body) <= set(kind.fields):
        raise ValueError(record.name)
    return RbacObject(
        kind,
        path,
        value["uid"],
        record.version,
        float(value["created"]),
        body,
        dict(value.get("labels", {})),
        dict(value.get("annotations", {})),
        tuple(value.get("managed", ())),
    )
