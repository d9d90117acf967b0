"""The resource `events`, of `events.k8s.io` and of the core group: the events of clusters.

Clusters have no namespace, so their events are in the namespace `default`, as in Kubernetes.  Controllers may
report events, too.  Each report is an occurrence of the event of that component and reason, whose name is in
the answer, so the number of events is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster, Clusters
from tower.clusters.cluster_events import TOWER, ClusterEvent, ClusterEvents, EventLevel, TooManyEvents
from tower.durations import human_duration
from tower.errors import NotFound
from tower.kube.access.protobuf import PROTOBUF
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp
from tower.web.api import discovery
from tower.web.api.calls.call import Call, not_found
from tower.web.api.calls.media_types import MERGE_PATCH, STRATEGIC_PATCH
from tower.web.api.pages import paged
from tower.web.api.selectors import NAME_FIELD, Fields, Selection
from tower.web.api.table import Column, Object, seconds_since, table
from tower.web.api.watch import WATCH_HEADERS, Watching, WatchLimits
from tower.web.api.writes.client_events import read_change, read_event
from tower.web.outcome import Outcome, Response, StreamingResponse

NAMESPACE = "default"

_PATCHES = (STRATEGIC_PATCH, MERGE_PATCH)


@define(eq=False, repr=False)
class EventsApi:
    """The events, in the form of one API group.

    :param group: of the core group, or of `events.k8s.io`.
    :param version: returns the store's resource version.
    """

    _group: discovery.GroupVersion
    _clusters: Clusters
    _events: ClusterEvents
    _version: Callable[[], int]
    _clock: IReactorTime
    _limits: WatchLimits
    _watching: Watching[ClusterEvent] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watching = Watching(
            self._events, self._version, self.show, self._clock, self._limits, (self._group.name, "Event")
        )

    def show(self, event: ClusterEvent) -> Object:
        """Return the object of *event*."""
        first, last = timestamp(event.first), timestamp(event.last)
        cluster = {
            "apiVersion": API_VERSION,
            "kind": "Cluster",
            "name": event.cluster,
            "uid": event.cluster_uid,
        }
        shown: Object = {
            "apiVersion": self._group.name,
            "kind": "Event",
            "metadata": {
                "name": event.name,
                "namespace": NAMESPACE,
                "uid": event.name,
                "resourceVersion": str(event.resource_version),
                "creationTimestamp": first,
            },
            "eventTime": None,
            "reason": event.reason,
            "type": event.level,
        }
        if self._group.group:
            return shown | {
                "regarding": cluster,
                "note": event.message,
                "reportingController": event.component,
                "reportingInstance": "",
                "deprecatedSource": {"component": event.component},
                "deprecatedFirstTimestamp": first,
                "deprecatedLastTimestamp": last,
                "deprecatedCount": event.count,
                **_series(event),
            }
        return shown | {
            "involvedObject": cluster,
            "message": event.message,
            "source": {"component": event.component},
            "firstTimestamp": first,
            "lastTimestamp": last,
            "count": event.count,
            "reportingComponent": event.component,
            "reportingInstance": "",
        }

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ("events",) | ("namespaces", _, "events")):
                return self._list_or_watch(call, "" if len(below) == 1 else below[1])
            case "POST", ("namespaces", namespace, "events"):
                return await self._create(call, namespace)
            case (("GET" | "HEAD" | "PATCH"), ("namespaces", namespace, "events", name)):
                event = self._events.get(name)
                if event is None or namespace != NAMESPACE:
                    raise NotFound(f'events "{name}" not found')
                if call.method == "PATCH":
                    return await self._patch(call, event)
                return self._answer(call, [self.show(event)], {}, one=True)
            case _, ("events",) | ("namespaces", _, "events") | ("namespaces", _, "events", _):
                raise StatusError(
                    405,
                    f"{call.method} is not supported on this path: events can be created and patched, "
                    "and are removed an hour after their last occurrence",
                )
        raise not_found()

    async def _create(self, call: Call, namespace: str) -> Response:
        reported = read_event(await self._read(call, PROTOBUF), self._group, call.manager)
        if namespace != NAMESPACE:
            raise StatusError(
                400, f"namespace {namespace!r}: events of clusters are in the namespace {NAMESPACE}"
            )
        cluster = self._clusters.require(reported.cluster)
        if reported.uid not in ("", cluster.uid):
            raise NotFound(f"cluster {cluster.name} has uid {cluster.uid}, not {reported.uid}")
        event = await self._record(
            cluster, reported.component, reported.reason, reported.message, reported.level, reported.count
        )
        return Response.of_json(self.show(event), 201)

    async def _patch(self, call: Call, event: ClusterEvent) -> Response:
        if call.media not in _PATCHES:
            raise StatusError(
                415, f"media type {call.media or 'none'} is not supported: send {' or '.join(_PATCHES)}"
            )
        level, message, count = read_change(await self._read(call, *_PATCHES), self._group)
        if event.component == TOWER:
            raise StatusError(403, f"event {event.name} is one of Tower's own and cannot be changed")
        found = await self._record(
            self._clusters.require(event.cluster),
            event.component,
            event.reason,
            event.message if message is None else message,
            level or event.level,
            count,
        )
        return Response.of_json(self.show(found))

    async def _read(self, call: Call, *media: str) -> dict[str, Any]:
        if call.dry_run:
            raise StatusError(400, "dryRun: not supported for Event")
        return await call.read(*media)

    async def _record(
        self, cluster: Cluster, component: str, reason: str, message: str, level: EventLevel, count: int
    ) -> ClusterEvent:
        try:
            return await self._events.record_of_client(cluster, component, reason, message, level, count)
        except TooManyEvents as e:
            raise StatusError(429, str(e)) from e

    def _list_or_watch(self, call: Call, namespace: str) -> Outcome:
        fields = call.query.get("fieldSelector", "")
        if namespace:
            fields = f"{fields},metadata.namespace={namespace}"
        selection = Selection({**call.query, "fieldSelector": fields}, _FIELDS)
        if call.flag("watch"):
            return self._watch(call, selection)
        events = self._events.list()
        items = [item for item in map(self.show, events) if selection.matches(item)]
        items, metadata = paged(call, items, self._version(), self._events.check)
        if "continue" not in metadata and not call.query.get("continue"):
            # kubectl describe sorts by times in seconds: keep the order within a second
            last = {event.name: event.last for event in events}
            items.sort(key=lambda item: last[item["metadata"]["name"]])
        return self._answer(call, items, metadata)

    def _watch(self, call: Call, selection: Selection) -> StreamingResponse:
        media = call.table

        def form(item: Object) -> Object:
            return self._table(call, [item], {})

        start = self._watching.watch(call.query, selection, form if media else None, bookmarks=not media)
        return StreamingResponse(start, 200, WATCH_HEADERS)

    def _answer(
        self, call: Call, items: list[Object], metadata: dict[str, Any], *, one: bool = False
    ) -> Response:
        if call.table:
            return Response.of_json(self._table(call, items, metadata))
        if one:
            return Response.of_json(items[0])
        return Response.of_json(
            {"apiVersion": self._group.name, "kind": "EventList", "metadata": metadata, "items": items}
        )

    def _table(self, call: Call, items: list[Object], metadata: dict[str, Any]) -> Object:
        now, media, include = self._clock.seconds(), call.table, call.include
        return table(EVENT_COLUMNS, items, now, media=media, include=include, metadata=metadata)


def _series(event: ClusterEvent) -> Object:
    """Return the series of an event of a client, which newer clients continue."""
    if event.component == TOWER or event.count < 2:
        return {}
    last = timestamp(event.last).removesuffix("Z") + ".000000Z"
    return {"series": {"count": event.count, "lastObservedTime": last}}


def _either(item: Object, *names: str) -> Any:
    """Return the first field that *item* has; the two groups have different names."""
    return next(item[name] for name in names if name in item)


def _cluster(item: Object) -> Object:
    cluster: Object = _either(item, "involvedObject", "regarding")
    return cluster


def _component(item: Object) -> str:
    return str(_either(item, "reportingComponent", "reportingController"))


def _ago(item: Object, now: float, *names: str) -> str:
    return human_duration(seconds_since(_either(item, *names), now) or 0)


#: Fields of field selectors; those of the object have a name for each of the two groups.
_FIELDS: Fields = {
    **NAME_FIELD,
    "metadata.namespace": lambda _: NAMESPACE,
    "reason": lambda item: str(item["reason"]),
    "type": lambda item: str(item["type"]),
    "source": _component,
    "reportingComponent": _component,
    "reportingController": _component,
    **{
        f"{name}.{key}": lambda item, key=key: str(_cluster(item).get(key, ""))  # type: ignore[misc]
        for name in ("involvedObject", "regarding")
        for key in ("apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath")
    },
}

EVENT_COLUMNS = (
    Column(
        "Last Seen",
        "Time since the last occurrence.",
        lambda item, now: _ago(item, now, "lastTimestamp", "deprecatedLastTimestamp"),
    ),
    Column("Type", "Normal or Warning.", lambda item, _: item["type"]),
    Column("Reason", "Machine-readable reason.", lambda item, _: item["reason"]),
    Column("Object", "The cluster.", lambda item, _: f"cluster/{_cluster(item)['name']}"),
    Column("Message", "Human-readable description.", lambda item, _: _either(item, "message", "note")),
    Column(
        "First Seen",
        "Time since the first occurrence.",
        lambda item, now: _ago(item, now, "firstTimestamp", "deprecatedFirstTimestamp"),
        priority=1,
    ),
    Column(
        "Count",
        "Number of occurrences.",
        lambda item, _: _either(item, "count", "deprecatedCount"),
        "integer",
        priority=1,
    ),
    Column(
        "Name",
        "Name of the event.",
        lambda item, _: item["metadata"]["name"],
        format="name",
        priority=1,
    ),
)
