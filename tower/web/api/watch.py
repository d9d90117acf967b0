"""Watches of clusters and of their events: one JSON object per line, until the client disconnects.

All watches of one kind share each change and its line.  Nothing is queued for a slow client.  Its watch
remembers the last version sent, continues from the store's ring of changes when there is room again, and ends
with 410 if the ring no longer contains that version.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from attrs import define, field, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.escaping import json_text
from tower.kube.status import StatusError, status_object
from tower.store.records import EventType, Expired, Watch
from tower.web.api.selectors import Selection
from tower.web.api.table import Object
from tower.web.api.writes.cluster_object import is_version
from tower.web.outcome import JSON_TYPE, BodyStream

#: Header fields of the answer to a watch.
WATCH_HEADERS = (JSON_TYPE, (b"Cache-Control", b"no-cache, private"))


@frozen
class WatchLimits:
    """Time limits of watches, s.

    :ivar shortest: minimum of the default duration; the maximum is twice as long.
    :ivar longest: maximum duration that a client can request.
    :ivar bookmark: interval of bookmarks, for clients that request them.
    """

    shortest: float = 1800.0
    longest: float = 86400.0
    bookmark: float = 60.0


#: Converts an object for an event.
Form: TypeAlias = Callable[[Object], Object]


class Watched(Protocol):
    """A record that can be watched."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def resource_version(self) -> int:
        """Its version."""


T = TypeVar("T", bound=Watched)


class Source(Protocol[T]):
    """The records of one kind."""

    def list(self) -> list[T]:
        """Return all records."""

    def changes(self, since: int) -> Sequence[tuple[EventType, T]]:
        """Return the changes after a version; see `tower.store.IStore.changes`."""

    def watch(self, callback: Callable[[EventType, T], None]) -> Watch:
        """Call *callback* for each change."""


@define(eq=False, repr=False)
class _Change(Generic[T]):
    """A record that was changed, for all watches.

    :ivar item: its object.
    """

    record: T
    item: Object
    _lines: dict[str, bytes] = field(factory=dict, init=False)

    def line(self, event: str) -> bytes:
        """Return the line for the plain object, which is the same for all watches."""
        line = self._lines.get(event)
        if line is None:
            line = self._lines[event] = _line(event, self.item)
        return line


def _line(event: str, item: Object) -> bytes:
    return json_text({"type": event, "object": item}, separators=(",", ":")).encode() + b"\n"


@define(eq=False, repr=False)
class Watching(Generic[T]):
    """Starts watches.

    :param version: returns the store's resource version.
    :param show: returns the object of a record.
    :param kind: `apiVersion` and `kind` of bookmarks.
    """

    source: Source[T]
    version: Callable[[], int]
    show: Callable[[T], Object]
    clock: IReactorTime
    limits: WatchLimits
    kind: tuple[str, str]
    _watches: dict[_Watch[T], None] = field(factory=dict, init=False)
    _following: Watch | None = field(default=None, init=False)

    def follow(self, watch: _Watch[T]) -> None:
        """Send changes to *watch* from now on."""
        if self._following is None:
            self._following = self.source.watch(self._changed)
        self._watches[watch] = None

    def leave(self, watch: _Watch[T]) -> None:
        """Send no more changes to *watch*."""
        self._watches.pop(watch, None)
        if not self._watches and self._following is not None:
            self._following.stop()
            self._following = None

    def change(self, record: T) -> _Change[T]:
        """Return the change of *record*."""
        return _Change(record, self.show(record))

    def _changed(self, event: EventType, record: T) -> None:
        change = self.change(record)
        for watch in list(self._watches):
            watch.changed(event, change)

    def watch(
        self, query: Mapping[str, str], selection: Selection, form: Form | None, *, bookmarks: bool
    ) -> Callable[[BodyStream], None]:
        """Return the function that starts the watch that *query* requests.

        :param form: converts the objects; None: plain ones.
        :param bookmarks: whether the form has bookmarks.
        :raise StatusError: a parameter is invalid, or its version is no longer available.
        """
        bookmarks = bookmarks and query.get("allowWatchBookmarks", "false").lower() in ("true", "1", "")
        initial = query.get("sendInitialEvents", "").lower() in ("true", "1")
        version = query.get("resourceVersion", "")
        if version and not is_version(version):
            raise StatusError(400, f"resourceVersion {version!r}: must be one that this API returned, or 0")
        since = int(version) if version not in ("", "0") and not initial else None
        if since is not None:
            try:
                self.source.changes(since)
            except Expired as e:
                raise StatusError(410, str(e), reason="Expired") from e
        seconds = self._duration(query.get("timeoutSeconds", ""))

        def start(stream: BodyStream) -> None:
            watch = _Watch(self, stream, selection, form, bookmarks=bookmarks)
            watch.begin(since, mark=initial and bookmarks, seconds=seconds)

        return start

    def _duration(self, text: str) -> float:
        if not text or text == "0":
            return self.limits.shortest * (1 + random.random())  # noqa: S311 - jitter, not a secret
        if not text.isdecimal():
            raise StatusError(400, f"timeoutSeconds {text!r}: must be a number of seconds")
        return min(float(text), self.limits.longest)


