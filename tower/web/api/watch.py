"""Watches on the clusters: one JSON object a line, for as long as the client listens.

Nothing is queued for a client who does not keep up.  Its watch remembers how far it got, reads on in the
store's ring when there is room again, and ends with 410 when the ring no longer reaches back so far.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import frozen
from twisted.logger import Logger

from tower.clusters import API_VERSION, Cluster, Clusters
from tower.escaping import json_text
from tower.kube.status import StatusError, status_object
from tower.store.records import Expired
from tower.web.api.cluster_object import is_version
from tower.web.api.table import Object
from tower.web.outcome import BodyStream


@frozen
class WatchLimits:
    """What a watch may take.

    :ivar shortest: how long a watch lasts if nobody says otherwise, s; twice as long at most.
    :ivar longest: how long it may last at all, s.
    :ivar bookmark: how often a client that wants to know is told how far it got, s.
    """

    shortest: float = 1800.0
    longest: float = 86400.0
    bookmark: float = 60.0


class Selects(Protocol):
    """What is needed of `tower.web.api.clusters.Selection`."""

    def is_about(self, item: Object) -> bool:
        """Say whether the fields that never change are those wanted."""

    def is_labelled(self, item: Object) -> bool:
        """Say whether the labels are those wanted."""


Form = Callable[[Object], Object]


class Watching:
    """Begins watches.

    :param version: returns the version of the last change in the store.
    :param show: makes the object of a cluster.
    """

    def __init__(
        self,
        clusters: Clusters,
        version: Callable[[], int],
        show: Callable[[Cluster], Object],
        clock: Any,
        limits: WatchLimits,
    ) -> None:
        self.clusters = clusters
        self.version = version
        self.show = show
        self.clock = clock
        self.limits = limits

    def watch(
        self, query: Mapping[str, str], selection: Selects, form: Form, *, bookmarks: bool
    ) -> Callable[[BodyStream], None]:
        """Return what starts the watch that *query* asks for.

        :param form: makes what stands in an event of an object.
        :param bookmarks: whether they can be had in this form.
        :raise Refusal: a parameter makes no sense, or what it asks for is too long ago.
        """
        bookmarks = bookmarks and query.get("allowWatchBookmarks", "false").lower() in ("true", "1", "")
        initial = query.get("sendInitialEvents", "").lower() in ("true", "1")
        version = query.get("resourceVersion", "")
        if version and not is_version(version):
            raise StatusError(400, f"resourceVersion {version!r}: must be one that was read here, or 0")
        since = int(version) if version not in ("", "0") and not initial else None
        if since is not None:
            try:
                self.clusters.changes(since)
            except Expired as e:
                raise StatusError(410, str(e), reason="Expired") from e
        seconds = self._duration(query.get("timeoutSeconds", ""))

        def start(stream: BodyStream) -> None:
            watch = _Watch(self, stream, selection, form, bookmarks=bookmarks)
            watch.begin(since, mark=initial and bookmarks, seconds=seconds)

        return start

    def _duration(self, text: str) -> float:
        if not text or text == "0":
            return self.limits.shortest * (1 + random.random())  # noqa: S311 - spreads, hides nothing
        if not text.isdecimal():
            raise StatusError(400, f"timeoutSeconds {text!r}: must be a number of seconds")
        return min(float(text), self.limits.longest)


class _Watch:
    """One watch."""

    _log = Logger()

    def __init__(
        self, watching: Watching, stream: BodyStream, selection: Selects, form: Form, *, bookmarks: bool
    ) -> None:
        self._watching = watching
        self._stream = stream
        self._selection = selection
        self._form = form
        self._bookmarks = bookmarks
        self._reached = 0  # the version up to which the client knows everything
        self._hidden: set[str] = set()  # clusters of which the client knows that their labels are others
        self._blocked = False
        self._over = False
        self._calls: list[Any] = []
        self._following: Any = None

    def begin(self, since: int | None, *, mark: bool, seconds: float) -> None:
        """Send what is there (*since* is None) or what changed since then; follow for *seconds*.

        :param mark: say when what is there was all sent.
        """
        watching, stream = self._watching, self._stream
        stream.on_drained, stream.on_closed = self._drained, self._closed
        self._following = watching.clusters.watch(self._changed)
        self._calls = [
            watching.clock.callLater(seconds, self._finish),
            watching.clock.callLater(watching.limits.bookmark, self._bookmark),
        ]
        for cluster in watching.clusters.list():
            item = watching.show(cluster)
            if not self._selection.is_labelled(item):
                self._hidden.add(cluster.name)
            elif since is None and self._selection.is_about(item):
                self._send("ADDED", self._form(item))
        if since is None:
            self._reached = watching.version()
            if mark:
                self._send_bookmark({"k8s.io/initial-events-end": "true"})
        else:
            self._reached = since
            self._read_on(first=True)

    def _changed(self, event: str, cluster: Cluster) -> None:
        if not self._blocked and cluster.resource_version > self._reached:
            self._tell(event, cluster)

    def _read_on(self, *, first: bool = False) -> None:
        """Send what the client has missed, as far as there is room.

        :param first: it does not know yet what was hidden before that.
        """
        try:
            missed = self._watching.clusters.changes(self._reached)
        except Expired as e:
            self._send("ERROR", status_object(StatusError(410, str(e), reason="Expired")))
            self._finish()
            return
        if first:
            self._hidden -= {cluster.name for _, cluster in missed}
        for event, cluster in missed:
            if self._blocked or self._over:
                return
            self._tell(event, cluster)

    def _tell(self, event: str, cluster: Cluster) -> None:
        self._reached = cluster.resource_version
        item = self._watching.show(cluster)
        if not self._selection.is_about(item):
            return
        if self._selection.is_labelled(item):
            if cluster.name in self._hidden and event == "MODIFIED":
                event = "ADDED"
            self._hidden.discard(cluster.name)
        else:
            if cluster.name in self._hidden:
                return
            self._hidden.add(cluster.name)
            if event == "ADDED":
                return
            event = "DELETED"
        self._send(event, self._form(item))

    def _send(self, event: str, item: Object) -> None:
        line = json_text({"type": event, "object": item}, separators=(",", ":")).encode() + b"\n"
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
        self._send("BOOKMARK", {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": metadata})

    def _drained(self) -> None:
        self._blocked = False
        self._read_on()

    def _finish(self) -> None:
        if not self._over:
            if self._bookmarks and not self._blocked:
                self._send_bookmark({})
            self._closed()
            self._stream.finish()

    def _closed(self) -> None:
        """Let go of everything; nobody listens any more."""
        self._over = True
        if self._following is not None:
            self._following.stop()
        for call in self._calls:
            if call.active():
                call.cancel()
