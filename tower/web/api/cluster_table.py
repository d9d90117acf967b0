"""Columns of a table of clusters.  Sans-IO."""

from __future__ import annotations

from tower.web.api.table import (
    Cell,
    Column,
    Object,
    age_column,
    human_duration,
    name_column,
    round_trip,
    seconds_since,
)


def _available(item: Object, _now: float) -> str:
    kind = "NodesAvailable" if _is_ssh(item) else "AgentAvailable"
    for condition in item["status"]["conditions"]:
        if condition["type"] == kind:
            return str(condition["status"])
    return "Unknown"


def _is_ssh(item: Object) -> bool:
    return bool(item["spec"]["connection"]["type"] == "ssh")


def _last_seen(item: Object, now: float) -> Cell:
    if item["status"].get("agents") or item["status"].get("ssh", {}).get("usableNodes"):
        return "now"
    seconds = seconds_since(item["status"].get("lastSeen"), now)
    return "not yet" if seconds is None else f"{human_duration(seconds)} ago"


def _agents(item: Object, _now: float) -> Cell:
    """Return the number of connected agents, or of usable nodes."""
    if not _is_ssh(item):
        return str(item["status"].get("agents", 0))
    ssh = item["status"].get("ssh", {})
    return f"{ssh.get('usableNodes', 0)}/{len(ssh.get('nodes', ()))}"


COLUMNS = (
    name_column("Name of the cluster."),
    Column("Enabled", "Whether the cluster may be used.", lambda item, _: item["spec"]["enable"], "boolean"),
    Column("Available", "Whether an agent is connected, or a node is usable.", _available),
    Column(
        "Port",
        "The cluster's own port on the proxy.",
        lambda item, _: str(item["spec"]["connection"].get("kubernetesAPIServerPort", "")),
    ),
    Column("Version", "Version of the agent.", lambda item, _: item["status"].get("agentVersion", "")),
    Column("Last seen", "Time since an agent or a node was last connected.", _last_seen),
    age_column(),
    Column("Agents", "Number of connected agents, or of usable nodes and all nodes.", _agents, priority=1),
    Column("Round trip", "Round-trip time.", lambda item, _: round_trip(item["status"]), priority=1),
    Column(
        "Type",
        "Type of the connection to the cluster.",
        lambda item, _: item["spec"]["connection"]["type"],
        priority=1,
    ),
    Column(
        "Endpoint",
        "URL of the cluster for users.",
        lambda item, _: item["spec"]["connection"].get("kubernetesAPIEndpoint", ""),
        priority=1,
    ),
)
