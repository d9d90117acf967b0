"""What a client may write into a cluster's object, and how a table shows one.  Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from attrs import evolve, frozen

from tower.clusters import API_VERSION, Cluster, to_object
from tower.errors import Invalid

from .status import Refusal
from .table import Cell, Column, Object, age_column, human_duration, name_column, seconds_since

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
    "spec.connection": frozenset({"type", "kubernetesAPIEndpoint", "kubernetesAPIServerPort"}),
}

_VERSION = re.compile(r"[0-9]{1,18}")


@frozen
class Wish:
    """What a client wants of a cluster.

    :ivar version: the resource version that it has seen, or None.
    :ivar port: the port that the cluster is to have for its own, or None.
    """

    name: str
    enabled: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    uid: str
    version: int | None
    port: int | None = None

    def apply(self, cluster: Cluster) -> Cluster:
        """Return *cluster* as wished."""
        return evolve(cluster, enabled=self.enabled, labels=self.labels, annotations=self.annotations)


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
            raise Refusal(400, f"{key} {value[key]!r}: objects here have {key} {right}")
    metadata, spec = _part(value, "metadata"), _part(value, "spec")
    connection = _part(spec, "connection", "spec.")
    name = metadata.get("name")
    if not name:
        raise Invalid("metadata.name: required: a name for the cluster, such as 'alpha'")
    if connection.get("type", "proxy") != "proxy":
        raise Invalid(f"spec.connection.type: {connection['type']!r}: must be 'proxy': the agent dials out")
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
        _strings(metadata, "annotations"),
        str(metadata.get("uid") or ""),
        None if version is None else int(version),
        _port(connection),
    )


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


def _condition(item: Object, kind: str) -> str:
    for condition in item["status"]["conditions"]:
        if condition["type"] == kind:
            return str(condition["status"])
    return "Unknown"


def _last_seen(item: Object, now: float) -> Cell:
    if item["status"].get("agents"):
        return "now"
    seconds = seconds_since(item["status"].get("lastSeen"), now)
    return "not yet" if seconds is None else f"{human_duration(seconds)} ago"


def _round_trip(item: Object, _now: float) -> Cell:
    value = item["status"].get("roundTripMilliseconds")
    return "" if value is None else f"{value:.1f}ms"


COLUMNS = (
    name_column("Name of the cluster."),
    Column("Enabled", "Whether the cluster may be used.", lambda item, _: item["spec"]["enable"], "boolean"),
    Column("Available", "Whether an agent is connected.", lambda item, _: _condition(item, "AgentAvailable")),
    Column(
        "Port",
        "The cluster's own port on the proxy.",
        lambda item, _: str(item["spec"]["connection"].get("kubernetesAPIServerPort", "")),
    ),
    Column("Version", "Version of the agent.", lambda item, _: item["status"].get("agentVersion", "")),
    Column("Last seen", "When an agent was last connected.", _last_seen),
    age_column(),
    Column(
        "Agents",
        "How many agents are connected.",
        lambda item, _: item["status"].get("agents", 0),
        "integer",
        priority=1,
    ),
    Column("Round trip", "To an agent and back.", _round_trip, priority=1),
    Column(
        "Type", "The way into the cluster.", lambda item, _: item["spec"]["connection"]["type"], priority=1
    ),
    Column(
        "Endpoint",
        "Where users reach the cluster.",
        lambda item, _: item["spec"]["connection"].get("kubernetesAPIEndpoint", ""),
        priority=1,
    ),
)
