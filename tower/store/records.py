"""Records, what can be done with them, and what can go wrong: the words that every store speaks.

Records hold no secret in clear, only digests of them and what `tower.trust.vault` sealed; their values are JSON
objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from tower.errors import AlreadyExists, Conflict, Invalid, NotFound, TowerError

#: The kinds of record there are.
KINDS = (
    "clusters",
    "ports",
    "jointokens",
    "v1tokens",
    "agentkeys",
    "credentials",
    "settings",
    "memberaccess",
    "nodes",
    "hostkeys",
)

#: Those whose records belong to one cluster, whose uid they have at ``cluster_uid``, and go with it.
CLUSTER_KINDS = (
    "ports",
    "jointokens",
    "v1tokens",
    "agentkeys",
    "credentials",
    "memberaccess",
    "nodes",
    "hostkeys",
)

#: Largest record, B of JSON.
RECORD_LIMIT = 512 * 1024


class RecordExists(AlreadyExists):
    """A record of that kind and name is there already."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} already exists")
        self.kind, self.name = kind, name


class RecordMissing(NotFound):
    """There is no record of that kind and name."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} not found")
        self.kind, self.name = kind, name


class RecordChanged(Conflict):
    """The record is not at the version that the writer had read."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} was changed in between: read it again and retry")
        self.kind, self.name = kind, name


class Expired(TowerError):
    """The events asked for are no longer kept: list again; answer 410."""


class StoreFailed(TowerError):
    """The store could not write (full disk, overload, stopped); nothing was promised: answer 503."""


Value: TypeAlias = Mapping[str, Any]


@frozen
class Record:
    """One record as it was committed.

    :ivar version: of the write that made it so; grows with every change in the store.
    :ivar value: a JSON object; not to be changed.
    """

    kind: str
    name: str
    version: int
    value: Value = field(repr=False)


@frozen
class Create:
    """Make a record; fails with `RecordExists`."""

    kind: str
    name: str
    value: Value = field(repr=False)


@frozen
class Update:
    """Replace a record's value; fails with `RecordMissing`, `RecordChanged`.

    :ivar version: the version the writer has read; None replaces whatever is there.
    """

    kind: str
    name: str
    value: Value = field(repr=False)
    version: int | None = None


@frozen
class Delete:
    """Remove a record; fails with `RecordMissing`, `RecordChanged`.

    :ivar version: the version the writer has read; None removes whatever is there.
    """

    kind: str
    name: str
    version: int | None = None


@frozen
class DeleteWhere:
    """Remove all records of a kind whose value has *equals* at *key*, those written meanwhile too."""

    kind: str
    key: str
    equals: str


@frozen
class Require:
    """Change nothing, but fail the transaction with `RecordMissing` or `RecordChanged`."""

    kind: str
    name: str
    version: int | None = None


Operation: TypeAlias = Create | Update | Delete | DeleteWhere | Require
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


@frozen
class Event:
    """A change that was committed.

    :ivar record: as it now is; of a deleted one the last value, with the version of the deletion.
    """

    type: EventType
    record: Record


class Watch:
    """Somebody follows a kind of record, until `stop`."""

    def __init__(self, callback: Callable[[Event], None], forget: Callable[[Watch], None]) -> None:
        self.callback = callback
        self.active = True
        self._forget = forget

    def stop(self) -> None:
        """Deliver no more events, not even those of the present turn."""
        if self.active:
            self.active = False
            self._forget(self)


def encode(value: Value) -> str:
    """Return the one JSON text of *value*.

    :raise Invalid: it is larger than `RECORD_LIMIT`.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > RECORD_LIMIT:
        raise Invalid(f"a record of {len(text)} B is larger than the limit of {RECORD_LIMIT} B")
    return text


def detached(value: Value) -> Value:
    """Return a copy of *value* that shares nothing with it."""
    copy: Value = json.loads(encode(value))
    return copy
