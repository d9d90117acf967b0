"""Records, operations on them, and their errors: the types that all stores share.

A record's value is a JSON object.  It holds no secret in plain text, only digests and ciphertext of
`tower.trust.vault`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from attrs import NOTHING, AttrsInstance, field, fields, frozen

from tower.errors import AlreadyExists, Conflict, Invalid, NotFound, TowerError

#: Largest record, B of JSON.
RECORD_LIMIT = 512 * 1024


class RecordExists(AlreadyExists):
    """A record of that kind and name exists."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} already exists")
        self.kind, self.name = kind, name


class RecordMissing(NotFound):
    """No record of that kind and name exists."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} not found")
        self.kind, self.name = kind, name


class RecordChanged(Conflict):
    """The record has a version newer than the writer read."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} was changed concurrently: read it again and retry")
        self.kind, self.name = kind, name


class Expired(TowerError):
    """The requested events are no longer kept: list again; answer 410."""


class StoreFailed(TowerError):
    """The store could not write (full disk, overload, stopped): answer 503."""


class StoreStopped(StoreFailed):
    """The store has stopped, because the program ends."""

    def __init__(self) -> None:
        super().__init__("the store has stopped")


Value: TypeAlias = Mapping[str, Any]


@frozen
class Record:
    """A committed record.

    :ivar version: of its last write; increases with every change in the store.
    :ivar value: a JSON object; must not be modified.
    """

    kind: str
    name: str
    version: int
    value: Value = field(repr=False)


@frozen
class Create:
    """Create a record; fails with `RecordExists`."""

    kind: str
    name: str
    value: Value = field(repr=False)


@frozen
class Update:
    """Replace a record's value; fails with `RecordMissing`, `RecordChanged`.

    :ivar version: the version that the writer read; None: any.
    """

    kind: str
    name: str
    value: Value = field(repr=False)
    version: int | None = None


@frozen
class Delete:
    """Remove a record; fails with `RecordMissing`, `RecordChanged`.

    :ivar version: the version that the writer read; None: any.
    """

    kind: str
    name: str
    version: int | None = None


@frozen
class DeleteWhere:
    """Remove all records of a kind whose value has *equals* at *key*, at the time of the commit."""

    kind: str
    key: str
    equals: str


@frozen
class Require:
    """Fail the transaction with `RecordMissing` or `RecordChanged`, or change nothing."""

    kind: str
    name: str
    version: int | None = None


Operation: TypeAlias = Create | Update | Delete | DeleteWhere | Require
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


@frozen
class Event:
    """A committed change.

    :ivar record: as committed; if deleted, the last value with the version of the deletion.
    """

    type: EventType
    record: Record


class Watch:
    """A subscription to the events of a kind, until `stop`."""

    def __init__(self, callback: Callable[[Event], None], forget: Callable[[Watch], None]) -> None:
        self.callback = callback
        self.active = True
        self._forget = forget

    def stop(self) -> None:
        """Deliver no more events, not even those of the current reactor turn."""
        if self.active:
            self.active = False
            self._forget(self)


def encode(value: Value) -> str:
    """Return the canonical JSON text of *value*.

    :raise Invalid: it is larger than `RECORD_LIMIT`.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > RECORD_LIMIT:
        raise Invalid(f"the record has {len(text)} B, more than the limit of {RECORD_LIMIT} B")
    return text


def known_fields(kind: type[AttrsInstance], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of *value* that *kind* has; a newer Tower may have written more.

    For facts only: a field that limits rights must not be dropped.
    """
    names = {attribute.name for attribute in fields(kind)}
    return {name: part for name, part in value.items() if name in names}


def check_fields(kind: type[AttrsInstance], value: Mapping[str, Any]) -> None:
    """Check that *value* has only fields of *kind*, and all that have no default.

    :raise Invalid: with the fields.
    """
    known = fields(kind)
    if unknown := sorted(set(value) - {attribute.name for attribute in known}):
        raise Invalid(f"the unknown field {', '.join(unknown)}")
    required = [attribute.name for attribute in known if attribute.default is NOTHING]
    if missing := [name for name in required if name not in value]:
        raise Invalid(f"no field {', '.join(missing)}")


def detached(value: Value) -> Value:
    """Return a deep copy of *value*."""
    copy: Value = json.loads(encode(value))
    return copy
