"""A cluster's node tunnels in the form that routers and the registry of tunnels use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from tower.errors import StreamRefused
from tower.kube.member_status import MemberStatus
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.kubelets import Kubelets
from tower.nodes.tunnels.tunnels import NodeTunnels
from tower.tunnels import SSH
from tower.tunnels.live import CheckMember, Rewrite
from tower.tunnels.targets import KUBERNETES

#: Prefix of a node's name in targets that lead to kubelets.
KUBELET = "kubelet/"


class SSHClusterTunnel:
    """See `tower.tunnels.Tunnel`: one for all nodes of a cluster, registered while any node's tunnel is open.

    :param user: the login at the nodes.
    :ivar targets: named addresses, as the nodes see them.
    :ivar kubelets: None while kubelets are turned off.
    """

    protocol: ClassVar[str] = SSH
    fingerprint = ""
    host = ""
    version = ""
    draining = False

    def __init__(self, name: str, user: str, tunnels: NodeTunnels, apiserver: MemberAPIServer) -> None:
        self.name = name
        self.peer = ""
        self.use_login(user)
        self.since = 0.0
        self.member_status: MemberStatus | None = None
        self.check_member: CheckMember | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.request_check: Callable[[], None] = lambda: None
        self.targets: Mapping[str, tuple[str, int]] = {}
        self.kubelets: Kubelets | None = None
        self._tunnels = tunnels
        self._apiserver = apiserver

    def use_login(self, user: str) -> None:
        """Name the other end after the login *user*."""
        self.peer = f"nodes as {user}"

    @property
    def server(self) -> bytes:
        """Authority and path of the API server; empty while there is no usable credential."""
        return self._apiserver.server

    @property
    def round_trip(self) -> float:
        """Round-trip time to the nearest node, s; 0 while unknown."""
        known = [state.round_trip for state in self._tunnels.states() if state.round_trip]
        return min(known, default=0.0)

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return sum(state.streams for state in self._tunnels.states())

    @property
    def bytes_in(self) -> None:
        """None: `NodeDial` tries another node if one is silent."""
        return

    def nudge(self) -> None:
        """No-op: see `bytes_in`."""

    def rewrite_for(self, target: str) -> Rewrite | None:
        """Return the function that rewrites heads of requests for *target*; None: they are sent unchanged."""
        if target == KUBERNETES:
            return self._apiserver.rewrite
        if target.startswith(KUBELET) and self.kubelets is not None:
            return self.kubelets.rewrite
        return None

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream to ``kubernetes``, to ``kubelet/<node>``, both with TLS up, or to a named target.

        :raise StreamRefused: through the Deferred; a node's refusal counts as "unreachable", not as
            "not-allowed".
        :raise TunnelLost: through the Deferred.
        :raise ClusterUnreachable: through the Deferred: no node's tunnel is open.
        """
        return self._open(target).addErrback(_not_reached)

    def _open(self, target: str) -> Deferred[Any]:
        if target == KUBERNETES:
            return Deferred.fromCoroutine(self._apiserver.open(self._tunnels))
        if target.startswith(KUBELET) and self.kubelets is not None:
            return self.kubelets.open(target.removeprefix(KUBELET))
        address = self.targets.get(target)
        if address is not None:
            return self._tunnels.dial(*address)
        return fail(
            StreamRefused(
                "no-such-target",
                f'the cluster has no target "{target}"; '
                f"'tower cluster set {self.name} --target {target}=HOST:PORT' adds one",
            )
        )

    def drain(self) -> None:
        """No-op: sshd has no drain message."""

    def close(self, reason: str) -> None:
        """Close the tunnels to all nodes."""
        self._tunnels.close()


def _not_reached(failure: Failure) -> None:
    error = failure.value
    if isinstance(error, StreamRefused) and error.code == "not-allowed":
        raise StreamRefused("unreachable", str(error), error.reason) from None
    failure.raiseException()
