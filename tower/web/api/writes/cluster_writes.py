"""Results of writes to a cluster: replacement and server-side apply, also of its status.  Sans-IO.

Everything here is a pure function, because a write is repeated after a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from tower.clusters import Cluster, to_object
from tower.errors import Conflict, Invalid
from tower.web.api.fields.kinds import CLUSTER
from tower.web.api.fields.managers import (
    ManagerKey,
    Managers,
    Owned,
    after_update,
    apply,
    before_first_apply,
    read_managers,
    show_managers,
)
from tower.web.api.fields.schema import field_set
from tower.web.api.fields.sets import EMPTY, FieldSet, key_element
from tower.web.api.writes.cluster_object import (
    DesiredCluster,
    cluster_type,
    read_cluster,
    read_conditions,
)

STATUS = "status"

#: Owner of Tower's own conditions.
_TOWER = ManagerKey("Update", "tower-proxy", STATUS)

_WRITABLE = ("labels", "annotations", "finalizers", "ownerReferences")
_KUBECONFIG = frozenset({("f:spec", "f:connection", "f:kubeconfig")})


@frozen
class Write:
    """The circumstances of a write.

    :ivar manager: name of the field manager.
    :ivar now: RFC 3339.
    :ivar has_kubeconfig: whether it also sets the kubeconfig, which the object does not show.
    """

    manager: str
    now: str
    has_kubeconfig: bool = False
    force: bool = False

    def key(self, operation: str, subresource: str = "") -> ManagerKey:
        """Return the owner that this write makes."""
        return ManagerKey(operation, self.manager, subresource)

    @property
    def extra(self) -> FieldSet:
        """The fields that are set, but not shown."""
        return _KUBECONFIG if self.has_kubeconfig else EMPTY


def writable(cluster: Cluster) -> dict[str, Any]:
    """Return the object of *cluster* without its read-only fields and its status."""
    shown = to_object(cluster)
    metadata = {name: shown["metadata"][name] for name in _WRITABLE if name in shown["metadata"]}
    return {"metadata": metadata, "spec": shown["spec"]}


def created(wanted: DesiredCluster, blank: Cluster, write: Write) -> Cluster:
    """Return the new cluster that a client wants; *blank* has its name and nothing else."""
    cluster = evolve(wanted.apply(blank), kubernetes_port=wanted.port)
    managers = after_update({}, writable(cluster), CLUSTER, {}, write.key("Update"), write.now, write.extra)
    return _managed(cluster, managers)


def replaced(cluster: Cluster, value: Mapping[str, Any], write: Write) -> Cluster:
    """Return *cluster* as the complete object *value* describes it.

    :raise TowerError: the object is invalid, or another one.
    """
    edited = _edited(cluster, value)
    entries = value.get("metadata", {}).get("managedFields") or []
    if entries == [{}]:  # documented: forget all managers
        return _managed(edited, {})
    managers = _without_tower(_readable_managers(entries)) or read_managers(cluster.meta.managed)
    if managers:
        managers = after_update(
            writable(cluster),
            writable(edited),
            CLUSTER,
            managers,
            write.key("Update"),
            write.now,
            write.extra,
        )
    return _managed(edited, managers)


def applied(cluster: Cluster, config: Mapping[str, Any], write: Write) -> Cluster:
    """Return *cluster* with the server-side apply of *config*.

    :raise TowerError: the result is invalid, or other managers own fields that it changes.
    """
    result = _apply(writable(cluster), _configuration(config), cluster, write, "")
    identity = {"name": cluster.name, **result.value.get("metadata", {})}
    return _managed(_edited(cluster, {**result.value, "metadata": identity}), result.managers)


def creation(config: Mapping[str, Any], blank: Cluster, write: Write) -> tuple[DesiredCluster, Cluster]:
    """Return the new cluster that a server-side apply of *config* creates."""
    wanted = read_cluster(config)
    result = _apply({}, _configuration(config), blank, write, "")
    return wanted, _managed(evolve(wanted.apply(blank), kubernetes_port=wanted.port), result.managers)


def status_replaced(cluster: Cluster, value: Mapping[str, Any], write: Write) -> Cluster:
    """Return *cluster* with the conditions of *value*, except those that Tower sets."""
    edited = _with_conditions(cluster, read_conditions(value))
    managers = read_managers(cluster.meta.managed)
    if managers:
        managers = after_update(
            _status(cluster), _status(edited), CLUSTER, managers, write.key("Update", STATUS), write.now
        )
    return _managed(edited, managers)


def status_applied(cluster: Cluster, config: Mapping[str, Any], write: Write) -> Cluster:
    """Return *cluster* with the server-side apply of the conditions in *config*.

    Tower's own conditions stay, even with force.
    """
    conditions = to_object(cluster)["status"]["conditions"]
    wanted = config.get("status") or {}
    wanted = {"status": {"conditions": wanted["conditions"]}} if "conditions" in wanted else {}
    result = _apply({"status": {"conditions": conditions}}, wanted, cluster, write, STATUS)
    edited = _with_conditions(cluster, read_conditions(result.value))
    own = _towers_fields(cluster)
    managers = {
        key: evolve(owned, fields=owned.fields - own if key.name == write.manager else owned.fields)
        for key, owned in _without_tower(result.managers).items()
    }
    return _managed(edited, {key: owned for key, owned in managers.items() if owned.fields})


def check_identity(value: Mapping[str, Any], cluster: Cluster) -> None:
    """Check that *value* is for *cluster*.

    :raise Conflict: it has the uid of another one.
    """
    uid = value.get("metadata", {}).get("uid") or cluster.uid
    if uid != cluster.uid:
        raise Conflict(
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {cluster.uid}: "
            f"cluster {cluster.name} was removed and added again"
        )


def _apply(
    live: Mapping[str, Any], config: Mapping[str, Any], cluster: Cluster, write: Write, subresource: str
) -> Any:
    managers = read_managers(cluster.meta.managed)
    own = _towers_fields(cluster) if subresource else EMPTY
    if own:
        managers = managers or before_first_apply(_status(cluster), CLUSTER, write.now, subresource)
        managers[_TOWER] = Owned(own)
    key = write.key("Apply", subresource)
    return apply(live, config, CLUSTER, managers, key, write.now, force=write.force)


def _configuration(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an applied *config* that can be owned."""
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    spec = config.get("spec")
    shown = {"metadata": {name: metadata[name] for name in _WRITABLE if name in metadata}}
    if isinstance(spec, dict):
        connection = spec.get("connection")
        if isinstance(connection, dict):
            hidden = ("kubernetesAPIEndpoint",)
            connection = {name: part for name, part in connection.items() if name not in hidden}
            spec = {**spec, "connection": connection}
        shown["spec"] = spec
    return shown


