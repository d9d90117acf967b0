"""What is known this moment of a cluster that is reached by SSH to its nodes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

#: Of a tunnel: being opened; carries streams; carries them, but what is behind it does not answer well;
#: takes no new ones, as the node left the list; not there.
NodeState: TypeAlias = Literal["connecting", "open", "degraded", "leaving", "failed"]


@frozen
class NodeStatus:
    """One node.

    :ivar address: ``host:port`` of its sshd.
    :ivar since: when it came into this state, s since the epoch.
    :ivar host_key: fingerprint; empty before the first connection.
    :ivar round_trip: to its sshd and back, s; 0 while unknown.
    :ivar checked: when its health was last looked at, s since the epoch; None: not yet.
    :ivar error: what last went wrong with it; empty while it is well.
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
    """One cluster.

    :ivar last_sync: when its nodes were last listed, s since the epoch; None: not yet.
    :ivar last_key_install: when the key was last installed; None: never, or there is nobody who could.
    :ivar last_error: what last went wrong, without a node of its own; empty while all is well.
    """

    nodes: tuple[NodeStatus, ...] = ()
    last_sync: float | None = None
    last_key_install: float | None = None
    last_error: str = ""
