"""Where agents come in: an SSH server over each WebSocket, and a live tunnel once the agent proved itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as TooLate
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.join_tokens import JoinTokens
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.interfaces import SSH
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.escaping import reported
from tower.net.budget import Budget
from tower.net.connection_slots import prove
from tower.net.pipes import Pipe
from tower.reactor.log_batch import LogBatch, Summary
from tower.reactor.timers import Wheel
from tower.tunnels import Tunnel as LiveTunnel
from tower.tunnels import Tunnels
from tower.tunnels.limits import TunnelSlot, TunnelSlots
from tower.v2.transport import AgentPeer, ServerTransport
from tower.websocket.frames import FrameReader, FrameWriter

#: Makes the frames of every tunnel: what goes to an agent is not masked, so there is nothing to remember.
_TO_AGENT = FrameWriter(to_server=False)

P = TypeVar("P")


class _Gate:
    """The gatekeeper of one connection: its key is good, and there is a place for its tunnel."""

    __slots__ = ("_slot", "_tokens")

    def __init__(self, tokens: JoinTokens, slot: TunnelSlot) -> None:
        self._tokens = tokens
        self._slot = slot

    def is_enrolled(self, cluster: str, fingerprint: str, /) -> bool | Awaitable[bool]:
        """See `Gatekeeper.is_enrolled`."""
        if not self._tokens.is_enrolled(cluster, fingerprint):
            return False
        waiting = self._slot.acquire(cluster, fingerprint)
        return True if waiting is None else waiting.addCallback(lambda _: True)

    async def enrol(self, cluster: str, token: str, fingerprint: str, blob: bytes, /) -> None:
        """See `Gatekeeper.enrol`."""
        await self._tokens.enrol(cluster, token, fingerprint, blob)
        waiting = self._slot.acquire(cluster, fingerprint)
        if waiting is not None:
            await waiting


class AgentAcceptor(Service):
    """Runs the proxy's end of SSH for every agent and keeps `Tunnels` up to date.

    :param gate: knows which keys and tokens are good for which cluster.
    :param host_keys: ours; see `tower.v2.transport.ServerTransport`.
    :param keepalive: how often agents are probed, s.
    :param epoch: returns the time of day, s since the epoch.
    :param grace: how long a stop waits for connections to close, s.
    :param per_key: how many tunnels one key may have into one cluster; 0: any number.
    :param per_cluster: how many tunnels one cluster may have; 0: any number.
    :ivar wheel: the clock of all those connections.
    :ivar places: what they have from authentication on.
    :ivar rejections: writes lines that strangers can cause.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        tunnels: Tunnels,
        gate: JoinTokens,
        host_keys: Sequence[KeyPair],
        budget: Budget,
        *,
        keepalive: float,
        epoch: Callable[[], float],
        grace: float = 5.0,
        per_key: int = 0,
        per_cluster: int = 0,
    ) -> None:
        self._reactor = reactor
        self.wheel = Wheel(reactor)
        self.places = TunnelSlots(self.wheel, per_key=per_key, per_cluster=per_cluster)
        self._news = LogBatch(self.wheel, self._log)
        self.rejections = Summary(self.wheel, self._log)
        self._tunnels = tunnels
        self._gate = gate
        self._host_keys = host_keys
        self._budget = budget
        self._keepalive = keepalive
        self._epoch = epoch
        self._grace = grace
        self._open: dict[SSHTunnel, LiveTunnel | None] = {}
        self._all_gone: Deferred[None] | None = None

    def opened(self, pipe: Pipe, leftover: bytes) -> Deferred[None]:
        """Take the connection of an agent whose WebSocket is open.

        :return: fires once the agent is let in or gone.
        """
        slot = TunnelSlot(self.places)
        gate = _Gate(self._gate, slot)
        ssh = ServerTransport(self.wheel, self._host_keys, gate, keepalive=self._keepalive)
        slot.attach(ssh)
        return self.take(ssh, ssh.ready, pipe, leftover, self._welcome)

    def take(
        self,
        ssh: SSH,
        ready: Deferred[P],
        pipe: Pipe,
        leftover: bytes,
        welcome: Callable[[P, SSHTunnel], tuple[LiveTunnel, str | None]],
        on_text: Callable[[], None] | None = None,
    ) -> Deferred[None]:
        """Run *ssh* over *pipe* until it is gone.

        :param ready: fires with who is there.
        :param welcome: opens the tunnel up; returns what `Tunnels` is to have, and why it may not after all.
        :param on_text: called when text messages come, which else end the connection.
        :return: fires once the agent is let in or gone.
        """
        reader = FrameReader(from_client=True, on_text=on_text)
        tunnel = SSHTunnel(self._reactor, pipe, ssh, reader, _TO_AGENT)
        self._open[tunnel] = None
        tunnel.lost.addCallback(self._gone, tunnel)
        settled = ready.addCallback(welcome, tunnel).addCallbacks(
            self._admit, self._not_let_in, callbackArgs=(tunnel, pipe), errbackArgs=(tunnel,)
        )
        tunnel.start(leftover)
        return settled

    def open_up(self, tunnel: SSHTunnel, name: str, fingerprint: str, version: str) -> None:
        """Have *tunnel*, whose agent has proved itself, carry streams."""
        tunnel.open_up(name, fingerprint, version, self._epoch(), self._budget)

    def _welcome(self, peer: AgentPeer, tunnel: SSHTunnel) -> tuple[LiveTunnel, str | None]:
        self.open_up(tunnel, peer.name, peer.fingerprint, peer.hello.version)
        tunnel.server = peer.hello.server.encode()
        return tunnel, self._gate.refusal(peer.name, peer.fingerprint)

    def _admit(self, welcomed: tuple[LiveTunnel, str | None], tunnel: SSHTunnel, pipe: Pipe) -> None:
        live, refusal = welcomed
        if not self.running or refusal:
            tunnel.close("this agent may not serve that cluster any more")
            return
        self._news.info(
            "agent of {cluster} connected from {peer}, key {key}, {protocol}; {told}",
            cluster=live.name,
            peer=live.peer,
            key=live.fingerprint,
            protocol=live.protocol,
            told=reported(f"the agent of {live.name}", f"version {live.version}"),
        )
        prove(pipe)
        self._open[tunnel] = live
        self._tunnels.add(live)

    def _not_let_in(self, failure: Failure, tunnel: SSHTunnel) -> None:
        self.rejections.log(
            "agents were not let in",
            "agent at {peer} was not let in: {reason}",
            peer=tunnel.peer,
            reason=failure.getErrorMessage(),
        )

    def _gone(self, reason: Exception, tunnel: SSHTunnel) -> None:
        live = self._open.pop(tunnel)
        if tunnel.name:
            self._news.info(
                "agent of {cluster} at {peer} is gone: {reason}",
                cluster=tunnel.name,
                peer=tunnel.peer,
                reason=str(reason),
            )
        if live is not None:
            self._tunnels.remove(live)
        if not self.running:
            self._news.write()
            self.rejections.write()
        waiting = self._all_gone
        if waiting is not None and not self._open:
            self._all_gone = None
            waiting.callback(None)

    def stopService(self) -> Deferred[None]:
        """Close all tunnels; fires when they are closed, or after the grace period."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._news.write()
        self.rejections.write()
        for tunnel in list(self._open):
            tunnel.close("the proxy is stopping")
        if not self._open:
            return succeed(None)
        self._all_gone = Deferred()
        self._all_gone.addTimeout(self._grace, self._reactor)
        return self._all_gone.addErrback(self._cut)

    def _cut(self, failure: Failure) -> None:
        failure.trap(TooLate)
        self._all_gone = None
        for tunnel in list(self._open):
            tunnel.abort()
