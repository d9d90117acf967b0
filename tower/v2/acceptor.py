"""Accepts agents: an SSH server on each WebSocket, then a registered tunnel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from attrs import define, field
from twisted.application.service import Service
from twisted.conch.ssh.transport import DISCONNECT_BY_APPLICATION
from twisted.internet import defer
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.agent_rejection import REVOKED, AgentRejected
from tower.clusters.join_tokens import JoinTokens
from tower.conch.connection.liveness import LivenessTransport
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import Disconnected, HandshakeTimeout, TooManyTunnels
from tower.conch.tunnel.endings import CONNECTION_LOST, PROTOCOL_ERROR, ending
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.escaping import reported
from tower.kube.member_answers import name_of
from tower.kube.member_status import MemberStatus
from tower.net.budget import Budget
from tower.net.connection_slots import prove
from tower.net.pipes import Pipe
from tower.reactor.log_batch import LogBatch, Summary
from tower.reactor.timers import Wheel
from tower.tunnels import Tunnel as LiveTunnel
from tower.tunnels import Tunnels
from tower.tunnels.limits import TunnelSlot, TunnelSlots
from tower.v2.hello import CHECK_MEMBER
from tower.v2.peers import AgentPeer, AuthenticationFailed
from tower.v2.transport import ServerTransport
from tower.v2.userauth import Gatekeeper
from tower.websocket.frames import FrameReader, FrameWriter

#: Makes the frames of all tunnels: frames to agents are not masked, so it has no state.
_TO_AGENT = FrameWriter(to_server=False)

P = TypeVar("P")


@define(eq=False, slots=False)
class AgentAcceptor(Service):
    """Runs the proxy's end of SSH for every agent and keeps `Tunnels` up to date.

    :param host_keys: see `tower.v2.transport.ServerTransport`.
    :param keepalive: interval of keepalives, s.
    :param epoch: returns the time of day, s since the epoch.
    :param grace: time that a stop waits for connections to close, s.
    :param per_key: most tunnels of one key into one cluster; 0: unlimited.
    :param per_cluster: most tunnels of one cluster; 0: unlimited.
    :param ca_hashes: returns the hashes of the CAs of the serving certificate, for the hello.
    :ivar wheel: clock of all connections.
    :ivar slots: of the tunnels, held from authentication on.
    :ivar rejections: rate-limited log lines that unauthenticated clients can cause.
    """

    _log = Logger()

    _reactor: IReactorTime
    _tunnels: Tunnels
    _tokens: JoinTokens
    _host_keys: Sequence[KeyPair]
    _budget: Budget
    _keepalive: float = field(kw_only=True)
    _epoch: Callable[[], float] = field(kw_only=True)
    _grace: float = field(default=5.0, kw_only=True)
    _per_key: int = field(default=0, kw_only=True)
    _per_cluster: int = field(default=0, kw_only=True)
    _ca_hashes: Callable[[], Sequence[str]] = field(default=tuple, kw_only=True)
    _open: dict[SSHTunnel, LiveTunnel | None] = field(factory=dict, init=False)
    _all_closed: Deferred[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Make what all connections share."""
        self.wheel = Wheel(self._reactor)
        self.slots = TunnelSlots(self.wheel, per_key=self._per_key, per_cluster=self._per_cluster)
        self._log_batch = LogBatch(self.wheel, self._log)
        self.rejections = Summary(self.wheel, self._log)

    def opened(self, pipe: Pipe, leftover: bytes) -> Deferred[None]:
        """Accept the connection of an agent whose WebSocket is open.

        :return: fires once the agent is accepted, rejected or disconnected.
        """
        slot = TunnelSlot(self.slots)
        gate = Gatekeeper(self._tokens, slot)
        ssh = ServerTransport(
            self.wheel, self._host_keys, gate, keepalive=self._keepalive, ca_hashes=self._ca_hashes()
        )
        slot.attach(ssh)
        return self.accept(ssh, ssh.ready, pipe, leftover, partial(self._authenticated, ssh))

    def accept(
        self,
        ssh: LivenessTransport,
        ready: Deferred[P],
        pipe: Pipe,
        leftover: bytes,
        authenticated: Callable[[P, SSHTunnel], tuple[LiveTunnel, AgentRejected | None]],
        on_text: Callable[[], None] | None = None,
    ) -> Deferred[None]:
        """Run *ssh* over *pipe* until the connection is lost.

        :param authenticated: opens the tunnel up; returns the tunnel for `Tunnels`, and why it is refused
            after all.
        :param on_text: called for text messages, which otherwise end the connection.
        :return: fires once the agent is accepted, rejected or disconnected.
        """
        reader = FrameReader(from_client=True, on_text=on_text)
        tunnel = SSHTunnel(self._reactor, pipe, ssh, reader, _TO_AGENT)
        self._open[tunnel] = None
        tunnel.lost.addCallback(self._gone, tunnel)
        settled = ready.addCallback(authenticated, tunnel).addCallbacks(
            self._register, self._rejected, callbackArgs=(tunnel, pipe), errbackArgs=(tunnel,)
        )
        tunnel.start(leftover)
        return settled

    def open_up(self, tunnel: SSHTunnel, name: str, fingerprint: str, version: str) -> None:
        """Let *tunnel*, whose agent is authenticated, carry streams."""
        traffic = self._tunnels.counters.of(name).traffic
        tunnel.open_up(name, fingerprint, version, self._epoch(), self._budget, traffic=traffic)

    def _authenticated(
        self, ssh: ServerTransport, peer: AgentPeer, tunnel: SSHTunnel
    ) -> tuple[LiveTunnel, AgentRejected | None]:
        self.open_up(tunnel, peer.name, peer.fingerprint, peer.hello.version)
        tunnel.server = peer.hello.server.encode()
        ssh.on_member_status = partial(_reported, tunnel)
        if CHECK_MEMBER in peer.hello.capabilities:
            tunnel.request_check = ssh.request_check
        tunnel.host = name_of(peer.hello.name)
        return tunnel, self._tokens.refusal(peer.name, peer.fingerprint)

    def _register(
        self, accepted: tuple[LiveTunnel, AgentRejected | None], tunnel: SSHTunnel, pipe: Pipe
    ) -> None:
        live, refusal = accepted
        if refusal is not None:
            self._count_rejection(refusal.kind)
        if not self.running or refusal is not None:
            tunnel.close("this agent is no longer allowed to serve that cluster")
            return
        self._log_batch.info(
            "agent of {cluster} connected from {peer}, key {key}, {protocol}; {_reported}",
            cluster=live.name,
            peer=live.peer,
            key=live.fingerprint,
            protocol=live.protocol,
            version=live.version,
            _reported=reported(f"the agent of {live.name}", f"version {live.version}"),
        )
        prove(pipe)
        self._open[tunnel] = live
        self._tunnels.add(live)

    def _count_rejection(self, reason: str) -> None:
        if self.running:
            self._tunnels.counters.rejections[reason] += 1

    def _rejected(self, failure: Failure, tunnel: SSHTunnel) -> None:
        error = failure.value
        if isinstance(error, Disconnected) and error.code == DISCONNECT_BY_APPLICATION:
            return  # such as 'tower doctor'
        kind = _rejection(failure)
        self._count_rejection(kind)
        fields = {}
        if isinstance(error, AuthenticationFailed):
            fields = {"cluster": error.cluster, "key": error.fingerprint}
            if kind == REVOKED:
                self._tunnels.note_revoked(error.cluster, error.fingerprint)
        lost = kind == CONNECTION_LOST
        self.rejections.log(
            "agents disconnected before they were authenticated" if lost else "agents were rejected",
            "agent at {peer} disconnected before it was authenticated: {reason}"
            if lost
            else "agent at {peer} was rejected: {reason}",
            peer=tunnel.peer,
            reason=failure.getErrorMessage(),
            kind=kind,
            **fields,
        )

    def _gone(self, reason: Exception, tunnel: SSHTunnel) -> None:
        live = self._open.pop(tunnel)
        if tunnel.name:
            self._log_batch.info(
                "agent of {cluster} at {peer} disconnected: {reason}",
                cluster=tunnel.name,
                peer=tunnel.peer,
                reason=str(reason),
            )
        if live is not None:
            self._tunnels.counters.disconnected(live.name, ending(reason))
            self._tunnels.remove(live)
        if not self.running:
            self._log_batch.write()
            self.rejections.write()
        waiting = self._all_closed
        if waiting is not None and not self._open:
            self._all_closed = None
            waiting.callback(None)

    def stopService(self) -> Deferred[None]:
        """Close all tunnels; fires when they are closed, or after the grace period."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._log_batch.write()
        self.rejections.write()
        for tunnel in list(self._open):
            tunnel.close("the proxy is stopping")
        if not self._open:
            return succeed(None)
        self._all_closed = Deferred()
        self._all_closed.addTimeout(self._grace, self._reactor)
        return self._all_closed.addErrback(self._abort_all)

    def _abort_all(self, failure: Failure) -> None:
        failure.trap(defer.TimeoutError)
        self._all_closed = None
        for tunnel in list(self._open):
            tunnel.abort()


def _reported(tunnel: SSHTunnel, status: MemberStatus) -> None:
    """Keep the *status* that the agent reported."""
    if status != tunnel.member_status:
        tunnel.member_status = status
        tunnel.on_change()


def _rejection(failure: Failure) -> str:
    """Return the reason for the metrics; see `tower.tunnels.counters.REJECTIONS`."""
    if isinstance(failure.value, AuthenticationFailed):
        return failure.value.kind
    if failure.check(TooManyTunnels):
        return "too-many-tunnels"
    if failure.check(HandshakeTimeout):
        return "timeout"
    lost = failure.value is None or ending(failure.value) != PROTOCOL_ERROR
    return CONNECTION_LOST if lost else PROTOCOL_ERROR
