"""The objects of the host cluster as last seen, and the resulting changes of records.  Sans-IO.

An object is seen in lists, watches and answers to writes, in any order; the newest has the highest resource
version.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from attrs import define, field, frozen
from twisted.logger import Logger

from tower.errors import Invalid
from tower.kube.rest.host_api import Object
from tower.store.kubernetes.host_change import StoredObject, version_of
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.records import EventType, Record, Value, encode

#: Most removed objects that are remembered until the watch reports their end.
_REMOVED_LIMIT = 10_000


@frozen
class SeenObject:
    """An object as last seen.

    :ivar owner: see `ObjectCodec.owner`.
    :ivar record: name of its record; None: Tower ignores it.
    """

    stored: StoredObject
    owner: str
    record: str | None


@frozen
class SeenChange:
    """A change of a record.

    :ivar value: the new one, or the last one of a removed record.
    :ivar version: resource version of the object.
    :ivar owner: the owner that was removed with it, if any.
    """

    type: EventType
    kind: str
    name: str
    value: Value = field(repr=False)
    version: int
    owner: str = ""


@define(eq=False)
class HostCache:
    """All objects of the store's kinds.

    :param lookup: returns the record of that kind and name.
    """

    _log = Logger()

    _lookup: Callable[[str, str], Record | None]
    _seen: dict[str, dict[str, SeenObject]] = field(factory=dict, init=False)
    _removed: OrderedDict[str, None] = field(factory=OrderedDict, init=False)

    def get(self, codec: ObjectCodec, name: str) -> SeenObject | None:
        """Return the object of the record *name*."""
        return self._seen.get(codec.kind, {}).get(codec.object_name(name))

    def record_name(self, codec: ObjectCodec, object_name: str) -> str | None:
        """Return the name of the record in an object; None: there is none."""
        seen = self._seen.get(codec.kind, {}).get(object_name)
        return None if seen is None else seen.record

    def replace(self, codec: ObjectCodec, obj: Object) -> None:
        """Record that this store has written an object of a known record again, which does not change."""
        objects = self._seen[codec.kind]
        before = objects[obj["metadata"]["name"]]
        stored = StoredObject(obj["metadata"]["uid"], version_of(obj), codec.kept(obj))
        objects[obj["metadata"]["name"]] = SeenObject(stored, before.owner, before.record)

    def owners(self) -> set[str]:
        """Return the uids of all owners, also of clusters that Tower ignores."""
        return {seen.owner for kind in self._seen.values() for seen in kind.values() if seen.owner}

    def see(self, codec: ObjectCodec, obj: Object) -> Iterator[SeenChange]:
        """Record an object, and return the changes of records; none if a newer one is known."""
        metadata = obj["metadata"]
        uid, version = metadata["uid"], version_of(obj)
        objects = self._seen.setdefault(codec.kind, {})
        before = objects.get(metadata["name"])
        if uid in self._removed or (before is not None and version <= before.stored.version):
            return
        is_same = before is not None and before.stored.uid == uid
        record = None if before is None or before.record is None else self._lookup(codec.kind, before.record)
        try:
            found = codec.record(obj, record.value if record is not None and is_same else None)
        except Invalid as e:
            self._log.error(
                "{type} {name} of the host cluster is ignored: {reason}",
                type=codec.resource.name,
                name=metadata["name"],
                reason=str(e),
            )
            found = None if record is None or not is_same else (record.name, record.value)
        name = None if found is None else found[0]
        objects[metadata["name"]] = SeenObject(
            StoredObject(uid, version, codec.kept(obj)), codec.owner(obj), name
        )
        if record is not None and (found is None or not is_same):
            assert before is not None
            gone = "" if is_same else before.owner
            yield SeenChange("DELETED", codec.kind, record.name, record.value, version, gone)
        if found is None:
            return
        if record is None or not is_same:
            yield SeenChange("ADDED", codec.kind, *found, version)
        elif encode(record.value) != encode(found[1]):
            yield SeenChange("MODIFIED", codec.kind, *found, version)

    def miss(self, codec: ObjectCodec, name: str, uid: str, version: int) -> Iterator[SeenChange]:
        """Record that the object *name* does not exist.

        :param uid: of the removed object; empty: of any that is not newer than *version*.
        """
        objects = self._seen.setdefault(codec.kind, {})
        before = objects.get(name)
        self._removed.pop(uid, None)
        if before is None or (before.stored.uid != uid if uid else before.stored.version > version):
            return
        del objects[name]
        record = None if before.record is None else self._lookup(codec.kind, before.record)
        if record is not None:
            yield SeenChange("DELETED", codec.kind, record.name, record.value, version, before.owner)

    def remove(self, codec: ObjectCodec, name: str) -> Iterator[SeenChange]:
        """Record that this store removed the object of the record *name*; lists may still have it."""
        seen = self.get(codec, name)
        if seen is None:
            return
        yield from self.miss(codec, codec.object_name(name), seen.stored.uid, seen.stored.version)
        self._removed[seen.stored.uid] = None
        if len(self._removed) > _REMOVED_LIMIT:
            self._removed.popitem(last=False)

    def absent(self, codec: ObjectCodec, listed: Iterable[Object]) -> list[str]:
        """Return the names of the known objects that are not in a list."""
        names = {obj["metadata"]["name"] for obj in listed}
        return [name for name in self._seen.get(codec.kind, {}) if name not in names]
