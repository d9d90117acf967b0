"""The way into a cluster by SSH to its nodes, in the form that everything above knows ways in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from twisted.internet.defer import Deferred, fail

from tower.conch.opening import StreamRefused
from tower.memberdoor import MemberDoor
from tower.policy import KUBERNETES
from tower.tunnels import SSH
from tower.web.upstream import Rewrite

#: In front of a node's name in the targets that lead to kubelets.
KUBELET = "kubelet/"


class Dialler(Protocol):
    """What is needed of `tower.conch.nodetunnels.NodeTunnels`."""

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Return a channel to *host*, as one of the nodes reaches it."""


class Kubelets(Protocol):
    """What is needed of `tower.nodes.kubelet.Kubelets`."""

    def open(self, node: str) -> Deferred[Any]:
        """Return a stream to a node's kubelet, its TLS up."""

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """Return a request's head as it goes to a kubelet."""


class Entrance:
    """Where a member's API server is, as its nodes see it, and what stands in front of it.

    One that is replaced lets what goes on through it end; see `tower.tlspipe.TLSPipe`.

    :ivar host: IPv6 without brackets.
    :ivar address: what the API server is called in the URLs that it makes, without the scheme.
    """

    def __init__(self, host: str, port: int, address: str, door: MemberDoor) -> None:
        self.host, self.port, self.address, self.door = host, port, address, door


class NodeWay:
    """See `tower.tunnels.Tunnel`: one for all nodes of a cluster, there while a tunnel to one of them is up.

    :param tunnels: to the nodes.
    :param targets: named addresses as the nodes see them.
    :param states: returns how many streams there are, and how far the nearest node is, s.
    :param on_close: called when somebody wants it closed, with the reason.
    :ivar entrance: to the API server; None while there is no credential for it, then `why_closed` says why.
    :ivar kubelets: those of the nodes; None when they are no target.
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
        targets: Mapping[str, tuple[str, int]],
        states: Callable[[], tuple[int, float]],
        on_close: Callable[[str], None],
        since: float,
    ) -> None:
        self.name = name
        self.peer = f"nodes of {name} as {user}"
        self.since = since
        self.on_change: Callable[[], None] = lambda: None
        self.entrance: Entrance | None = None
        self.why_closed = ""
        self.kubelets: Kubelets | None = None
        self._tunnels = tunnels
        self._targets = targets
        self._states = states
        self._on_close = on_close

    @property
    def server(self) -> bytes:
        """What the API server is called, authority and path; empty while nobody knows."""
        return b"" if self.entrance is None else self.entrance.address.encode("ascii")

    @property
    def round_trip(self) -> float:
        """To the nearest node, s; 0 while unknown."""
        return self._states()[1]

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._states()[0]

    def rewrite_for(self, target: str) -> Rewrite | None:
        """Return what makes the heads of requests for *target*; None: they go as they are."""
        if target == KUBERNETES:
            return None if self.entrance is None else self.entrance.door.rewrite
        if target.startswith(KUBELET) and self.kubelets is not None:
            return self.kubelets.rewrite
        return None

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream to ``kubernetes``, to ``kubelet/<node>``, where TLS is up then, or to a named target.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        :raise ClusterUnreachable: through the Deferred: no node is there.
        """
        if target == KUBERNETES:
            entrance = self.entrance
            if entrance is None:
                return fail(StreamRefused("failed", self.why_closed))
            return self._tunnels.dial(entrance.host, entrance.port).addCallback(entrance.door.secure)
        if target.startswith(KUBELET) and self.kubelets is not None:
            return self.kubelets.open(target.removeprefix(KUBELET))
        if target in self._targets:
            return self._tunnels.dial(*self._targets[target])
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
