"""The resources below a cluster of type ssh: `nodes`, and `hostkeys`, the keys that were learned of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tower.clusters import API_VERSION, Cluster
from tower.clusters.node_status import NodeStatus, SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import Invalid, NotFound
from tower.kube.status import StatusError
from tower.nodes.host_key_pins import Pin, Pins
from tower.store import IStore
from tower.web.api.clusters import Clock
from tower.web.api.dispatch import Call
from tower.web.api.objects import gone, listed
from tower.web.api.ssh_status import shown_node
from tower.web.api.table import Column, Object, human_duration, name_column, seconds_since
from tower.web.outcome import Outcome


def _require_ssh(cluster: Cluster) -> None:
    if cluster.ssh is None:
        raise Invalid(
            f"cluster {cluster.name} is of type proxy: it has agents, and 'tower cluster agents "
            f"{cluster.name}' shows them"
        )


class NodesApi:
    """`clusters/<name>/nodes`: the nodes that are reached, or shall be, and how that goes.

    :param status: see `tower.web.api.clusters.ClusterApi`.
    """

    def __init__(self, status: Callable[[str], SSHStatus | None], clock: Clock) -> None:
        self._status = status
        self._clock = clock

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        _require_ssh(cluster)
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                status = self._status(cluster.name) or SSHStatus()
                items = [_node(cluster, node) for node in status.nodes]
                return listed(call, "Node", items, NODE_COLUMNS, self._clock.seconds())
            case _, ():
                raise StatusError(405, f"{call.method} is not for nodes")
        raise StatusError(404, "the server could not find the requested resource")


class HostKeysApi:
    """`clusters/<name>/hostkeys`: the keys that nodes had at first; a delete forgets one.

    In a path a node is called by its name, its host, or its address, IPv6 without brackets.
    """

    def __init__(self, store: IStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        _require_ssh(cluster)
        pins = Pins(self._store, cluster.name, cluster.uid)
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = [_host_key(cluster, pin) for pin in pins.all()]
                return listed(call, "HostKey", items, HOST_KEY_COLUMNS, self._clock.seconds())
            case "DELETE", (node,):
                try:
                    await pins.forget(node)
                except NotFound as e:
                    raise NotFound(_not_learned(cluster.ssh, cluster.name, node) or str(e)) from e
                return gone("hostkeys", node)
            case _, (() | (_,)):
                raise StatusError(405, f"{call.method} is not for host keys")
        raise StatusError(404, "the server could not find the requested resource")


def _not_learned(spec: SSHSpec | None, cluster: str, node: str) -> str:
    """Return why no key of *node* is there to be forgotten if no node's is."""
    if spec is None or spec.host_keys == "accept-new":
        return ""
    who = f"{spec.known_hosts or 'known_hosts'} says which keys nodes have: change it there"
    if spec.host_keys == "insecure-ignore":
        who = "nodes are believed to be who they say"
    return f"no host key of {node} was learned in cluster {cluster}: with {spec.host_keys} {who}"


def _node(cluster: Cluster, node: NodeStatus) -> Object:
    status = shown_node(node)
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
    """Return what writes how long ago a time of the status was."""

    def cell(item: Object, now: float) -> str:
        seconds = seconds_since(item["status"].get(field), now)
        return "" if seconds is None else form.format(human_duration(seconds))

    return cell


def _round_trip(item: Object, _now: float) -> str:
    value: Any = item["status"].get("roundTripMilliseconds")
    return "" if value is None else f"{value:.1f}ms"


NODE_COLUMNS = (
    name_column("Name of the node."),
    Column("Address", "Where its sshd is.", lambda item, _: item["spec"]["address"]),
    Column("State", "Of the tunnel to it.", lambda item, _: item["status"]["state"]),
    Column("Since", "How long it has been in that state.", _ago("since", "{}")),
    Column("Round trip", "To its sshd and back.", _round_trip),
    Column("Streams", "How many are open.", lambda item, _: item["status"]["streams"], "integer"),
    Column("Checked", "When its health was last looked at.", _ago("lastCheck", "{} ago")),
    Column("Host key", "Fingerprint of its host key.", lambda item, _: item["status"].get("hostKey", "")),
    Column("Error", "What last went wrong.", lambda item, _: item["status"].get("error", ""), priority=1),
)

HOST_KEY_COLUMNS = (
    name_column("Name of the node."),
    Column("Address", "Where its sshd is.", lambda item, _: item["spec"]["address"]),
    Column("Host key", "The key that it had at first.", lambda item, _: item["spec"]["hostKey"]),
)
