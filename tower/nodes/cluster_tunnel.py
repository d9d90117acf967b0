"""The way into a cluster by SSH to its nodes, in the form that everything above knows ways in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from tower.errors import StreamRefused
from tower.nodes.apiserver import Dialler, MemberAPIServer
from tower.tunnels import SSH
from tower.tunnels.registry import Rewrite
from tower.tunnels.targets import KUBERNETES

#: In front of a node's name in the targets that lead to kubelets.
KUBELET = "kubelet/"


class Kubelets(Protocol):
    """What is needed of `tower.nodes.kubelets.Kubelets`."""

    def open(self, node: str) -> Deferred[Any]:
        """Return a stream to a node's kubelet, its TLS up."""

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a request's head as it goes to a kubelet."""


class SSHClusterTunnel:
    """See `tower.tunnels.Tunnel`: one for all nodes of a cluster, there while a tunnel to one of them is up.

    :param user: whom the nodes know us as.
    :param gate: to the API server.
    :param live: returns how many streams there are, and how far the nearest node is, s.
    :param on_close: called with the reason when somebody wants it closed.
    :ivar targets: named addresses as the nodes see them.
    :ivar kubelets: those of the nodes; None while they are no target.
    """

    protocol: ClassVar[str] = SSH
    fingerprint = ""
    version = ""
    draining = False

    def __init__(
        self,
        name: str,
        user: str,
        tunnels: Dialler,
        gate: MemberAPIServer,
        live: Callable[[], tuple[int, float]],
        on_close: Callable[[str], object],
    ) -> None:
        self.name = name
        self.peer = self.named(user)
        self.since = 0.0
        self.on_change: Callable[[], None] = lambda: None
        self.targets: Mapping[str, tuple[str, int]] = {}
        self.kubelets: Kubelets | None = None
        self._tunnels = tunnels
        self._gate = gate
        self._live = live
        self._on_close = on_close

    @staticmethod
    def named(user: str) -> str:
        """Return what the other end is called."""
        return f"nodes as {user}"

    @property
    def server(self) -> bytes:
        """What the API server is called, authority and path; empty while nobody knows."""
        return self._gate.server

    @property
    def round_trip(self) -> float:
        """To the nearest node, s; 0 while unknown."""
        return self._live()[1]

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._live()[0]

    def rewrite_for(self, target: str) -> Rewrite | None:
        """Return what makes the heads of requests for *target*; None: they go as they are."""
        if target == KUBERNETES:
            return self._gate.rewrite
        if target.startswith(KUBELET) and self.kubelets is not None:
            return self.kubelets.rewrite
        return None

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream as `_open` does; that a node may not connect is nothing that the user may not."""
        return self._open(target).addErrback(_not_reached)

    def _open(self, target: str) -> Deferred[Any]:
        """Open a stream to ``kubernetes``, to ``kubelet/<node>``, where TLS is up then, or to a named target.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        :raise ClusterUnreachable: through the Deferred: no node is there.
        """
        if target == KUBERNETES:
            return Deferred.fromCoroutine(self._gate.open(self._tunnels))
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
        """Say nothing: sshd has no ear for it."""

    def close(self, reason: str) -> None:
        """Close it."""
        self._on_close(reason)


def _not_reached(failure: Failure) -> None:
    error = failure.value
    if isinstance(error, StreamRefused) and error.code == "not-allowed":
        raise StreamRefused("unreachable", str(error), error.reason) from None
    failure.raiseException()
