"""The current state of the nodes of a cluster of type ssh."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

#: State of a node's tunnel: ``open`` and ``degraded`` (the API server or kubelet behind it does not answer
#: well) carry streams, ``leaving`` (the node left the list) accepts no new ones.
NodeState: TypeAlias = Literal["connecting", "open", "degraded", "leaving", "failed"]


@frozen
class NodeStatus:
    """The state of one node.

    :ivar address: ``host:port`` of its sshd.
    :ivar since: begin of the state, s since the epoch.
    :ivar host_key: fingerprint; empty before the first connection.
    :ivar round_trip: to its sshd and back, s; 0 while unknown.
    :ivar checked: last health check, s since the epoch; None: not yet.
    :ivar error: last error; empty while the node is healthy.
    """

    name: str
    address: str
    state: NodeState
    since: float
    host_key: str = ""
    streams: int = 0
    round_trip: float = 0.0
    checked: float | None = None
    error: str = ""


@frozen
class SSHStatus:
    """The state of one cluster.

    :ivar last_sync: when its nodes were last listed, s since the epoch; None: not yet.
    :ivar last_key_install: when the key was last installed, s since the epoch; None: never.
    :ivar last_error: last error of the cluster, not of a node; empty while it is healthy.
    """

    nodes: tuple[NodeStatus, ...] = ()
    last_sync: float | None = None
    last_key_install: float | None = None
    last_error: str = ""
