"""Changes of records as requests to the host cluster.  Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from attrs import field, frozen

from tower.kube.rest.host_api import Object
from tower.store.kubernetes.merge_patch import merge_patch
from tower.store.kubernetes.object_codec import TRANSACTION, ObjectCodec
from tower.store.records import Event, Record, Value, encode

#: A request: ``status`` changes the status subresource, ``release`` removes the finalizers.
Verb: TypeAlias = Literal["create", "update", "patch", "status", "delete", "release"]


@frozen
class RecordChange:
    """The change of one record by a transaction.

    :ivar value: the new one; None: the record is removed.
    :ivar uid: of its object before; empty: the record is new.
    """

    kind: str
    name: str
    value: Value | None = field(repr=False)
    uid: str = ""


@frozen
class StoredObject:
    """An object of the host cluster.

    :ivar version: its resource version.
    :ivar body: the part that `ObjectCodec.kept` returns.
    :ivar answer: the complete object of an answer; None: it is not kept.
    """

    uid: str
    version: int
    body: Object = field(repr=False)
    answer: Object | None = field(default=None, repr=False)

    @classmethod
    def of(cls, codec: ObjectCodec, obj: Object) -> StoredObject:
        """Return an object of an answer."""
        return cls(obj["metadata"]["uid"], version_of(obj), codec.kept(obj), obj)


def version_of(obj: Object) -> int:
    """Return the resource version of an object; Kubernetes guarantees that it is an increasing number."""
    return int(obj["metadata"]["resourceVersion"])


@frozen
class HostRequest:
    """One request of a change.

    :ivar body: the object or the patch.
    """

    verb: Verb
    body: Object = field(factory=dict, repr=False)


def net_changes(
    events: Sequence[Event], lookup: Callable[[str, str], Record | None]
) -> list[tuple[str, str, Value | None]]:
    """Return kind, name and value of the records that *events* of a transaction change, once each.

    :param lookup: returns the record before the transaction.
    """
    last = {(event.record.kind, event.record.name): event for event in events}
    found = []
    for (kind, name), event in last.items():
        before = lookup(kind, name)
        value = None if event.type == "DELETED" else event.record.value
        if value is None if before is None else value is not None and encode(before.value) == encode(value):
            continue
        found.append((kind, name, value))
    return found


def requests_of(
    codec: ObjectCodec,
    change: RecordChange,
    stored: Object | None,
    transaction: str = "",
    *,
    has_status: bool = True,
) -> list[HostRequest]:
    """Return the requests that lead from an object to the changed one, the first with the preconditions.

    :param stored: `StoredObject.body`; None: there is no object.
    :param transaction: ID for the object's annotation; empty: an annotation of an earlier one does not
        matter.
    :param has_status: whether objects of this type have a status subresource.
    """
    if change.value is None:
        return [] if stored is None else _removal(stored)
    wanted = codec.merged(stored, change.name, change.value)
    if transaction:
        wanted = _annotated(wanted, transaction)
    if stored is None:
        found = [HostRequest("create", wanted)]
        if has_status and "status" in wanted:
            found.append(HostRequest("status", {"status": wanted["status"]}))
        return found
    if not codec.is_shared:
        return [HostRequest("update", wanted)]
    patch = merge_patch(stored if transaction else _unannotated(stored), wanted)
    status = {"status": patch.pop("status")} if "status" in patch else {}
    if not has_status:
        # each write is a new generation then, so that none is the observed one
        fields = status.get("status") or {}
        kept = {key: part for key, part in fields.items() if key != "observedGeneration"}
        patch, status = patch | ({"status": kept} if kept else {}), {}
    if patch and not transaction:
        patch |= {"metadata": merge_patch(stored["metadata"], wanted["metadata"])}
    found = [HostRequest("patch", patch)] if patch else []
    if status:
        found.append(HostRequest("status", status))
    if codec.is_deletion(stored, change.value):
        found.append(HostRequest("delete"))
    return found


def _removal(stored: Object) -> list[HostRequest]:
    """Return the requests that remove an object; its finalizers would keep it."""
    metadata = stored.get("metadata", {})
    found = [] if "deletionTimestamp" in metadata else [HostRequest("delete")]
    if metadata.get("finalizers"):
        found.append(HostRequest("release", {"metadata": {"finalizers": None}}))
    return found


def _annotated(obj: Object, transaction: str) -> Object:
    metadata = obj["metadata"]
    annotations = {**metadata.get("annotations", {}), TRANSACTION: transaction}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def _unannotated(obj: Object) -> Object:
    """Return *obj* without the annotation of an earlier transaction."""
    metadata = obj["metadata"]
    annotations = {key: text for key, text in metadata.get("annotations", {}).items() if key != TRANSACTION}
    cleaned = {key: part for key, part in metadata.items() if key != "annotations"}
    return {**obj, "metadata": cleaned | ({"annotations": annotations} if annotations else {})}
