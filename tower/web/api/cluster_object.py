"""What a client may write into a cluster's object.  Sans-IO."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from attrs import evolve, frozen

from tower.clusters import API_VERSION, Cluster, to_object
from tower.clusters.cluster import ClusterType
from tower.clusters.member_credentials import LIMIT, check_access
from tower.clusters.ssh_spec import SSHSpec
from tower.clusters.ssh_spec_object import NAMES, SPEC_PATH, check_spec, read_spec
from tower.errors import ConfigurationError, Invalid
from tower.kube.kubeconfig import KubeAccess, read_kubeconfig
from tower.kube.status import StatusError

_METADATA = frozenset(
    {
        "name",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "labels",
        "annotations",
        "managedFields",
        "selfLink",
    }
)
_KNOWN = {
    "": frozenset({"apiVersion", "kind", "metadata", "spec", "status"}),
    "metadata": _METADATA,
    "spec": frozenset({"enable", "connection"}),
    "spec.connection": frozenset(
        {"type", "kubernetesAPIEndpoint", "kubernetesAPIServerPort", "ssh", "kubeconfig"}
    ),
    SPEC_PATH: frozenset(NAMES.values()),
}

#: Where `kubectl apply` keeps what was applied: the whole object, also what it must not keep.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_KUBECONFIG = "spec.connection.kubeconfig"

_VERSION = re.compile(r"[0-9]{1,18}")


@frozen
class Wish:
    """What a client wants of a cluster.

    :ivar version: the resource version that it has seen, or None.
    :ivar port: the port that the cluster is to have for its own, or None.
    :ivar ssh: how its nodes are reached; None: it has an agent.
    """

    name: str
    enabled: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    uid: str
    version: int | None
    port: int | None = None
    ssh: SSHSpec | None = None

    @property
    def type(self) -> ClusterType:
        """The way into it."""
        return "proxy" if self.ssh is None else "ssh"

    def apply(self, cluster: Cluster) -> Cluster:
        """Return *cluster* as wished."""
        return evolve(
            cluster,
            enabled=self.enabled,
            labels=self.labels,
            annotations=self.annotations,
            ssh=self.ssh,
        )


def is_version(value: object) -> TypeGuard[str]:
    """Tell whether *value* may be a resource version of ours; ours are numbers, and not long ones."""
    return isinstance(value, str) and _VERSION.fullmatch(value) is not None


def unknown_fields(value: Mapping[str, Any]) -> list[str]:
    """Return the fields of an object that we know nothing of, as paths."""
    found = []
    for path, known in _KNOWN.items():
        part: Any = value
        for key in path.split(".") if path else ():
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict):
            found += [f"{path}.{key}".lstrip(".") for key in part if key not in known]
    return found


def read_wish(value: Mapping[str, Any]) -> Wish:
    """Return what the object *value* asks for.

    :raise Invalid: naming the field and what may stand there.
    :raise Refusal: it is another kind of object.
    """
    for key, right in (("apiVersion", API_VERSION), ("kind", "Cluster")):
        if value.get(key, right) != right:
            raise StatusError(400, f"{key} {value[key]!r}: objects here have {key} {right}")
    metadata, spec = _part(value, "metadata"), _part(value, "spec")
    connection = _part(spec, "connection", "spec.")
    name = metadata.get("name")
    if not name:
        raise Invalid("metadata.name: required: a name for the cluster, such as 'alpha'")
    enabled = spec.get("enable", True)
    if not isinstance(enabled, bool):
        raise Invalid(f"spec.enable: {enabled!r}: must be true or false")
    version = metadata.get("resourceVersion") or None
    if version is not None and not is_version(version):
        raise Invalid(f"metadata.resourceVersion: {version!r}: must be one that was read here")
    return Wish(
        str(name),
        enabled,
        _strings(metadata, "labels"),
        _without_kubeconfig(_strings(metadata, "annotations")),
        str(metadata.get("uid") or ""),
        None if version is None else int(version),
        _port(connection),
        _ssh(str(name), connection),
    )


def read_access(value: Mapping[str, Any]) -> KubeAccess | None:
    """Return the credential for the member that an object or a patch brings, if it does.

    :raise Invalid: it cannot be used; nothing of it is in the text but names and the server's URL.
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


def _ssh(name: str, connection: Mapping[str, Any]) -> SSHSpec | None:
    kind = connection.get("type", "proxy")
    if kind not in ("proxy", "ssh"):
        raise Invalid(
            f"spec.connection.type: {kind!r}: must be 'proxy' (its agent dials out) or 'ssh' (its nodes are "
            "reached by SSH)"
        )
    if kind == "ssh":
        return check_spec(read_spec(_part(connection, "ssh", "spec.connection.")))
    for key in ("ssh", "kubeconfig"):
        if connection.get(key) is not None:
            raise Invalid(
                f"spec.connection.{key}: is for clusters of type 'ssh', and cluster {name} is of type 'proxy'"
            )
    return None


def _without_kubeconfig(annotations: dict[str, str]) -> dict[str, str]:
    """Return *annotations* without the secret that `kubectl apply` puts there."""
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
    raise Invalid(f"spec.connection.kubernetesAPIServerPort: {port!r}: must be a port, from 1 to 65535")


def _part(value: Mapping[str, Any], key: str, prefix: str = "") -> dict[str, Any]:
    part = value.get(key)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise Invalid(f"{prefix}{key}: must be an object")
    return part


def _strings(metadata: Mapping[str, Any], key: str) -> dict[str, str]:
    part = _part(metadata, key, "metadata.")
    for name, text in part.items():
        if not isinstance(text, str):
            raise Invalid(f"metadata.{key}.{name}: {text!r}: must be a string, in quotes")
    return part


def patched(cluster: Cluster, patch: Mapping[str, Any]) -> Cluster:
    """Return *cluster* with a merge patch applied (RFC 7396).

    :raise Invalid: what comes out is no cluster, or another one.
    """
    old = to_object(cluster)
    wish = read_wish(merge(old, patch))
    if wish.name != cluster.name or wish.uid != cluster.uid:
        raise Invalid("metadata.name and metadata.uid cannot be changed: add another cluster")
    if wish.type != cluster.type:
        raise Invalid(f"spec.connection.type: {wish.type!r}: cannot be changed: add the cluster anew")
    if wish.port not in (None, cluster.kubernetes_port):
        raise Invalid("spec.connection.kubernetesAPIServerPort cannot be changed: add the cluster anew")
    return wish.apply(cluster)


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
