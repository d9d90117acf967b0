"""A cluster: its record, and the Kubernetes object it is shown as."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from tower.errors import Invalid
from tower.records import Record, Value

#: The API group and version of clusters, as KubeSphere's Tower has it.
API_VERSION = "cluster.kubesphere.io/v1alpha1"

#: Largest sum of all labels and annotations, characters (Kubernetes' limit for annotations).
_METADATA_LIMIT = 256 * 1024

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]


@frozen
class Condition:
    """One observation about a cluster.

    :ivar type: such as ``AgentAvailable``.
    :ivar last_transition: when *status* last changed, s since the epoch.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str
    last_transition: float


@frozen
class Cluster:
    """A member cluster, as the store has it.

    :ivar uid: of this cluster alone; a later one of the same name has another.
    :ivar resource_version: the store's version of the record.
    :ivar created: s since the epoch.
    :ivar enabled: whether it is served; see `Clusters.set_enabled`.
    :ivar kubernetes_port: its own TLS port, or None when none was ever given out.
    """

    name: str
    uid: str
    resource_version: int
    created: float
    enabled: bool = True
    kubernetes_port: int | None = None
    conditions: tuple[Condition, ...] = ()
    labels: Mapping[str, str] = field(factory=dict)
    annotations: Mapping[str, str] = field(factory=dict)

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of that type, if it was ever set."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@frozen
class Live:
    """What is known of a cluster this moment, and never stored.

    :ivar endpoint: the URL users reach it at, or an empty string.
    :ivar tunnels: how many agents are connected.
    :ivar version: of the agent, or an empty string.
    :ivar last_seen: when an agent was last heard of, s since the epoch.
    :ivar round_trip: to the agent and back, s.
    """

    endpoint: str = ""
    tunnels: int = 0
    version: str = ""
    last_seen: float | None = None
    round_trip: float | None = None


def check_name(name: str) -> str:
    """Return *name* if it can name a cluster, which is a DNS label (RFC 1123).

    :raise Invalid: saying what is allowed.
    """
    if not _LABEL.fullmatch(name):
        raise Invalid(
            f"cluster name {name!r}: must be 1 to 63 lower case letters, digits and '-', "
            "beginning and ending with a letter or digit, such as 'alpha' or 'berlin-2'"
        )
    return name


def check_metadata(cluster: Cluster) -> None:
    """Raise `Invalid` unless labels and annotations are strings and not too many."""
    items = [*cluster.labels.items(), *cluster.annotations.items()]
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in items):
        raise Invalid(f"cluster {cluster.name}: labels and annotations must be strings")
    if sum(len(key) + len(value) for key, value in items) > _METADATA_LIMIT:
        raise Invalid(f"cluster {cluster.name}: labels and annotations exceed {_METADATA_LIMIT} characters")


def encode(cluster: Cluster) -> Value:
    """Return what the store keeps of *cluster*; name and version are the record's."""
    return {
        "uid": cluster.uid,
        "created": cluster.created,
        "enabled": cluster.enabled,
        "kubernetes_port": cluster.kubernetes_port,
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "last_transition": condition.last_transition,
            }
            for condition in cluster.conditions
        ],
        "labels": dict(cluster.labels),
        "annotations": dict(cluster.annotations),
    }


def decode(record: Record) -> Cluster:
    """Return the cluster that *record* holds."""
    value = record.value
    return Cluster(
        name=record.name,
        uid=value["uid"],
        resource_version=record.version,
        created=value["created"],
        enabled=value["enabled"],
        kubernetes_port=value["kubernetes_port"],
        conditions=tuple(Condition(**condition) for condition in value["conditions"]),
        labels=value["labels"],
        annotations=value["annotations"],
    )


def timestamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it (RFC 3339, UTC, whole seconds)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_object(cluster: Cluster, live: Live | None = None) -> dict[str, Any]:
    """Return *cluster* as the Kubernetes object, named as in upstream's CRD, and without secrets.

    Tower's own additions are ``status.agents``, ``agentVersion``, ``lastSeen``, ``roundTripMilliseconds``.
    """
    connection: dict[str, Any] = {"type": "proxy"}
    if cluster.kubernetes_port is not None:
        connection["kubernetesAPIServerPort"] = cluster.kubernetes_port
    status: dict[str, Any] = {
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": timestamp(condition.last_transition),
            }
            for condition in cluster.conditions
        ]
    }
    if live is not None:
        if live.endpoint:
            connection["kubernetesAPIEndpoint"] = live.endpoint
        status["agents"] = live.tunnels
        if live.version:
            status["agentVersion"] = live.version
        if live.last_seen is not None:
            status["lastSeen"] = timestamp(live.last_seen)
        if live.round_trip is not None:
            status["roundTripMilliseconds"] = round(live.round_trip * 1000, 3)
    metadata: dict[str, Any] = {
        "name": cluster.name,
        "uid": cluster.uid,
        "resourceVersion": str(cluster.resource_version),
        "creationTimestamp": timestamp(cluster.created),
    }
    if cluster.labels:
        metadata["labels"] = dict(cluster.labels)
    if cluster.annotations:
        metadata["annotations"] = dict(cluster.annotations)
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": metadata,
        "spec": {"enable": cluster.enabled, "connection": connection},
        "status": status,
    }
