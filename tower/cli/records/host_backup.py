"""All objects of a proxy in its host cluster, for a backup, and their restore into an empty one.

Objects are saved unchanged, so fields of other programs stay.  A new cluster gives them new uids, so a
``Cluster`` gets its old one as an annotation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TypeVar

from attrs import frozen
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower import __version__
from tower.cli.client import CommandFailed
from tower.cli.records.host_session import reactor, with_host
from tower.cli.records.store_copy import check_no_leader
from tower.clusters.host.host_object import CREATED, SERVED_TYPES, UID, ClusterCodec, record_value
from tower.clusters.host.restored_status import restored_status
from tower.controller.leader.state_secret import STATE_OBJECT
from tower.controller.objects.service_objects import CLUSTER_LABEL
from tower.errors import Invalid, one_line
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS, SECRETS
from tower.store.archive import HOST_OBJECTS, Backup, SavedFile
from tower.store.kubernetes.host_kinds import TRANSACTIONS, own_codecs
from tower.store.kubernetes.object_codec import TRANSACTION

T = TypeVar("T")

#: Attempts to read objects that do not change meanwhile, and the pause between them, s.
_ATTEMPTS, _PAUSE = 10, 0.5

_NOT_FOUND, _CONFLICT = 404, 409

#: Metadata that is restored.
_KEPT = ("name", "labels", "annotations")

#: Fields of a cluster's connection that have secrets.
_SECRET_FIELDS = ("kubeconfig", "token", "proxyToken")

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@frozen
class SavedType:
    """A type of objects in a backup.

    :ivar selector: label selector; empty: all.
    """

    resource: ResourceType
    selector: str = ""


#: In the order of a restore: a proxy that starts too early finds the keys, and no record without a cluster.
_TYPES = (
    SavedType(CLUSTERS),
    SavedType(SECRETS, CLUSTER_LABEL),
    *(SavedType(codec.resource, codec.selector) for codec in own_codecs()),
)


def take_objects(options: argparse.Namespace, now: float, *, with_secrets: bool) -> Backup:
    """Return a backup of the host cluster that *options* name.

    :param now: s since the epoch.
    """

    async def take(api: HostAPI) -> list[Object]:
        saving = saved_objects(api, options.namespace, reactor, with_secrets=with_secrets)
        return await _explained(saving)

    objects = with_host(options, take)
    data = json.dumps(objects, separators=(",", ":")).encode()
    return Backup(__version__, now, has_secrets=with_secrets, files={HOST_OBJECTS: SavedFile(data, 0o600)})


def put_objects(options: argparse.Namespace, backup: Backup, now: float) -> None:
    """Restore a backup into the host cluster that *options* name.

    :param now: s since the epoch.
    """
    objects: list[Object] = json.loads(backup.files[HOST_OBJECTS].data)

    async def put(api: HostAPI) -> None:
        await check_no_leader(api, options.namespace)
        await _explained(restore_objects(api, options.namespace, objects, now))

    with_host(options, put)


async def _explained(doing: Awaitable[T]) -> T:
    try:
        return await doing
    except APIError as e:
        cures = {
            403: ": use a kubeconfig with the rights of 'tower rbac host'",
            404: ": install Tower's CRDs (deploy/crds), and create the namespace",
        }
        raise CommandFailed(f"the host cluster: {one_line(e)}{cures.get(e.code, '')}") from e


async def saved_objects(
    api: HostAPI, namespace: str, clock: IReactorTime, *, with_secrets: bool = True
) -> list[Object]:
    """Return all objects of a proxy, in the order of a restore; the proxy may run.

    :raise CommandFailed: there are none, or they change all the time.
    :raise APIError: they cannot be read.
    """
    before: list[Object] = []
    for _ in range(_ATTEMPTS):
        is_settled = not (await api.list(TRANSACTIONS, namespace)).items
        found = [obj async for obj in _objects(api, namespace)]
        if found == before and is_settled:
            return [each for obj in found if (each := _portable(obj, with_secrets=with_secrets)) is not None]
        before = found
        await deferLater(clock, _PAUSE)
    raise CommandFailed(
        f"the objects in namespace {namespace} changed during each attempt, or a transaction is unfinished: "
        "try again while a proxy leads"
    )


async def restore_objects(api: HostAPI, namespace: str, objects: list[Object], now: float) -> None:
    """Create the objects; a restore that was interrupted can be repeated.

    :param now: s since the epoch.
    :raise CommandFailed: an object exists and differs; if it is the first one, nothing was written.
    """
    types = {each.resource.kind: each.resource for each in _TYPES}
    for obj in objects:
        resource = types[obj["kind"]]
        where = namespace if resource.namespaced else None
        metadata = {**obj["metadata"], **({"namespace": namespace} if where else {})}
        restored = {**obj, "metadata": metadata}
        if resource == CLUSTERS and "status" in obj:
            restored["status"] = restored_status(obj["status"], SERVED_TYPES, now)
        await _create(api, resource, restored, where)


async def _create(api: HostAPI, resource: ResourceType, obj: Object, namespace: str | None) -> None:
    name = obj["metadata"]["name"]
    try:
        created = await api.create(resource, obj, namespace)
    except APIError as e:
        if e.code != _CONFLICT:
            raise
        present = _typed(resource, await api.get(resource, name, namespace))
        if _content(present) != _content(obj):
            raise CommandFailed(
                f"{resource.kind} {name} exists in the host cluster, and differs from the backup: restore "
                "into an empty one, or delete that object first"
            ) from None
        created = present
    if "status" in obj and created.get("status") != obj["status"]:
        try:
            await api.update(resource, {**created, "status": obj["status"]}, namespace, "status")
        except APIError as e:
            if e.code != _NOT_FOUND:  # without this subresource, the status was created with the object
                raise


async def _objects(api: HostAPI, namespace: str) -> AsyncIterator[Object]:
    """Yield the objects unchanged, and Cluster objects that are not Tower's."""
    yield _typed(SECRETS, await _state(api, namespace))
    for each in _TYPES:
        where = namespace if each.resource.namespaced else None
        for obj in (await api.list(each.resource, where, each.selector)).items:
            yield _typed(each.resource, obj)


