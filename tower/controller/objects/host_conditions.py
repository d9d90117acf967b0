"""The conditions that the controller sets, with the reasons and texts of KubeSphere Tower.  Sans-IO."""

from __future__ import annotations

from typing import Final

from tower.clusters.cluster import Cluster, Condition, ConditionStatus
from tower.clusters.condition_types import DISABLED
from tower.controller.objects.host_cluster import HostCluster

INITIALIZED: Final = "Initialized"
EXTERNAL_ACCESS_READY: Final = "ExternalAccessReady"


def initialized(no_endpoint: str = "") -> Condition:
    """Return the condition of a cluster whose port, Service and kubeconfig are ready.

    :param no_endpoint: why the Service has no endpoint; users of the proxy's own address are not affected.
    """
    if no_endpoint:
        return _made(INITIALIZED, "True", "NoEndpoint", no_endpoint)
    return _made(INITIALIZED, "True", INITIALIZED, "Cluster has been initialized")


def not_joined(cluster: HostCluster) -> Condition:
    """Return the condition of a cluster that is not to be served, with the field that causes it."""
    if not cluster.is_federated:
        reason, text = "NotJoined", "spec.joinFederation is not true"
    else:
        reason, text = DISABLED, "spec.enable is false"
    return _made(INITIALIZED, "False", reason, f"{text}: the cluster has no Service and is not served")


def not_initialized(reason: str, text: str) -> Condition:
    """Return the condition of a cluster that cannot be served, with the cause and the cure."""
    return _made(INITIALIZED, "False", reason, text)


def exported() -> Condition:
    """Return the condition of a cluster whose load balancer has an address."""
    return _made(EXTERNAL_ACCESS_READY, "True", INITIALIZED, "Cluster external kubeapi has been initialized")


def not_exported(reason: str, text: str) -> Condition:
    """Return the condition of a cluster whose load balancer cannot be used yet."""
    return _made(EXTERNAL_ACCESS_READY, "False", reason, text)


def is_current(cluster: Cluster, wanted: Condition) -> bool:
    """Return whether the record of *cluster* has that condition."""
    known = cluster.condition(wanted.type)
    if known is None:
        return False
    return (known.status, known.reason, known.message) == (wanted.status, wanted.reason, wanted.message)


def _made(kind: str, status: ConditionStatus, reason: str, text: str) -> Condition:
    return Condition(kind, status, reason, text, 0.0)
