"""Codecs between records and objects of the host cluster.  Sans-IO.

Numbers in values are normalized: the API server writes 1.0 as 1.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Protocol

from attrs import frozen

from tower.errors import Invalid
from tower.kube.rest.host_api import Object, ResourceType
from tower.store.kubernetes.object_names import NAME, object_name, record_name
from tower.store.records import Value, encode

#: Prefix of Tower's annotations and labels.
PREFIX = "tower.kubesphere.io/"

#: Annotation with the ID of the transaction that wrote the object last, if it made several changes.
TRANSACTION = PREFIX + "transaction"

#: Label of Secrets with the kind of their record.
KIND = PREFIX + "kind"

#: From here on the API server writes a number with an exponent.
_EXACT = 1e21


class ObjectCodec(Protocol):
    """A kind of record as a type of objects.

    :ivar kind: of the records.
    :ivar selector: label selector of the objects; empty: all of their type.
    """

    @property
    def kind(self) -> str:
        """The kind."""
        ...

    @property
    def resource(self) -> ResourceType:
        """The type of the objects."""
        ...

    @property
    def selector(self) -> str:
        """The label selector."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other programs write these objects, too."""
        ...

    def object_name(self, name: str) -> str:
        """Return the name of the object of the record *name*."""
        ...

    def record(self, obj: Object, known: Value | None = None) -> tuple[str, Value] | None:
        """Return name and value of the record in an object; None: Tower ignores it.

        :param known: the value before, if it is still the same object.
        :raise Invalid: the object is malformed.
        """
        ...

    def merged(self, base: Object | None, name: str, value: Value) -> Object:
        """Return the object with *value*; fields of other programs in *base* stay.

        :param base: what `kept` returned of the object before; None: it is new.
        """
        ...

    def is_deletion(self, base: Object, value: Value) -> bool:
        """Return whether *value* requests the deletion of an object, which its finalizers delay."""
        ...

    def kept(self, obj: Object) -> Object:
        """Return the part of an object that `merged` needs."""
        ...

    def owner(self, obj: Object) -> str:
        """Return the uid by which other records name their owner; empty for kinds that own none."""
        ...


@frozen
class RecordCodec:
    """A kind of record as a type of Tower's own objects, whose ``spec`` is the value."""

    kind: str
    resource: ResourceType
    selector: str = ""
    is_shared: bool = False

    def object_name(self, name: str) -> str:
        """See `ObjectCodec.object_name`."""
        return object_name(name)

    def record(self, obj: Object, known: Value | None = None) -> tuple[str, Value] | None:
        """See `ObjectCodec.record`."""
        value = obj.get("spec", {})
        if "encoded" in obj:
            value = _parsed(obj["encoded"])
        if not isinstance(value, dict):
            raise Invalid("spec: must be an object: delete this object")
        return record_name(obj["metadata"]), value

    def merged(self, base: Object | None, name: str, value: Value) -> Object:
        """See `ObjectCodec.merged`; text that is not Unicode does not survive in JSON of Go."""
        obj = _shell(self.resource, base, name, object_name(name))
        if _is_unicode(value):
            return {**obj, "spec": value}
        return {**obj, "encoded": encode(value)}

    def is_deletion(self, base: Object, value: Value) -> bool:
        """See `ObjectCodec.is_deletion`."""
        return False

    def kept(self, obj: Object) -> Object:
        """See `ObjectCodec.kept`."""
        return _metadata_of_others(obj)

    def owner(self, obj: Object) -> str:
        """See `ObjectCodec.owner`."""
        return ""


@frozen
class SecretCodec:
    """A kind of record as Secrets, selected by a label."""

    kind: str
    resource: ResourceType
    is_shared: bool = False

    @property
    def selector(self) -> str:
        """See `ObjectCodec`."""
        return f"{KIND}={self.kind}"

    def object_name(self, name: str) -> str:
        """See `ObjectCodec.object_name`."""
        return object_name(name, f"tower-{self.kind}-")

    def record(self, obj: Object, known: Value | None = None) -> tuple[str, Value] | None:
        """See `ObjectCodec.record`."""
        try:
            text = b64decode(obj.get("data", {}).get("record", ""), validate=True).decode()
        except ValueError:
            text = ""
        return record_name(obj["metadata"], f"tower-{self.kind}-"), _parsed(text)

    def merged(self, base: Object | None, name: str, value: Value) -> Object:
        """See `ObjectCodec.merged`."""
        obj = _shell(self.resource, base, name, self.object_name(name), f"tower-{self.kind}-")
        obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), KIND: self.kind}
        data = b64encode(encode(value).encode("ascii")).decode("ascii")
        return {**obj, "type": PREFIX + self.kind, "data": {"record": data}}

    def is_deletion(self, base: Object, value: Value) -> bool:
        """See `ObjectCodec.is_deletion`."""
        return False

    def kept(self, obj: Object) -> Object:
        """See `ObjectCodec.kept`."""
        return _metadata_of_others(obj)

    def owner(self, obj: Object) -> str:
        """See `ObjectCodec.owner`."""
        return ""


def normal(value: Value) -> Value:
    """Return a deep copy of *value* in the form in which it comes back from an API server.

    :raise Invalid: it is too large.
    """
    text = encode(value)

    def number(digits: str) -> float:
        found = float(digits)
        return int(found) if found.is_integer() and abs(found) < _EXACT else found

    result: Value = json.loads(text, parse_float=number)
    return result


def _shell(
    resource: ResourceType, base: Object | None, name: str, stored_name: str, prefix: str = ""
) -> Object:
    """Return the object without its content."""
    metadata: dict[str, Any] = {**((base or {}).get("metadata") or {}), "name": stored_name}
    if stored_name != prefix + name:
        metadata["annotations"] = {**metadata.get("annotations", {}), NAME: json.dumps(name)[1:-1]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _metadata_of_others(obj: Object) -> Object:
    """Return what other programs may have added to one of Tower's objects."""
    kept = ("labels", "annotations", "finalizers", "ownerReferences")
    metadata = {key: part for key in kept if (part := obj["metadata"].get(key))}
    return {"metadata": metadata} if metadata else {}


def _parsed(text: object) -> Value:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Invalid("the record in it is malformed: delete this object")
    return value


def _is_unicode(value: Any) -> bool:
    """Return whether all text in *value* is valid Unicode, without surrogates."""
    match value:
        case str():
            return (
                not any("\ud800" <= letter <= "\udfff" for letter in value) if not value.isascii() else True
            )
        case Mapping():
            return all(_is_unicode(key) and _is_unicode(part) for key, part in value.items())
        case list() | tuple():
            return all(map(_is_unicode, value))
        case _:
            return True
