"""Writes to the resource `clusters`: create, update, patch, apply, delete, also of the status."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve, frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.clusters.cluster import check_metadata, cluster_not_found
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import AlreadyExists, Invalid
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp
from tower.web.api.calls.call import Call
from tower.web.api.calls.media_types import APPLY_PATCH
from tower.web.api.objects import delete_response
from tower.web.api.table import Object
from tower.web.api.writes.cluster_object import DesiredCluster, read_access, read_cluster
from tower.web.api.writes.cluster_writes import (
    Write,
    applied,
    check_identity,
    created,
    creation,
    replaced,
    status_applied,
    status_replaced,
)
from tower.web.api.writes.create_right import CreateRight
from tower.web.api.writes.requests import (
    changed_meanwhile,
    checked,
    kubeconfig_warnings,
    read_delete_options,
    read_patch,
    require_name,
    version_in,
    write_response,
)
from tower.web.outcome import Response

#: See `tower.nodes.record_files.NodeFiles.check`.
CheckFiles: TypeAlias = Callable[[str, SSHSpec, SSHSpec | None], None]


@frozen(eq=False, repr=False)
class ClusterWriter:
    """Writes clusters for the API.

    :param show: returns the object of a cluster.
    :param shown: returns it as a request wants it, perhaps as a table.
    """

    _clusters: Clusters
    _clock: IReactorTime
    _show: Callable[[Cluster], Object]
    _shown: Callable[[Call, Cluster], Object]
    _check_files: CheckFiles
    _create_right: CreateRight

    async def change(self, call: Call, name: str, *, status: bool) -> Response:
        """Update or patch a cluster, or its *status*."""
        if call.method == "PUT":
            return await self._put(call, name, status=status)
        if call.media == APPLY_PATCH:
            return await self._apply(call, name, status=status)
        return await self._patch(call, name, status=status)

    async def create(self, call: Call) -> Response:
        """Add a cluster."""
        value, warnings = checked(call, await call.read())
        wanted, access = read_cluster(value), read_access(value)
        write = self._write(call, access)
        cluster = created(wanted, self._blank(wanted.name), write)
        return await self._add(call, wanted, cluster, access, warnings)

    async def _add(
        self,
        call: Call,
        wanted: DesiredCluster,
        cluster: Cluster,
        access: KubeAccess | None,
        warnings: list[str],
    ) -> Response:
        warnings = warnings + kubeconfig_warnings(access)
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
            check_metadata(cluster)
        else:
            cluster = await self._clusters.add(
                wanted.name,
                enabled=cluster.enabled,
                labels=cluster.labels,
                annotations=cluster.annotations,
                port=wanted.port,
                ssh=cluster.ssh,
                access=access,
                meta=cluster.meta,
            )
        return write_response(self._shown(call, cluster), 201, warnings)

    async def _put(self, call: Call, name: str, *, status: bool) -> Response:
        value, warnings = checked(call, await call.read())
        require_name(value, name)
        version, access = version_in(value), None if status else read_access(value)
        write = self._write(call, access)
        if version is None:
            raise StatusError(422, "metadata.resourceVersion: must be specified for an update")

        def edit(old: Cluster) -> Cluster:
            check_identity(value, old)
            return status_replaced(old, value, write) if status else replaced(old, value, write)

        return await self._change(call, name, edit, version, access, warnings)

    async def _patch(self, call: Call, name: str, *, status: bool) -> Response:
        if "force" in call.query:
            raise StatusError(422, "force: only for apply patches")
        patch = await read_patch(call)
        first, warnings = patch.result(self._show(self._clusters.require(name)))
        access = None if status else read_access(first)
        write = self._write(call, access)

        def edit(old: Cluster) -> Cluster:
            value, _ = patch.result(self._show(old))
            return status_replaced(old, value, write) if status else replaced(old, value, write)

        return await self._change(call, name, edit, patch.version, access, warnings)

    async def _apply(self, call: Call, name: str, *, status: bool) -> Response:
        if not call.query.get("fieldManager"):
            raise StatusError(422, "fieldManager: required for an apply patch")
        config, warnings = checked(call, await call.read(APPLY_PATCH))
        require_name(config, name)
        if config["metadata"].get("managedFields"):
            raise StatusError(400, "metadata.managedFields must be nil")
        version, access = version_in(config), None if status else read_access(config)
        write = self._write(call, access, force=call.flag("force"))
        if self._clusters.get(name) is None and not status:
            if version is not None or config["metadata"].get("uid"):
                raise cluster_not_found(name)
            self._create_right.check(call, name)
            wanted, cluster = creation(config, self._blank(name), write)
            return await self._add(call, wanted, cluster, access, warnings)

        def edit(old: Cluster) -> Cluster:
            check_identity(config, old)
            return status_applied(old, config, write) if status else applied(old, config, write)

        return await self._change(call, name, edit, version, access, warnings)

    async def _change(
        self,
        call: Call,
        name: str,
        edit: Callable[[Cluster], Cluster],
        version: int | None,
        access: KubeAccess | None,
        warnings: list[str],
    ) -> Response:
        def checked_edit(old: Cluster) -> Cluster:
            cluster = edit(old)
            if cluster.ssh is not None and cluster.ssh != old.ssh:
                self._check_files(cluster.name, cluster.ssh, old.ssh)
            return cluster

        if call.dry_run:
            old = self._clusters.require(name)
            if version not in (None, old.resource_version):
                raise changed_meanwhile(name)
            cluster = checked_edit(old)
            check_metadata(cluster)
        else:
            cluster = await self._clusters.change(name, checked_edit, version, access)
        return write_response(self._shown(call, cluster), 200, warnings + kubeconfig_warnings(access))

    async def delete(self, call: Call, name: str) -> Response:
        """Remove a cluster, or request it if there are finalizers."""
        options = read_delete_options(call, await call.read())
        now = self._clock.seconds()

        def edit(old: Cluster) -> Cluster:
            options.check(name, old.uid, old.resource_version)
            if old.meta.deleted is not None:
                return old
            return evolve(old, meta=evolve(old.meta, deleted=now, generation=old.meta.generation + 1))

        if options.dry_run:
            cluster = edit(self._clusters.require(name))
        else:
            cluster = await self._clusters.change(name, edit)
        if not cluster.meta.is_released:
            return Response.of_json(self._show(cluster))
        return delete_response("clusters", name, uid=cluster.uid)

    def _write(self, call: Call, access: KubeAccess | None, *, force: bool = False) -> Write:
        now = timestamp(self._clock.seconds())
        return Write(call.manager, now, has_kubeconfig=access is not None, force=force)

    def _blank(self, name: str) -> Cluster:
        return Cluster(name, "", 0, self._clock.seconds())
