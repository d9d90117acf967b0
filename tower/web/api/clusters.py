"""The resource `clusters` of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster, Clusters, Live, to_object
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import SSHStatus
from tower.tunnels import Tunnels
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.discovery import TOWER
from tower.web.api.issuer import Published
from tower.web.api.nodes import ssh_status_object
from tower.web.api.pages import check_version, paged
from tower.web.api.selectors import NAME_FIELD, Selection
from tower.web.api.table import CLUSTER_COLUMNS, TABLES, Object, table
from tower.web.api.watch import WATCH_HEADERS, Watching, WatchLimits
from tower.web.api.writes.cluster_writer import CheckFiles, ClusterWriter
from tower.web.api.writes.create_right import CreateRight
from tower.web.outcome import Outcome, Response, StreamingResponse


class Subresource(Protocol):
    """A resource below one cluster, such as `agents`."""

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """Return the answer to *call*; *below* is the rest of the path."""


@define(eq=False, repr=False)
class ClusterApi:
    """The resource `clusters`.

    :param version: returns the store's resource version.
    :param below: the subresources by name.
    :param ssh_status: returns the status of the nodes of a cluster of type ssh, by the cluster's name.
    :param check_files: checks the files that a cluster names; also gets the spec before the change.
    :param rights: those of users at Tower's own API.
    """

    _clusters: Clusters
    _tunnels: Tunnels
    _version: Callable[[], int]
    _published: Published
    _clock: IReactorTime
    _below: dict[str, Subresource]
    _limits: WatchLimits = field(factory=WatchLimits)
    _accesses: MemberCredentials | None = field(default=None, kw_only=True)
    _ssh_status: Callable[[str], SSHStatus | None] = field(default=lambda _: None, kw_only=True)
    _check_files: CheckFiles = field(kw_only=True)
    _rights: OwnRights = field(kw_only=True)
    _watching: Watching[Cluster] = field(init=False)
    _writer: ClusterWriter = field(init=False)

    def __attrs_post_init__(self) -> None:
        create_right = CreateRight(self._rights, TOWER, "clusters")
        self._writer = ClusterWriter(
            self._clusters, self._clock, self.show, self._shown, self._check_files, create_right
        )
        self._watching = Watching(
            self._clusters, self._version, self.show, self._clock, self._limits, (API_VERSION, "Cluster")
        )

    def show(self, cluster: Cluster) -> Object:
        """Return the current object of *cluster*."""
        tunnels = self._tunnels.live(cluster.name)
        round_trips = [
            tunnel.round_trip
            for tunnel in tunnels
            if tunnel.round_trip and not self._tunnels.is_silent(tunnel)
        ]
        state = self._tunnels.member_status(cluster.name)
        live = Live(
            endpoint=self._published.cluster_url(cluster.name) if self._published.is_known else "",
            tunnels=len(tunnels),
            version=tunnels[0].version if tunnels else "",
            last_seen=self._tunnels.last_seen(cluster.name),
            round_trip=min(round_trips, default=None),
            member=self._accesses.facts(cluster) if self._accesses is not None else None,
            kubernetes_version=self._tunnels.kubernetes_version(cluster.name),
            credential_expires=None if state is None else state.credential_expires,
        )
        item = to_object(cluster, live)
        status = self._ssh_status(cluster.name) if cluster.ssh is not None else None
        if status is not None:
            item["status"]["ssh"] = ssh_status_object(status)
        return item

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                return self._list_or_watch(call)
            case "POST", ():
                return await self._writer.create(call)
            case (("GET" | "HEAD"), ((name,) | (name, "status"))):
                return self._one(call, self._clusters.require(name))
            case "DELETE", (name,):
                return await self._writer.delete(call, name)
            case (("PUT" | "PATCH"), (name, *rest)) if rest in ([], ["status"]):
                return await self._writer.change(call, name, status=bool(rest))
            case _, (name, kind, *rest) if kind in self._below:
                return await self._below[kind].answer(call, self._clusters.require(name), tuple(rest))
            case _, (() | (_,) | (_, "status")):
                raise method_not_allowed(call)
        raise not_found()

    def _list_or_watch(self, call: Call) -> Outcome:
        selection = Selection(call.query, NAME_FIELD)
        if call.flag("watch"):
            return self._watch(call, selection)
        items = [item for item in map(self.show, self._clusters.list()) if selection.matches(item)]
        items, metadata = paged(call, items, self._version(), self._clusters.check)
        if call.table:
            return self._table(call, items, metadata)
        return Response.of_json(
            {"apiVersion": API_VERSION, "kind": "ClusterList", "metadata": metadata, "items": items}
        )

    def _watch(self, call: Call, selection: Selection) -> StreamingResponse:
        media = call.table

        def form(item: Object) -> Object:
            return table(CLUSTER_COLUMNS, [item], self._clock.seconds(), media=media, include=call.include)

        start = self._watching.watch(call.query, selection, form if media else None, bookmarks=not media)
        return StreamingResponse(start, 200, WATCH_HEADERS)

    def _one(self, call: Call, cluster: Cluster) -> Response:
        check_version(call, self._version(), self._clusters.check)
        item = self.show(cluster)
        if call.table:
            return self._table(call, [item], {"resourceVersion": item["metadata"]["resourceVersion"]})
        return Response.of_json(item)

    def _table(self, call: Call, items: list[Object], metadata: dict[str, Any]) -> Response:
        now, media, include = self._clock.seconds(), call.table, call.include
        return Response.of_json(
            table(CLUSTER_COLUMNS, items, now, media=media, include=include, metadata=metadata)
        )

    def _shown(self, call: Call, cluster: Cluster) -> Object:
        item = self.show(cluster)
        if call.table in TABLES:
            return table(CLUSTER_COLUMNS, [item], self._clock.seconds(), media=call.table)
        return item
