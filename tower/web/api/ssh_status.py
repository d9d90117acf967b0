"""What is known of a cluster's nodes this moment, as part of objects.  Sans-IO."""

from __future__ import annotations

from typing import Any

from tower.clusters.cluster import timestamp
from tower.clusters.node_status import NodeStatus, SSHStatus
from tower.escaping import escaped

#: The states of a node whose tunnel carries streams.
USABLE = ("open", "degraded")


def shown_status(status: SSHStatus) -> dict[str, Any]:
    """Return *status* as the cluster's object has it; what is not known is left out."""
    shown: dict[str, Any] = {
        "usableNodes": sum(node.state in USABLE for node in status.nodes),
        "nodes": [shown_node(node) for node in status.nodes],
    }
    if status.last_sync is not None:
        shown["lastSync"] = timestamp(status.last_sync)
    if status.last_key_install is not None:
        shown["lastKeyInstall"] = timestamp(status.last_key_install)
    if status.last_error:
        shown["lastError"] = escaped(status.last_error)
    return shown


def shown_node(node: NodeStatus) -> dict[str, Any]:
    """Return one node."""
    shown: dict[str, Any] = {
        "name": node.name,
        "address": node.address,
        "state": node.state,
        "since": timestamp(node.since),
        "streams": node.streams,
    }
    if node.host_key:
        shown["hostKey"] = node.host_key
    if node.round_trip:
        shown["roundTripMilliseconds"] = round(node.round_trip * 1000, 3)
    if node.checked is not None:
        shown["lastCheck"] = timestamp(node.checked)
    if node.error:
        shown["error"] = escaped(node.error)
    return shown
