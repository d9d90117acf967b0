"""History of changes and watches of a `tests.kube.rest.fake_host.FakeHost`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from tower.kube.client import APIError
from tower.kube.rest.host_api import Object, ResourceType, WatchEvent
from tower.web.api.selectors import NAME_FIELD, Selection

Kind = Literal["ADDED", "MODIFIED", "DELETED"]


@frozen
class FakeChange:
    """A change of an object; *before* is None for a new one."""

    version: int
    resource: ResourceType
    kind: Kind
    item: Object
    before: Object | None


class FakeSelection:
    """The objects of a list or watch: by namespace (None being all), labels, name.

    :raise BadSelector: a selector is invalid.
    """

    def __init__(self, namespace: str | None, label_selector: str, field_selector: str) -> None:
        self._namespace = namespace
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selection = Selection(selectors, NAME_FIELD)

    def matches(self, item: Object) -> bool:
        """Return whether *item* is selected."""
        if (
            self._namespace is not None
            and item["metadata"].get("namespace", self._namespace) != self._namespace
        ):
            return False
        return self._selection.matches(item)


@define(eq=False)
class FakeWatch:
    """One watch of a client; its Deferred fires when it ends."""

    resource: ResourceType
    selection: FakeSelection
    deliver: Callable[[WatchEvent], None]
    done: Deferred[None] = field(factory=Deferred)

    def offer(self, change: FakeChange) -> None:
        """Deliver *change* if it is of this watch, as the API server does."""
        if change.resource != self.resource:
            return
        is_seen, was_seen = (
            self.selection.matches(change.item),
            change.before is not None and self.selection.matches(change.before),
        )
        kind = change.kind
        if kind != "DELETED" and is_seen != was_seen:
            kind = "ADDED" if is_seen else "DELETED"
        if is_seen or was_seen:
            self.deliver(WatchEvent(kind, copy.deepcopy(change.item)))


class FakeHistory:
    """Changes since the last compaction, and the current watches."""

    def __init__(self) -> None:
        self._changes: list[FakeChange] = []
        self._compacted = 0
        self._held: list[FakeChange] | None = None
        self.watches: list[FakeWatch] = []

    def add(self, change: FakeChange) -> None:
        """Record *change* and deliver it, unless changes are held."""
        self._changes.append(change)
        if self._held is not None:
            self._held.append(change)
        else:
            self._offer(change)

    def _offer(self, change: FakeChange) -> None:
        for watch in list(self.watches):
            if not watch.done.called:
                watch.offer(change)

    def hold(self) -> None:
        """Deliver no change until `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Deliver the held changes."""
        held, self._held = self._held or [], None
        for change in held:
            self._offer(change)

    def compact(self, version: int) -> None:
        """Forget the changes; watches cannot start before *version*."""
        self._changes.clear()
        self._compacted = version

    def bookmark(self, version: int) -> None:
        """Send a bookmark to each watch."""
        for watch in list(self.watches):
            resource = watch.resource
            item: dict[str, Any] = {"kind": resource.kind, "apiVersion": resource.api_version}
            item["metadata"] = {"resourceVersion": str(version), "creationTimestamp": None}
            watch.deliver(WatchEvent("BOOKMARK", item))

    def end(self, error: APIError | None) -> None:
        """End all watches."""
        for watch in list(self.watches):
            if error is None:
                watch.done.callback(None)
            else:
                watch.done.errback(error)

    async def watch(
        self,
        resource: ResourceType,
        selection: FakeSelection,
        since: int,
        deliver: Callable[[WatchEvent], None],
        opened: Callable[[], None] | None,
    ) -> None:
        """Deliver the changes after a version until the watch ends or is canceled."""
        if since < self._compacted:
            text = f"too old resource version: {since} ({self._compacted})"
            raise APIError("GET", resource.path(None), 410, text, reason="Expired")
        if opened is not None:
            opened()
        watch = FakeWatch(resource, selection, deliver)
        held = self._held or ()
        for change in list(self._changes):
            if change.version > since and change not in held:
                watch.offer(change)
        self.watches.append(watch)
        try:
            await watch.done
        finally:
            self.watches.remove(watch)
