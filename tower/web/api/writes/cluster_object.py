"""Parsing and validation of cluster objects that clients write.  Sans-IO."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard, get_args

from attrs import evolve, frozen

from tower.clusters import API_VERSION, Cluster, ConditionStatus
from tower.clusters.cluster import ClusterType
from tower.clusters.member_credentials import LIMIT, check_access
from tower.clusters.ssh_spec import SSHSpec
from tower.clusters.ssh_spec_object import check_spec, read_spec
from tower.errors import ConfigurationError, Invalid
from tower.kube.kubeconfig import KubeAccess, read_kubeconfig
from tower.kube.status import StatusError

#: `kubectl apply` stores the whole applied object here, including secrets.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_KUBECONFIG = "spec.connection.kubeconfig"

_VERSION = re.compile(r"[0-9]{1,18}")

_TIME = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
    r"(?:Z|[+-]\d\d:\d\d)",
    re.ASCII,
)

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_QUALIFIED = re.compile(rf"(?:{_PREFIX}/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")


@frozen
class DesiredCluster:
    """A cluster as a client wants it; of type proxy without `ssh`.

    :ivar version: the resource version that the client has read, or None.
    :ivar port: the cluster's own port, or None to have one chosen.
    """

    name: str
    enabled: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    uid: str
    version: int | None
    port: int | None = None
    ssh: SSHSpec | None = None
    finalizers: tuple[str, ...] = ()
    owners: tuple[dict[str, Any], ...] = ()

    @property
    def type(self) -> ClusterType:
        """The cluster's type."""
        return "proxy" if self.ssh is None else "ssh"

    def apply(self, cluster: Cluster) -> Cluster:
        """Return *cluster* with these settings."""
        return evolve(
            cluster,
            enabled=self.enabled,
            labels=self.labels,
            annotations=self.annotations,
            ssh=self.ssh,
            meta=evolve(cluster.meta, finalizers=self.finalizers, owners=self.owners),
        )


def is_version(value: object) -> TypeGuard[str]:
    """Return whether *value* is a valid resource version: a number of up to 18 digits."""
    return isinstance(value, str) and _VERSION.fullmatch(value) is not None


def read_cluster(value: Mapping[str, Any]) -> DesiredCluster:
    """Return the cluster that the object *value* describes.

    :raise Invalid: with the field and its valid values.
    :raise StatusError: it is another kind of object.
    """
    for key, right in (("apiVersion", API_VERSION), ("kind", "Cluster")):
        if value.get(key, right) != right:
            raise StatusError(400, f"{key} {value[key]!r}: must be {right}")
    metadata, spec = _part(value, "metadata"), _part(value, "spec")
    connection = _part(spec, "connection", "spec.")
    name = metadata.get("name")
    if not name:
        raise Invalid("metadata.name: required: a name for the cluster, such as 'alpha'")
    if not isinstance(name, str):
        raise Invalid(f"metadata.name: {name!r}: must be a string, in quotes")
    enabled = spec.get("enable", True)
    if not isinstance(enabled, bool):
        raise Invalid(f"spec.enable: {enabled!r}: must be true or false")
    version = metadata.get("resourceVersion") or None
    if version is not None and not is_version(version):
        raise Invalid(f"metadata.resourceVersion: {version!r}: must be one that this API returned")
    return DesiredCluster(
        name,
        enabled,
        strings_in(metadata, "labels"),
        _without_kubeconfig(strings_in(metadata, "annotations")),
        str(metadata.get("uid") or ""),
        None if version is None else int(version),
        _port(connection),
        _ssh(name, connection, cluster_type(value)),
        _finalizers(metadata),
        _owners(metadata),
    )


def cluster_type(value: Mapping[str, Any]) -> ClusterType:
    """Return the type of the cluster that the object *value* describes.

    :raise Invalid: there is no such type.
    """
    kind: ClusterType = _part(_part(value, "spec"), "connection", "spec.").get("type", "proxy")
    if kind not in ("proxy", "ssh"):
        raise Invalid(
            f"spec.connection.type: {kind!r}: must be 'proxy' (an agent in the cluster connects) or 'ssh' "
            "(Tower connects to the cluster's nodes)"
        )
    return kind


def read_access(value: Mapping[str, Any]) -> KubeAccess | None:
    """Return the credential for the member in an object or a patch, or None.

    :raise Invalid: it cannot be used; the text contains only names and the server's URL of it.
    """
    text = _part(_part(value, "spec"), "connection", "spec.").get("kubeconfig")
    if text is None:
        return None
    if not isinstance(text, str) or not text:
        raise Invalid(f"{_KUBECONFIG}: must be a kubeconfig in base64")
    if len(text) > 2 * LIMIT:
        raise Invalid(f"{_KUBECONFIG}: larger than {LIMIT} B")
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise Invalid(f"{_KUBECONFIG}: must be a kubeconfig in base64") from None
    try:
        access = read_kubeconfig(data)
    except ConfigurationError as e:
        raise Invalid(f"{_KUBECONFIG}: {str(e).removeprefix('kubeconfig: ')}") from e
    check_access(access)
    return access


