"""The form of resources whose objects the API stores unchanged, and the store of such objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from attrs import frozen

from tower.errors import AlreadyExists, Conflict, NotFound
from tower.web.api.calls.call import Call
from tower.web.api.fields.schema import Schema
from tower.web.api.table import Object


class Stored(Protocol):
    """A stored object; its name has the namespace before a slash, if it has one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its UID."""

    @property
    def resource_version(self) -> int:
        """Its version."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""

    @property
    def managed(self) -> tuple[Mapping[str, Any], ...]:
        """Owners of its fields."""


T = TypeVar("T", bound=Stored)


class ObjectStore(Protocol[T]):
    """The stored objects of one kind."""

    def get(self, path: str) -> T | None:
        """Return an object, or None."""

    def require(self, path: str) -> T:
        """Return an object, or raise `NotFound`."""

    async def add(self, new: T) -> T:
        """Store a new object."""

    async def change(self, path: str, edit: Callable[[T], T], version: int | None = None) -> T:
        """Change an object."""

    async def remove(self, path: str, check: Callable[[T], None]) -> T | None:
        """Remove an object."""

    def changed_meanwhile(self, path: str) -> Conflict:
        """Return the error for a write to an old version."""

    def not_found(self, path: str) -> NotFound:
        """Return the error for an unknown object."""

    def exists(self, path: str) -> AlreadyExists:
        """Return the error for a second object of a name."""


@frozen
class ObjectFacts:
    """Facts about a resource.

    :ivar api_version: of the objects.
    :ivar plural: of the resource; also *group*.
    :ivar what: the kind in errors; *what_all* in the plural.
    :ivar fields: those next to the metadata.
    :ivar has_strategic: whether clients may send strategic merge patches: no list is merged by a key.
    """

    api_version: str
    kind: str
    plural: str
    group: str
    what: str
    what_all: str
    fields: tuple[str, ...]
    schema: Schema
    has_strategic: bool = False


class ObjectForm(Protocol[T]):
    """The form of the objects of one resource."""

    @property
    def facts(self) -> ObjectFacts:
        """Return the facts about the resource."""

    def new(self, name: str, namespace: str, value: Mapping[str, Any]) -> T:
        """Return a new object, without metadata."""

    def edited(self, old: T, value: Mapping[str, Any]) -> T:
        """Return *old* with the fields of *value* next to the metadata."""

    def with_parts(self, item: T, **parts: Any) -> T:
        """Return *item* with other labels, annotations or owners (*managed*)."""

    def settled(self, old: T, new: T) -> T:
        """Return *new* as it will be stored in place of *old*."""

    def body(self, item: T) -> dict[str, Any]:
        """Return the fields next to the metadata."""

    def show(self, item: T) -> Object:
        """Return the whole object."""

    def check(self, call: Call, old: T | None, new: T) -> None:
        """Check that the caller may write this."""

    def warnings(self, item: T) -> list[str]:
        """Return warnings about an object."""

    async def preview(self, old: T | None, new: T | None) -> list[str]:
        """Return warnings about the effects of a write, for dry runs."""