async def _state(api: HostAPI, namespace: str) -> Object:
    try:
        return await api.get(SECRETS, STATE_OBJECT, namespace)
    except APIError as e:
        if e.code != _NOT_FOUND:
            raise
        raise CommandFailed(
            f"there is no Secret {namespace}/{STATE_OBJECT}: set --namespace to that of the proxy"
        ) from None


def _typed(resource: ResourceType, obj: Object) -> Object:
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}


def _portable(obj: Object, *, with_secrets: bool) -> Object | None:
    """Return an object for another cluster; None: it does not belong into a backup."""
    is_cluster, is_secret = obj["kind"] == CLUSTERS.kind, obj["kind"] == SECRETS.kind
    is_sealed = any(codec.resource == SECRETS and _has_label(obj, codec.selector) for codec in own_codecs())
    if is_secret and not is_sealed and not with_secrets:
        return None
    metadata = {key: obj["metadata"][key] for key in _KEPT if obj["metadata"].get(key)}
    portable = {**obj, "metadata": metadata}
    if is_cluster:
        try:
            value = record_value(obj)
        except Invalid:
            return None
        if value is None or "deletionTimestamp" in obj["metadata"]:
            return None
        own = {UID: f"{metadata['name']}/{ClusterCodec().owner(obj)}", CREATED: json.dumps(value["created"])}
        texts = {**metadata.get("annotations", {}), **own}
        metadata["annotations"] = {key: text for key, text in texts.items() if key != TRANSACTION}
        if not with_secrets:
            _drop_secrets(portable)
    return portable


def _drop_secrets(cluster: Object) -> None:
    cluster["metadata"]["annotations"].pop(_APPLIED, None)
    spec = cluster.get("spec") or {}
    connection = {
        key: part for key, part in (spec.get("connection") or {}).items() if key not in _SECRET_FIELDS
    }
    spec = {key: part for key, part in spec.items() if key != "config"}
    cluster["spec"] = {**spec, "connection": connection}


def _has_label(obj: Object, selector: str) -> bool:
    key, _, value = selector.partition("=")
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(key) == value


def _content(obj: Object) -> Object:
    return {key: part for key, part in obj.items() if key not in ("metadata", "status")}
