"""The API server of one cluster as its nodes reach it, and before it the credential that is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred

from tower.errors import ConfigurationError, StreamRefused
from tower.kube.apiserver import APIServer, Material
from tower.kube.head_policy import Upstream
from tower.kube.kubeconfig import KubeAccess
from tower.kube.system_identities import SystemIdentities
from tower.net.connecting import connect
from tower.net.pipes import Pipe
from tower.net.tls.resumption import Resumption
from tower.tunnels.apiserver_gate import APIServerGate

#: How long the API server may take to be connected without a node, s.
DIRECT_TIMEOUT = 10.0


class Dialler(Protocol):
    """What is needed of `tower.nodes.tunnels.tunnels.NodeTunnels`, or of one tunnel."""

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Return a channel to *host*, as a node reaches it."""


@frozen
class _OpenedStream:
    """What one credential leads to."""

    member: APIServer
    door: APIServerGate


class MemberAPIServer:
    """:param cluster: its name.
    :param sockets: a `tower.reactor.poller.Poller`, for connections without a node.
    :param load: returns the credential; raises `ConfigurationError` with the cure.
    :param identities: returns whom of the system users may act as, asked anew by `renew`.
    :param why_not: the cure, behind a refusal because of that; see `tower.kube.head_policy.HeadPolicy`.
    :ivar is_refused: whether the API server is known not to know the credential.
    """

    def __init__(
        self,
        cluster: str,
        reactor: Any,
        sockets: Any,
        load: Callable[[], KubeAccess],
        *,
        identities: Callable[[], SystemIdentities],
        why_not: str,
    ) -> None:
        self._cluster = cluster
        self._reactor = reactor
        self._sockets = sockets
        self._load = load
        self._identities = identities
        self._why_not = why_not
        self._opened: _OpenedStream | None = None
        self._problem = ""
        self.is_refused = False

    @property
    def problem(self) -> str:
        """Why there is no way in, as people read it; empty while there is one, as far as anybody knows."""
        if self._problem or not self.is_refused:
            return self._problem
        return (
            f"the API server of cluster {self._cluster} refuses the credential that is kept for it (401): "
            f"give another with 'tower cluster set {self._cluster} --member-kubeconfig K'"
        )

    def renew(self) -> None:
        """Take the credential as it is now; what goes on by the one before may end."""
        old, self._opened = self._opened, None
        self.is_refused = False
        if old is not None:
            old.door.draining = True
        try:
            member = APIServer(self._load)
        except ConfigurationError as e:
            self._problem = str(e)
            return
        self._problem = ""
        door = APIServerGate(
            self._reactor,
            member.tls,
            member.server_name,
            member.upstream,
            Resumption(),
            identities=self._identities(),
            why_not=self._why_not,
        )
        self._opened = _OpenedStream(member, door)

    @property
    def server(self) -> bytes:
        """What the API server is called, authority and path; empty while there is no way in."""
        return b"" if self._opened is None else self._opened.member.address.encode("ascii")

    @property
    def material(self) -> Material | None:
        """The credential and whom it trusts; None while there is no way in."""
        return None if self._opened is None else self._opened.member.material

    def upstream(self) -> Upstream:
        """Return what the heads of requests need.

        :raise ConfigurationError: there is no way in.
        """
        return self._way_in().member.upstream()

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """See `APIServerGate.rewrite`."""
        return self._way_in().door.rewrite(head, plain)

    def _way_in(self) -> _OpenedStream:
        if self._opened is None:
            raise ConfigurationError(self.problem)
        return self._opened

    async def open(self, dialler: Dialler) -> Pipe:
        """Return a pipe to the API server by way of *dialler*, TLS up in it if it has TLS.

        :raise StreamRefused: it was not reached, or there is no credential.
        :raise TunnelLost: the tunnel went away meanwhile.
        :raise ClusterUnreachable: there is no node.
        """
        opened = self._opened
        if opened is None:
            raise StreamRefused("failed", self.problem)
        channel = await dialler.dial(opened.member.host, opened.member.port)
        pipe: Pipe = await opened.door.secure(channel)
        return pipe

    async def open_directly(self) -> Pipe:
        """Return a pipe to the API server from here, without a node.

        :raise ConnectFailed: it was not reached.
        :raise ConfigurationError: there is no credential.
        """
        member = self._way_in().member
        return await connect(
            self._sockets,
            member.host,
            member.port,
            tls=member.tls,
            server_hostname=member.server_name,
            timeout=DIRECT_TIMEOUT,
        )
