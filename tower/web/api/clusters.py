"""The resource `clusters` of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from tower.clusters import API_VERSION, Cluster, Clusters, Live, to_object
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import AlreadyExists, Conflict, Invalid
from tower.kube.status import StatusError
from tower.tunnels import Tunnels
from tower.web.api import discovery
from tower.web.api.cluster_object import is_version, patched, read_access, read_wish
from tower.web.api.cluster_table import COLUMNS
from tower.web.api.dispatch import Call
from tower.web.api.field_validation import check_fields, kubeconfig_warnings, written
from tower.web.api.issuer import Published
from tower.web.api.selectors import Requirement, parse_fields, parse_labels, read_fields
from tower.web.api.ssh_status import shown_status
from tower.web.api.table import TABLES, Object, table
from tower.web.api.watch import Watching, WatchLimits
from tower.web.outcome import Outcome, Response, StreamingResponse

_FIELDS: dict[str, Callable[[Object], str]] = {"metadata.name": lambda item: str(item["metadata"]["name"])}
_MERGE_PATCH = "application/merge-patch+json"
_JSON_TYPE = (b"Content-Type", b"application/json")


#: See `tower.nodes.record_files.NodeFiles.check`.
CheckFiles: TypeAlias = Callable[[str, SSHSpec, SSHSpec | None], None]


class Clock(Protocol):
    """What is needed of a reactor."""

    def seconds(self) -> float:
        """Return the time, s since the epoch."""

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any:  # noqa: A002
        """Call *callable* after *delay* s."""


class Below(Protocol):
    """What is below one cluster, such as `agents`."""

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """Return the answer to *call*.

        :param below: what follows in the path.
        """


class Selection:
    """Which objects a list or a watch is about.

    :raise BadSelector: it cannot be read.
    """

    def __init__(self, call: Call) -> None:
        self._fields: list[Requirement] = parse_fields(call.query.get("fieldSelector", ""), _FIELDS)
        self._labels: list[Requirement] = parse_labels(call.query.get("labelSelector", ""))

    def is_about(self, item: Object) -> bool:
        """Say whether the fields that never change are those wanted."""
        values = read_fields(item, _FIELDS)
        return all(holds(values) for holds in self._fields)

    def is_labelled(self, item: Object) -> bool:
        """Say whether the labels are those wanted."""
        labels = item["metadata"].get("labels", {})
        return all(holds(labels) for holds in self._labels)


class ClusterApi:
    """:param version: returns the version of the last change in the store.
    :param below: what there is below a cluster, by name.
    :param accesses: keeps the credentials for clusters of type ssh.
    :param ssh_status: returns what is known of such a cluster's nodes, by the cluster's name.
    :param check_files: refuses what a cluster may not name, with what it named before.
    """

    def __init__(
        self,
        clusters: Clusters,
        tunnels: Tunnels,
        version: Callable[[], int],
        published: Published,
        clock: Clock,
        below: dict[str, Below],
        limits: WatchLimits | None = None,
        *,
        accesses: MemberCredentials | None = None,
        ssh_status: Callable[[str], SSHStatus | None] = lambda _: None,
        check_files: CheckFiles,
    ) -> None:
        self._clusters = clusters
        self._tunnels = tunnels
        self._version = version
        self._published = published
        self._clock = clock
        self._below = below
        self._accesses = accesses
        self._ssh_status = ssh_status
        self._check_files = check_files
        self._watching = Watching(clusters, version, self.show, clock, limits or WatchLimits())

    def show(self, cluster: Cluster) -> Object:
        """Return the object of *cluster* as it is this moment."""
        tunnels = self._tunnels.live(cluster.name)
        round_trips = [tunnel.round_trip for tunnel in tunnels if tunnel.round_trip]
        live = Live(
            endpoint=self._published.cluster_url(cluster.name) if self._published.is_known else "",
            tunnels=len(tunnels),
            version=tunnels[0].version if tunnels else "",
            last_seen=self._tunnels.last_seen(cluster.name),
            round_trip=min(round_trips, default=None),
            member=self._accesses.facts(cluster) if self._accesses is not None else None,
        )
        item = to_object(cluster, live)
        status = self._ssh_status(cluster.name) if cluster.ssh is not None else None
        if status is not None:
            item["status"]["ssh"] = shown_status(status)
        return item

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                return self._list_or_watch(call)
            case "POST", ():
                return await self._create(call)
            case (("GET" | "HEAD"), (name,)):
                return self._one(call, self._clusters.require(name))
            case "DELETE", (name,):
                return await self._delete(call, name)
            case "PATCH", (name,):
                return await self._patch(call, name)
            case _, (name, kind, *rest) if kind in self._below:
                return await self._below[kind].answer(call, self._clusters.require(name), tuple(rest))
            case _, (() | (_,)):
                raise StatusError(405, f"{call.method} is not for clusters")
        raise StatusError(404, "the server could not find the requested resource")

    def _list_or_watch(self, call: Call) -> Outcome:
        selection = Selection(call)
        if call.flag("watch"):
            return self._watch(call, selection)
        items = [self.show(cluster) for cluster in self._clusters.list()]
        items = [item for item in items if selection.is_about(item) and selection.is_labelled(item)]
        version = str(self._version())
        if call.table:
            return self._table(call, items, version)
        return Response.of_json(
            {
                "apiVersion": API_VERSION,
                "kind": "ClusterList",
                "metadata": {"resourceVersion": version},
                "items": items,
            }
        )

    def _watch(self, call: Call, selection: Selection) -> StreamingResponse:
        media = call.table

        def form(item: Object) -> Object:
            if not media:
                return item
            return table(COLUMNS, [item], self._clock.seconds(), media=media, include=call.include)

        start = self._watching.watch(call.query, selection, form, bookmarks=not media)
        return StreamingResponse(start, 200, (_JSON_TYPE, (b"Cache-Control", b"no-cache, private")))

    def _one(self, call: Call, cluster: Cluster) -> Response:
        item = self.show(cluster)
        if call.table:
            return self._table(call, [item], item["metadata"]["resourceVersion"])
        return Response.of_json(item)

    def _table(self, call: Call, items: list[Object], version: str) -> Response:
        now = self._clock.seconds()
        return Response.of_json(
            table(COLUMNS, items, now, media=call.table, include=call.include, resource_version=version)
        )

    async def _create(self, call: Call) -> Response:
        value = await call.read()
        warnings = check_fields(call, value)
        wish, access = read_wish(value), read_access(value)
        warnings += kubeconfig_warnings(access)
        if wish.ssh is not None:
            self._check_files(wish.name, wish.ssh, None)
        if wish.ssh is not None and access is None:
            raise Invalid(
                "spec.connection.kubeconfig: required for type 'ssh': a kubeconfig in base64, with the "
                "API server's address as the nodes see it, and a credential that may impersonate"
            )
        if call.dry_run:
            if self._clusters.get(wish.name) is not None:
                raise AlreadyExists(f"cluster {wish.name} already exists")
            cluster = Cluster(
                wish.name,
                "",
                0,
                self._clock.seconds(),
                enabled=wish.enabled,
                labels=wish.labels,
                annotations=wish.annotations,
                ssh=wish.ssh,
            )
        else:
            cluster = await self._clusters.add(
                wish.name,
                enabled=wish.enabled,
                labels=wish.labels,
                annotations=wish.annotations,
                port=wish.port,
                ssh=wish.ssh,
                access=access,
            )
        return written(self._shown(call, cluster), 201, warnings)

    async def _patch(self, call: Call, name: str) -> Response:
        media = call.content_type.partition(";")[0].strip().lower()
        if media != _MERGE_PATCH:
            raise StatusError(415, f"a patch of type {media or 'none'} is not supported: send {_MERGE_PATCH}")
        patch = await call.read()
        warnings = check_fields(call, patch)
        version, access = _version_in(patch), read_access(patch)
        warnings += kubeconfig_warnings(access)
        if call.dry_run:
            cluster = self._patched(self._clusters.require(name), patch)
        else:
            cluster = await self._clusters.change(
                name, lambda old: self._patched(old, patch), version, access
            )
        return written(self._shown(call, cluster), 200, warnings)

    def _patched(self, old: Cluster, patch: dict[str, Any]) -> Cluster:
        cluster = patched(old, patch)
        if cluster.ssh is not None:
            self._check_files(cluster.name, cluster.ssh, old.ssh)
        return cluster

    async def _delete(self, call: Call, name: str) -> Response:
        options = await call.read()
        conditions = options.get("preconditions")
        conditions = conditions if isinstance(conditions, dict) else {}
        dry = call.dry_run or options.get("dryRun") == ["All"]
        cluster = self._clusters.require(name)
        version = conditions.get("resourceVersion")
        if version is not None and version != str(cluster.resource_version):
            raise Conflict(f"cluster {name} was changed in between: read it again and retry")
        if not dry:
            await self._clusters.remove(name, conditions.get("uid"))
        return Response.of_json(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {
                    "name": name,
                    "group": discovery.GROUP,
                    "kind": "clusters",
                    "uid": cluster.uid,
                },
            }
        )

    def _shown(self, call: Call, cluster: Cluster) -> Object:
        item = self.show(cluster)
        if call.table in TABLES:
            return table(COLUMNS, [item], self._clock.seconds(), media=call.table)
        return item


def _version_in(patch: dict[str, Any]) -> int | None:
    metadata = patch.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version is None:
        return None
    if not is_version(version):
        raise StatusError(422, f"metadata.resourceVersion: {version!r}: must be one that was read here")
    return int(version)