def _edited(cluster: Cluster, value: Mapping[str, Any]) -> Cluster:
    """Return *cluster* with the settings of the object *value*.

    :raise Invalid: it changes a field that cannot be changed.
    """
    kind = cluster_type(value)
    if kind != cluster.type:  # first: the settings in *value* may be invalid because of this
        raise Invalid(
            f"spec.connection.type: {kind!r}: cannot be changed: remove the cluster and add it again"
        )
    desired = read_cluster(value)
    if desired.name != cluster.name or desired.uid not in ("", cluster.uid):
        raise Invalid("metadata.name and metadata.uid cannot be changed: add another cluster")
    if desired.port not in (None, cluster.kubernetes_port):
        raise Invalid(
            "spec.connection.kubernetesAPIServerPort cannot be changed: remove the cluster and add it again"
        )
    new = [name for name in desired.finalizers if name not in cluster.meta.finalizers]
    if new and cluster.meta.deleted is not None:
        raise Invalid(
            f"metadata.finalizers: {new[0]!r}: no new finalizers can be added if the object is being deleted"
        )
    return desired.apply(cluster)


def _with_conditions(cluster: Cluster, conditions: list[dict[str, Any]]) -> Cluster:
    """Return *cluster* with those of *conditions* that are not Tower's."""
    others = tuple(each for each in conditions if cluster.condition(each["type"]) is None)
    return evolve(cluster, meta=evolve(cluster.meta, conditions=others))


def _status(cluster: Cluster) -> dict[str, Any]:
    conditions = list(cluster.meta.conditions)
    return {"status": {"conditions": conditions}} if conditions else {}


def _towers_fields(cluster: Cluster) -> FieldSet:
    own = {key_element({"type": condition.type}) for condition in cluster.conditions}
    fields = field_set({"status": {"conditions": to_object(cluster)["status"]["conditions"]}}, CLUSTER)
    return frozenset(path for path in fields if len(path) > 2 and path[2] in own)


def _without_tower(managers: Managers) -> Managers:
    return {key: owned for key, owned in managers.items() if key != _TOWER}


def _readable_managers(entries: Any) -> Managers:
    """Return the managers in a client's object; none if they cannot be read, as in kube-apiserver."""
    try:
        return read_managers(entries) if isinstance(entries, list) else {}
    except Invalid:
        return {}


def _managed(cluster: Cluster, managers: Managers) -> Cluster:
    return evolve(cluster, meta=evolve(cluster.meta, managed=tuple(show_managers(managers))))
