"""Tables of meta.k8s.io/v1, which kubectl prints unchanged.  Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeAlias

from attrs import frozen

from tower.clusters.condition_types import AVAILABLE
from tower.durations import human_duration
from tower.tunnels.silence_watch import QUIET

Object: TypeAlias = dict[str, Any]
Cell: TypeAlias = str | int | bool | None

#: Reasons of available clusters without a problem.
_GOOD = frozenset(("Ready", "AgentConnected", "TunnelOpen"))

#: Reason and message without a problem; kubectl prints an empty cell as blanks.
_NONE = "<none>"

#: Reason of an available cluster whose agents are disconnected, before `Available` changes.
_RECONNECTING = "Reconnecting"

#: Media types of tables in `Accept`, the current form first.
TABLES = tuple(f"application/json;as=Table;v={version};g=meta.k8s.io" for version in ("v1", "v1beta1"))


@frozen
class Column:
    """One column.

    :ivar cell: takes an object and the time (Unix, s), returns the value in its row.
    :ivar priority: 0 is always shown, 1 with `-o wide`.
    """

    name: str
    description: str
    cell: Callable[[Object, float], Cell]
    type: str = "string"
    format: str = ""
    priority: int = 0

    def definition(self) -> Object:
        """Return the column's definition in Kubernetes' form."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def table(
    columns: Iterable[Column],
    objects: Iterable[Object],
    now: float,
    *,
    media: str = TABLES[0],
    include: str = "Metadata",
    metadata: Object | None = None,
) -> Object:
    """Return *objects* as a table.

    :param now: Unix time, s, for ages.
    :param media: the negotiated one of `TABLES`.
    :param metadata: of the list.
    :param include: the part of the object in its row: `None`, `Metadata` or `Object`.
    """
    version = "v1beta1" if "v=v1beta1" in media else "v1"
    columns = tuple(columns)
    rows = []
    for item in objects:
        row: Object = {"cells": [column.cell(item, now) for column in columns]}
        if include == "Object":
            row["object"] = item
        elif include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{version}",
                "metadata": item["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata or {},
        "columnDefinitions": [column.definition() for column in columns],
        "rows": rows,
    }


def seconds_since(timestamp: str | None, now: float) -> float | None:
    """Return the time since an RFC 3339 *timestamp*, s; None if it is absent or invalid."""
    if not timestamp:
        return None
    try:
        return now - datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


def age(timestamp: str | None, now: float) -> str:
    """Return the age of an RFC 3339 *timestamp*, human-readable."""
    seconds = seconds_since(timestamp, now)
    return "<unknown>" if seconds is None else human_duration(seconds)


def round_trip(status: Object) -> str:
    """Return the round-trip time in *status*, human-readable."""
    value = status.get("roundTripMilliseconds")
    return "" if value is None else f"{value:.1f}ms"


def name_column(description: str) -> Column:
    """Return the first column of every table."""
    return Column("Name", description, lambda item, _: item["metadata"]["name"], format="name")


def age_column() -> Column:
    """Return the column with the time since the object was created."""
    return Column(
        "Age",
        "Time since the object was created.",
        lambda item, now: age(item["metadata"].get("creationTimestamp"), now),
    )


def _available(item: Object, _now: float) -> str:
    return str(_sum(item).get("status", "Unknown"))


def _reason(item: Object, _now: float) -> str:
    """Return the reason of the first problem."""
    found = _sum(item)
    if found.get("status") != "True":
        return str(found.get("reason", _NONE))
    if not _is_ssh(item) and not _agent_count(item):
        return _RECONNECTING
    return _NONE if found["reason"] in _GOOD else str(found["reason"])


def _message(item: Object, now: float) -> str:
    reason = _reason(item, now)
    if reason == _RECONNECTING:
        return "No agent is connected; Available becomes False if none reconnects soon."
    return _NONE if reason == _NONE else str(_sum(item)["message"] or _NONE)


def _sum(item: Object) -> Object:
    """Return the condition ``Available``; empty before the first check."""
    conditions: list[Object] = item["status"]["conditions"]
    return next((condition for condition in conditions if condition["type"] == AVAILABLE), {})


def _is_ssh(item: Object) -> bool:
    return bool(item["spec"]["connection"]["type"] == "ssh")


def _agent_count(item: Object) -> int:
    return int(item["status"].get("agents", 0))


def _last_seen(item: Object, now: float) -> Cell:
    seconds = seconds_since(item["status"].get("lastSeen"), now)
    is_recent = seconds is None or seconds < QUIET
    if is_recent and (_agent_count(item) or item["status"].get("ssh", {}).get("usableNodes")):
        return "now"
    return "never" if seconds is None else f"{human_duration(seconds)} ago"


def _agents(item: Object, _now: float) -> Cell:
    """Return the number of connected agents, or of usable nodes."""
    if not _is_ssh(item):
        return str(_agent_count(item))
    ssh = item["status"].get("ssh", {})
    return f"{ssh.get('usableNodes', 0)}/{len(ssh.get('nodes', ()))}"


CLUSTER_COLUMNS = (
    name_column("Name of the cluster."),
    Column(
        "Type",
        "Type of the connection: an agent connects to the proxy, or the proxy to nodes by SSH.",
        lambda item, _: item["spec"]["connection"]["type"],
    ),
    Column("Enabled", "Whether the cluster may be used.", lambda item, _: item["spec"]["enable"], "boolean"),
    Column("Available", "Whether users' requests reach the API server.", _available),
    Column("Reason", "Reason of the first problem.", _reason),
    Column(
        "Port",
        "The cluster's own port on the proxy.",
        lambda item, _: str(item["spec"]["connection"].get("kubernetesAPIServerPort", "")),
    ),
    Column(
        "Version",
        "Kubernetes version of the cluster, last known.",
        lambda item, _: item["status"].get("kubernetesVersion", ""),
    ),
    Column("Last seen", "Time since the last sign of life of an agent or a node.", _last_seen),
    age_column(),
    Column("Agents", "Number of connected agents, or of usable nodes and all nodes.", _agents, priority=1),
    Column(
        "Agent version",
        "Version of the agent.",
        lambda item, _: item["status"].get("agentVersion", ""),
        priority=1,
    ),
    Column("Round trip", "Round-trip time.", lambda item, _: round_trip(item["status"]), priority=1),
    Column(
        "Endpoint",
        "URL of the cluster for users.",
        lambda item, _: item["spec"]["connection"].get("kubernetesAPIEndpoint", ""),
        priority=1,
    ),
    Column("Message", "The first problem, with its cure.", _message, priority=1),
)
