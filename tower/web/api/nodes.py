"""The resources of a cluster of type ssh: `nodes`, their status, and `hostkeys`, their pinned keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster
from tower.clusters.node_status import NodeStatus, SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.durations import human_duration
from tower.errors import Invalid, NotFound
from tower.escaping import escaped
from tower.kube.timestamps import timestamp
from tower.nodes.host_key_pins import Pin, Pins
from tower.store import IStore
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.objects import delete, list_response, selected
from tower.web.api.table import Column, Object, name_column, round_trip, seconds_since
from tower.web.outcome import Outcome

#: The states of a node whose tunnel carries streams.
USABLE = ("open", "degraded")


def ssh_status_object(status: SSHStatus) -> dict[str, Any]:
    """Return *status* for the cluster's object, without unknown values."""
    shown: dict[str, Any] = {
        "usableNodes": sum(node.state in USABLE for node in status.nodes),
        "nodes": [node_status_object(node) for node in status.nodes],
    }
    if status.last_sync is not None:
        shown["lastSync"] = timestamp(status.last_sync)
    if status.last_key_install is not None:
        shown["lastKeyInstall"] = timestamp(status.last_key_install)
    if status.last_error:
        shown["lastError"] = escaped(status.last_error)
    return shown


def node_status_object(node: NodeStatus) -> dict[str, Any]:
    """Return the status of one node."""
    shown: dict[str, Any] = {
        "name": node.name,
        "address": node.address,
        "state": node.state,
        "since": timestamp(node.since),
        "streams": node.streams,
    }
    known = {
        "hostKey": node.host_key,
        "roundTripMilliseconds": node.round_trip and round(node.round_trip * 1000, 3),
        "lastCheck": None if node.checked is None else timestamp(node.checked),
        "error": escaped(node.error),
    }
    return shown | {name: value for name, value in known.items() if value}


def _require_ssh(cluster: Cluster) -> None:
    if cluster.ssh is None:
        raise Invalid(
            f"cluster {cluster.name} is of type proxy: it has agents instead of nodes; "
            f"'tower cluster agents {cluster.name}' shows them"
        )


class NodesApi:
    """`clusters/<name>/nodes`: the nodes and the state of their tunnels."""

    def __init__(self, status: Callable[[str], SSHStatus | None], clock: IReactorTime) -> None:
        self._status = status
        self._clock = clock

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        _require_ssh(cluster)
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = selected(call, self.objects(cluster), {})
                return list_response(call, "Node", items, NODE_COLUMNS, self._clock.seconds())
            case _, ():
                raise method_not_allowed(call)
        raise not_found()

    def objects(self, cluster: Cluster) -> list[Object]:
        """See `tower.web.api.across_clusters.Listed`."""
        status = self._status(cluster.name) or SSHStatus()
        return [_node(cluster, node) for node in status.nodes]


class HostKeysApi:
    """`clusters/<name>/hostkeys`: the pinned host keys of nodes; a delete removes one.

    A path contains a node's name, host or address, IPv6 without brackets.
    """

    def __init__(self, store: IStore, clock: IReactorTime) -> None:
        self._store = store
        self._clock = clock

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        _require_ssh(cluster)
        pins = Pins(self._store, cluster.name, cluster.uid)
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = selected(call, self.objects(cluster), {})
                return list_response(call, "HostKey", items, HOST_KEY_COLUMNS, self._clock.seconds())
            case "DELETE", (node,):
                try:
                    pins.require(node)
                except NotFound as e:
                    raise NotFound(_not_learned(cluster.ssh, cluster.name, node) or str(e)) from e
                return await delete(call, "hostkeys", node, lambda: pins.forget(node))
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    def objects(self, cluster: Cluster) -> list[Object]:
        """See `tower.web.api.across_clusters.Listed`."""
        return [_host_key(cluster, pin) for pin in Pins(self._store, cluster.name, cluster.uid).all()]


def _not_learned(spec: SSHSpec | None, cluster: str, node: str) -> str:
    """Return why no key of any node is pinned, or an empty string if keys are."""
    if spec is None or spec.host_keys == "accept-new":
        return ""
    why = f"the keys are in {spec.known_hosts or 'known_hosts'}: change that file"
    if spec.host_keys == "insecure-ignore":
        why = "host keys are not checked"
    return f"no host key of {node} is pinned in cluster {cluster}: with {spec.host_keys} {why}"


def _node(cluster: Cluster, node: NodeStatus) -> Object:
    status = node_status_object(node)
    return {
        "apiVersion": API_VERSION,
        "kind": "Node",
        "metadata": {"name": status.pop("name")},
        "spec": {"cluster": cluster.name, "address": status.pop("address")},
        "status": status,
    }


def _host_key(cluster: Cluster, pin: Pin) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "HostKey",
        "metadata": {"name": pin.name},
        "spec": {"cluster": cluster.name, "address": pin.address, "hostKey": pin.described},
    }


def _ago(field: str, form: str) -> Callable[[Object, float], str]:
    """Return a cell function for the age of a timestamp in the status."""

    def cell(item: Object, now: float) -> str:
        seconds = seconds_since(item["status"].get(field), now)
        return "" if seconds is None else form.format(human_duration(seconds))

    return cell


NODE_COLUMNS = (
    name_column("Name of the node."),
    Column("Address", "Address of its sshd.", lambda item, _: item["spec"]["address"]),
    Column("State", "State of its tunnel.", lambda item, _: item["status"]["state"]),
    Column("Since", "Time in that state.", _ago("since", "{}")),
    Column("Round trip", "Round-trip time to its sshd.", lambda item, _: round_trip(item["status"])),
    Column("Streams", "Number of open streams.", lambda item, _: item["status"]["streams"], "integer"),
    Column("Checked", "Time since its last health check.", _ago("lastCheck", "{} ago")),
    Column("Host key", "Fingerprint of its host key.", lambda item, _: item["status"].get("hostKey", "")),
    Column("Error", "Its last error.", lambda item, _: item["status"].get("error", ""), priority=1),
)

HOST_KEY_COLUMNS = (
    name_column("Name of the node."),
    Column("Address", "Address of its sshd.", lambda item, _: item["spec"]["address"]),
    Column("Host key", "The pinned key.", lambda item, _: item["spec"]["hostKey"]),
)
