"""The resource `events`, of `events.k8s.io` and of the core group: the events of clusters.

Clusters have no namespace, so their events are in the namespace `default`, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION
from tower.clusters.cluster_events import ClusterEvent, ClusterEvents
from tower.durations import human_duration
from tower.errors import NotFound
from tower.kube.timestamps import timestamp
from tower.web.api import discovery
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.pages import paged
from tower.web.api.selectors import Selection
from tower.web.api.table import Column, Object, seconds_since, table
from tower.web.api.watch import Watching, WatchLimits
from tower.web.outcome import JSON_TYPE, Outcome, Response, StreamingResponse

NAMESPACE = "default"
_COMPONENT = "tower-proxy"


@define(eq=False, repr=False)
class EventsApi:
    """The events, in the form of one API group.

    :param group: of the core group, or of `events.k8s.io`.
    :param version: returns the store's resource version.
    """

    _group: discovery.GroupVersion
    _events: ClusterEvents
    _version: Callable[[], int]
    _clock: IReactorTime
    _watching: Watching[ClusterEvent] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watching = Watching(
            self._events, self._version, self.show, self._clock, WatchLimits(), (self._group.name, "Event")
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
                "reportingController": _COMPONENT,
                "reportingInstance": "",
                "deprecatedSource": {"component": _COMPONENT},
                "deprecatedFirstTimestamp": first,
                "deprecatedLastTimestamp": last,
                "deprecatedCount": event.count,
            }
        return shown | {
            "involvedObject": cluster,
            "message": event.message,
            "source": {"component": _COMPONENT},
            "firstTimestamp": first,
            "lastTimestamp": last,
            "count": event.count,
            "reportingComponent": _COMPONENT,
            "reportingInstance": "",
        }

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match below:
            case ("events",) | ("namespaces", _, "events"):
                _only_read(call)
                return self._list_or_watch(call, "" if len(below) == 1 else below[1])
            case ("namespaces", namespace, "events", name):
                _only_read(call)
                event = self._events.get(name)
                if event is None or namespace != NAMESPACE:
                    raise NotFound(f'events "{name}" not found')
                return self._answer(call, [self.show(event)], {}, one=True)
        raise not_found()

    def _list_or_watch(self, call: Call, namespace: str) -> Outcome:
        fields = call.query.get("fieldSelector", "")
        if namespace:
            fields = f"{fields},metadata.namespace={namespace}"
        selection = Selection({**call.query, "fieldSelector": fields}, _FIELDS)
        if call.flag("watch"):
            return self._watch(call, selection)
        items = [item for item in map(self.show, self._events.list()) if selection.matches(item)]
        items, metadata = paged(call, items, self._version(), self._events.check)
        return self._answer(call, items, metadata)

    def _watch(self, call: Call, selection: Selection) -> StreamingResponse:
        media = call.table

        def form(item: Object) -> Object:
            return self._table(call, [item], {}) if media else item

        start = self._watching.watch(call.query, selection, form, bookmarks=not media)
        return StreamingResponse(start, 200, (JSON_TYPE, (b"Cache-Control", b"no-cache, private")))

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


def _only_read(call: Call) -> None:
    if call.method not in ("GET", "HEAD"):
        raise method_not_allowed(call)


def _either(item: Object, *names: str) -> Any:
    """Return the first field that *item* has; the two groups have different names."""
    return next(item[name] for name in names if name in item)


def _cluster(item: Object) -> Object:
    cluster: Object = _either(item, "involvedObject", "regarding")
    return cluster


def _ago(item: Object, now: float, *names: str) -> str:
    return human_duration(seconds_since(_either(item, *names), now) or 0)


#: Fields of field selectors; those of the object have a name for each of the two groups.
_FIELDS: dict[str, Callable[[Object], str]] = {
    "metadata.name": lambda item: str(item["metadata"]["name"]),
    "metadata.namespace": lambda _: NAMESPACE,
    "reason": lambda item: str(item["reason"]),
    "type": lambda item: str(item["type"]),
    "source": lambda _: _COMPONENT,
    "reportingComponent": lambda _: _COMPONENT,
    "reportingController": lambda _: _COMPONENT,
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
