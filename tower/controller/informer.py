"""The objects of one type in the host: views by name, and notice of each change that matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import define, field

from tower.kube.rest.host_api import Object, WatchEvent

V = TypeVar("V")


@define(eq=False)
class Informer(Generic[V]):
    """Follows a `tower.kube.rest.reflector.Reflector`.

    :param view: returns the view of an object.
    :param changed: called with the name of each object whose view has changed.
    :param listed: called when all objects are known.
    :param compared: returns the part of a view whose change matters; other changes are kept without notice.
    :ivar is_synced: whether they were ever all known.
    """

    _view: Callable[[Object], V]
    _changed: Callable[[str], None]
    _listed: Callable[[], None]
    _compared: Callable[[V], object] = lambda view: view
    is_synced: bool = field(default=False, init=False)
    _views: dict[str, V] = field(factory=dict, init=False)

    def get(self, name: str) -> V | None:
        """Return the view of an object, or None if it does not exist."""
        return self._views.get(name)

    def views(self) -> list[V]:
        """Return the views of all objects."""
        return list(self._views.values())

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """Follow a list of all objects."""
        before, self._views = self._views, {_name(item): self._view(item) for item in items}
        for name in {**before, **self._views}:
            self._compare(name, before.get(name))
        self.is_synced = True
        self._listed()

    def changed(self, event: WatchEvent) -> None:
        """Follow a change."""
        if event.type == "BOOKMARK":
            return
        name = _name(event.object)
        before = self._views.pop(name, None)
        if event.type != "DELETED":
            self._views[name] = self._view(event.object)
        self._compare(name, before)

    def _compare(self, name: str, before: V | None) -> None:
        after = self._views.get(name)
        if before is None or after is None:
            is_same = before is after
        else:
            is_same = self._compared(before) == self._compared(after)
        if not is_same:
            self._changed(name)


def _name(obj: Mapping[str, Any]) -> str:
    name: str = obj["metadata"]["name"]
    return name