def _ssh(name: str, connection: Mapping[str, Any], kind: ClusterType) -> SSHSpec | None:
    if kind == "ssh":
        return check_spec(read_spec(_part(connection, "ssh", "spec.connection.")))
    for key in ("ssh", "kubeconfig"):
        if connection.get(key) is not None:
            raise Invalid(
                f"spec.connection.{key}: only for clusters of type 'ssh'; cluster {name} is of type 'proxy'"
            )
    return None


def _without_kubeconfig(annotations: dict[str, str]) -> dict[str, str]:
    """Return *annotations* without the secret that `kubectl apply` stores there."""
    try:
        applied = json.loads(annotations.get(_APPLIED, ""))
        del applied["spec"]["connection"]["kubeconfig"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return annotations
    return {**annotations, _APPLIED: json.dumps(applied, separators=(",", ":")) + "\n"}


def _port(connection: Mapping[str, Any]) -> int | None:
    port = connection.get("kubernetesAPIServerPort")
    if port is None or (isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536):
        return port
    raise Invalid(f"spec.connection.kubernetesAPIServerPort: {port!r}: must be a port from 1 to 65535")


def _part(value: Mapping[str, Any], key: str, prefix: str = "") -> dict[str, Any]:
    part = value.get(key)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise Invalid(f"{prefix}{key}: must be an object")
    return part


def _finalizers(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    names = metadata.get("finalizers") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid("metadata.finalizers: must be a list of strings")
    for name in names:
        if not _QUALIFIED.fullmatch(name):
            raise Invalid(f"metadata.finalizers: {name!r}: must be a name such as example.org/cleanup")
    return tuple(dict.fromkeys(names))


def _owners(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    owners = metadata.get("ownerReferences") or []
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        raise Invalid("metadata.ownerReferences: must be a list of objects")
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(owner.get(key), str):
                raise Invalid(f"metadata.ownerReferences: {key}: required, a string")
    return tuple(owners)


def read_conditions(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conditions in the status of the object *value*.

    :raise Invalid: with the condition and the field.
    """
    conditions = _part(value, "status").get("conditions") or []
    if not isinstance(conditions, list) or not all(isinstance(each, dict) for each in conditions):
        raise Invalid("status.conditions: must be a list of objects")
    return [_condition(number, each) for number, each in enumerate(conditions)]


def _condition(number: int, value: dict[str, Any]) -> dict[str, Any]:
    path = f"status.conditions[{number}]"
    for key in ("type", "status", *(set(value) & {"reason", "message", "lastTransitionTime"})):
        if not isinstance(value.get(key), str):
            raise Invalid(f"{path}.{key}: required, a string")
    if not _QUALIFIED.fullmatch(value["type"]):
        raise Invalid(f"{path}.type: {value['type']!r}: must be a name such as Ready or example.org/Ready")
    if value["status"] not in get_args(ConditionStatus):
        raise Invalid(f"{path}.status: {value['status']!r}: must be True, False or Unknown")
    when = value.get("lastTransitionTime")
    if when is not None and not _TIME.fullmatch(when):
        raise Invalid(f"{path}.lastTransitionTime: {when!r}: must be a time such as 2026-01-31T12:00:00Z")
    generation = value.get("observedGeneration", 0)
    if isinstance(generation, bool) or not isinstance(generation, int) or generation < 0:
        raise Invalid(f"{path}.observedGeneration: {generation!r}: must be a number")
    return value


def strings_in(metadata: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return the labels or annotations (*key*) in *metadata*.

    :raise Invalid: one is not valid.
    """
    part = _part(metadata, key, "metadata.")
    for name, text in part.items():
        if not isinstance(text, str):
            raise Invalid(f"metadata.{key}.{name}: {text!r}: must be a string, in quotes")
        if not _QUALIFIED.fullmatch(name):
            raise Invalid(f"metadata.{key}: {name!r}: must be a name such as team or example.org/team")
        if key == "labels" and not _LABEL_VALUE.fullmatch(text):
            raise Invalid(
                f"metadata.labels: {name}: {text!r}: must be at most 63 letters, digits, '-', '_' or '.', "
                "beginning and ending with a letter or digit"
            )
    return part


def merge(value: Any, patch: Any) -> Any:
    """Return *value* with a merge *patch* applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), change)
    return merged
