"""The API server of one cluster, reached through its nodes with the credential that the proxy keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.errors import ConfigurationError, StreamRefused
from tower.kube.apiserver import APIServer, Material
from tower.kube.connection_settings import CredentialFacts
from tower.kube.head_fields import Upstream
from tower.kube.kubeconfig import KubeAccess
from tower.kube.system_identities import SystemIdentities
from tower.net.connecting import connect
from tower.net.pipes import Pipe
from tower.net.tls.resumption import Resumption
from tower.nodes.tunnels.context import NodeDialer
from tower.reactor.interfaces import ISocketReactor
from tower.tunnels.apiserver_gate import APIServerGate
from tower.tunnels.live import TunnelChannel

#: Time limit for a direct connection to the API server, s.
DIRECT_TIMEOUT = 10.0


_Secure: TypeAlias = Callable[[APIServerGate, TunnelChannel], Deferred[Any]]


@frozen
class _CredentialGate:
    """The API server with one credential."""

    server: APIServer
    gate: APIServerGate


@define(eq=False, repr=False)
class MemberAPIServer:
    """The API server; `renew` must be called before its first use.

    :param poller: for direct connections.
    :param load: returns the credential; raises `ConfigurationError` with the cure.
    :param identities: returns the system identities that users may act as; called by `renew`.
    :param why_not: the cure when another system identity is rejected; see
        `tower.kube.head_policy.HeadPolicy`.
    :ivar problem: why the credential cannot be used; empty if it can, even if the API server rejects it.
    """

    _reactor: IReactorTime
    _poller: ISocketReactor
    _load: Callable[[], KubeAccess]
    _identities: Callable[[], SystemIdentities] = field(kw_only=True)
    _why_not: str = field(kw_only=True)
    _current: _CredentialGate | None = field(default=None, init=False)
    problem: str = field(default="", init=False)

    def renew(self) -> None:
        """Load the credential again; streams that use the previous one may end."""
        old, self._current = self._current, None
        if old is not None:
            old.gate.draining = True
        try:
            server = APIServer(self._load)
        except ConfigurationError as e:
            self.problem = str(e)
            return
        self.problem = ""
        gate = APIServerGate(
            self._reactor,
            server.tls,
            server.server_name,
            server.upstream,
            Resumption(),
            identities=self._identities(),
            why_not=self._why_not,
        )
        self._current = _CredentialGate(server, gate)

    @property
    def server(self) -> bytes:
        """Authority and path of the API server; empty while there is no usable credential."""
        return b"" if self._current is None else self._current.server.address.encode("ascii")

    @property
    def material(self) -> Material | None:
        """The credential and its CA; None while there is no usable credential."""
        return None if self._current is None else self._current.server.material

    @property
    def facts(self) -> CredentialFacts:
        """Public facts of the credential."""
        material = self.material
        if material is None:
            return CredentialFacts()
        return CredentialFacts.of(material.certificate, material.token)

    def upstream(self) -> Upstream:
        """Return what heads of requests need; raise `ConfigurationError` if there is no usable credential."""
        return self._require().server.upstream()

    def rewrite(self, head: bytes, plain: bool) -> bytes:
        """See `APIServerGate.rewrite`."""
        return self._require().gate.rewrite(head, plain)

    def _require(self) -> _CredentialGate:
        if self._current is None:
            raise ConfigurationError(self.problem)
        return self._current

    async def open(self, dialer: NodeDialer, secure: _Secure = APIServerGate.secure) -> Pipe:
        """Return a pipe to the API server, opened with *dialer*, TLS up in it if it has TLS.

        :param secure: the method that does so.
        :raise StreamRefused: the API server was not reached, or there is no usable credential.
        :raise TunnelLost: the tunnel was lost meanwhile.
        :raise ClusterUnreachable: no node's tunnel is open.
        """
        current = self._current
        if current is None:
            raise StreamRefused("failed", self.problem)
        channel = await dialer.dial(current.server.host, current.server.port)
        pipe: Pipe = await secure(current.gate, channel)
        return pipe

    async def open_directly(self) -> Pipe:
        """Return a pipe to the API server, connected without a node.

        :raise ConnectFailed: the API server was not reached.
        :raise ConfigurationError: there is no usable credential.
        """
        server = self._require().server
        return await connect(
            self._poller,
            server.host,
            server.port,
            tls=server.tls,
            server_hostname=server.server_name,
            timeout=DIRECT_TIMEOUT,
        )