@define(eq=False, repr=False)
class _Watch(Generic[T]):
    """One watch."""

    _log = Logger()

    _watching: Watching[T]
    _stream: BodyStream
    _selection: Selection
    _form: Form | None
    _bookmarks: bool = field(kw_only=True)
    _reached: int = field(default=0, init=False)  # the last version that the client knows
    _hidden: set[str] = field(factory=set, init=False)  # records whose labels do not match
    _blocked: bool = field(default=False, init=False)
    _over: bool = field(default=False, init=False)
    _calls: list[IDelayedCall] = field(factory=list, init=False)

    def begin(self, since: int | None, *, mark: bool, seconds: float) -> None:
        """Send the current state (*since* is None) or the changes since a version; follow for *seconds*.

        :param mark: send a bookmark after the current state.
        """
        watching, stream = self._watching, self._stream
        stream.on_drained, stream.on_closed = self._drained, self._closed
        watching.follow(self)
        self._calls = [
            watching.clock.callLater(seconds, self._finish),
            watching.clock.callLater(watching.limits.bookmark, self._bookmark),
        ]
        for record in watching.source.list():
            change = watching.change(record)
            if not self._selection.matches_labels(change.item):
                self._hidden.add(record.name)
            elif since is None and self._selection.matches_fields(change.item):
                self._send("ADDED", change)
        if since is None:
            self._reached = watching.version()
            if mark:
                self._send_bookmark({"k8s.io/initial-events-end": "true"})
        else:
            self._reached = since
            self._catch_up(first=True)

    def changed(self, event: str, change: _Change[T]) -> None:
        """Send *change*, unless the client does not read, or knows it."""
        if not self._over and not self._blocked and change.record.resource_version > self._reached:
            self._notify(event, change)

    def _catch_up(self, *, first: bool = False) -> None:
        """Send the changes that the client has missed, while there is room.

        :param first: the client does not know yet which objects were hidden before.
        """
        try:
            missed = self._watching.source.changes(self._reached)
        except Expired as e:
            self._write(_line("ERROR", status_object(StatusError(410, str(e), reason="Expired"))))
            self._finish()
            return
        if first:
            self._hidden -= {record.name for _, record in missed}
        for event, record in missed:
            if self._blocked or self._over:
                return
            self._notify(event, self._watching.change(record))

    def _notify(self, event: str, change: _Change[T]) -> None:
        record, item = change.record, change.item
        self._reached = record.resource_version
        if not self._selection.matches_fields(item):
            return
        if self._selection.matches_labels(item):
            if record.name in self._hidden and event == "MODIFIED":
                event = "ADDED"
            self._hidden.discard(record.name)
        else:
            if record.name in self._hidden:
                return
            self._hidden.add(record.name)
            if event == "ADDED":
                return
            event = "DELETED"
        self._send(event, change)

    def _send(self, event: str, change: _Change[T]) -> None:
        self._write(change.line(event) if self._form is None else _line(event, self._form(change.item)))

    def _write(self, line: bytes) -> None:
        if not self._stream.write(line):
            self._blocked = True

    def _bookmark(self) -> None:
        self._calls[1] = self._watching.clock.callLater(self._watching.limits.bookmark, self._bookmark)
        if self._bookmarks and not self._blocked:
            self._send_bookmark({})

    def _send_bookmark(self, annotations: dict[str, str]) -> None:
        metadata: dict[str, Any] = {"resourceVersion": str(self._reached), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        api_version, kind = self._watching.kind
        self._write(_line("BOOKMARK", {"apiVersion": api_version, "kind": kind, "metadata": metadata}))

    def _drained(self) -> None:
        self._blocked = False
        self._catch_up()

    def _finish(self) -> None:
        if not self._over:
            if self._bookmarks and not self._blocked:
                self._send_bookmark({})
            self._closed()
            self._stream.finish()

    def _closed(self) -> None:
        """Release everything: the client has disconnected."""
        self._over = True
        self._watching.leave(self)
        for call in self._calls:
            if call.active():
                call.cancel()
