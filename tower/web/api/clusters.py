"""The resource `clusters` of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster, Clusters, Live, to_object
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import AlreadyExists, Conflict, Invalid
from tower.escaping import json_text
from tower.kube.flatten import warnings_of
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.tunnels import Tunnels
from tower.web.api.cluster_object import is_version, patched, read_access, read_cluster, unknown_fields
from tower.web.api.dispatch import Call, method_not_allowed, not_found
from tower.web.api.issuer import Published
from tower.web.api.nodes import ssh_status_object
from tower.web.api.objects import delete_response
from tower.web.api.selectors import Selection
from tower.web.api.table import CLUSTER_COLUMNS, TABLES, Object, table
from tower.web.api.watch import Watching, WatchLimits
from tower.web.outcome import JSON_TYPE, Outcome, Response, StreamingResponse

_FIELDS: dict[str, Callable[[Object], str]] = {"metadata.name": lambda item: str(item["metadata"]["name"])}
_MERGE_PATCH = "application/merge-patch+json"
#: See `tower.nodes.record_files.NodeFiles.check`.
CheckFiles: TypeAlias = Callable[[str, SSHSpec, SSHSpec | None], None]


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
    _watching: Watching = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watching = Watching(self._clusters, self._version, self.show, self._clock, self._limits)

    def show(self, cluster: Cluster) -> Object:
        """Return the current object of *cluster*."""
        tunnels = self._tunnels.live(cluster.name)
        round_trips = [tunnel.round_trip for tunnel in tunnels if tunnel.round_trip]
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
                raise method_not_allowed(call)
        raise not_found()

    def _list_or_watch(self, call: Call) -> Outcome:
        selection = Selection(call.query, _FIELDS)
        if call.flag("watch"):
            return self._watch(call, selection)
        items = [self.show(cluster) for cluster in self._clusters.list()]
        items = [item for item in items if selection.matches_fields(item) and selection.matches_labels(item)]
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
            return table(CLUSTER_COLUMNS, [item], self._clock.seconds(), media=media, include=call.include)

        start = self._watching.watch(call.query, selection, form, bookmarks=not media)
        return StreamingResponse(start, 200, (JSON_TYPE, (b"Cache-Control", b"no-cache, private")))

    def _one(self, call: Call, cluster: Cluster) -> Response:
        item = self.show(cluster)
        if call.table:
            return self._table(call, [item], item["metadata"]["resourceVersion"])
        return Response.of_json(item)

    def _table(self, call: Call, items: list[Object], version: str) -> Response:
        now, media, include = self._clock.seconds(), call.table, call.include
        return Response.of_json(
            table(CLUSTER_COLUMNS, items, now, media=media, include=include, resource_version=version)
        )

    async def _create(self, call: Call) -> Response:
        value = await call.read()
        warnings = _check_fields(call, value)
        wanted, access = read_cluster(value), read_access(value)
        warnings += _kubeconfig_warnings(access)
        if wanted.ssh is not None:
            self._check_files(wanted.name, wanted.ssh, None)
        if wanted.ssh is not None and access is None:
            raise Invalid(
                "spec.connection.kubeconfig: required for type 'ssh': a kubeconfig in base64, with the "
                "API server's address as the nodes see it, and a credential that may impersonate"
            )
        if call.dry_run:
            if self._clusters.get(wanted.name) is not None:
                raise AlreadyExists(f"cluster {wanted.name} already exists")
            cluster = wanted.apply(Cluster(wanted.name, "", 0, self._clock.seconds()))
        else:
            cluster = await self._clusters.add(
                wanted.name,
                enabled=wanted.enabled,
                labels=wanted.labels,
                annotations=wanted.annotations,
                port=wanted.port,
                ssh=wanted.ssh,
                access=access,
            )
        return _write_response(self._shown(call, cluster), 201, warnings)

    async def _patch(self, call: Call, name: str) -> Response:
        media = call.content_type.partition(";")[0].strip().lower()
        if media != _MERGE_PATCH:
            raise StatusError(415, f"patch type {media or 'none'} is not supported: send {_MERGE_PATCH}")
        patch = await call.read()
        warnings = _check_fields(call, patch)
        version, access = _version_in(patch), read_access(patch)
        warnings += _kubeconfig_warnings(access)
        if call.dry_run:
            cluster = self._patched(self._clusters.require(name), patch)
        else:
            cluster = await self._clusters.change(
                name, lambda old: self._patched(old, patch), version, access
            )
        return _write_response(self._shown(call, cluster), 200, warnings)

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
            raise Conflict(f"cluster {name} was changed meanwhile: read it again and retry")
        if not dry:
            await self._clusters.remove(name, conditions.get("uid"))
        return delete_response("clusters", name, uid=cluster.uid)

    def _shown(self, call: Call, cluster: Cluster) -> Object:
        item = self.show(cluster)
        if call.table in TABLES:
            return table(CLUSTER_COLUMNS, [item], self._clock.seconds(), media=call.table)
        return item


def _version_in(patch: dict[str, Any]) -> int | None:
    metadata = patch.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version is None:
        return None
    if not is_version(version):
        raise StatusError(422, f"metadata.resourceVersion: {version!r}: must be one that this API returned")
    return int(version)


def _check_fields(call: Call, value: dict[str, Any]) -> list[str]:
    """Return warnings about unknown fields; see Kubernetes' field validation.

    :raise StatusError: there are unknown fields, and the client requests strict validation.
    """
    wanted = call.query.get("fieldValidation") or "Warn"
    if wanted not in ("Ignore", "Warn", "Strict"):
        raise StatusError(422, f"fieldValidation: {wanted!r}: must be Ignore, Warn or Strict")
    if wanted == "Ignore":
        return []
    texts = [f'unknown field "{path}"' for path in unknown_fields(value)]
    if texts and wanted == "Strict":
        raise StatusError(400, f"strict decoding error: {', '.join(texts)}")
    return texts


def _kubeconfig_warnings(access: KubeAccess | None) -> list[str]:
    """Return warnings about the credential for a member."""
    return [f"spec.connection.kubeconfig: {text}" for text in (warnings_of(access) if access else ())]


def _write_response(item: Object, code: int, warnings: list[str]) -> Response:
    """Return the answer to a write of *item*, with *warnings*."""
    body = json_text(item, separators=(",", ":")).encode()
    notes = tuple((b"Warning", _warning(text)) for text in warnings[:10])
    return Response(code, body, (JSON_TYPE, *notes))


def _warning(text: str) -> bytes:
    """Return the value of a `Warning` header, as kube-apiserver writes it (RFC 7234 section 5.5)."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)[:200]
    quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode("ascii")
