"""Accepts old agents: SSH on each WebSocket, and a tunnel once a config has shown a valid token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from tower.clusters.agent_rejection import AgentRejected
from tower.clusters.v1_tokens import V1Tokens
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.escaping import VERSION_LIMIT, shortened
from tower.net.pipes import Pipe
from tower.tunnels.limits import TunnelSlot
from tower.v1.config import AgentConfig
from tower.v1.server import V1Agent, V1ServerTransport
from tower.v1.tunnel import V1Tunnel
from tower.v2.acceptor import AgentAcceptor


@define(eq=False)
class V1AgentAcceptor:
    """Accepts old agents.

    :param host_keys: the first is used.
    :param keepalive: interval of keepalives, s.
    :param epoch: returns the time of day, s since the epoch.
    :param allows_member_tokens: returns whether a cluster allows tokens of its own accounts.
    :param impersonate: False: all users act with the agents' own credentials.
    """

    _log = Logger()

    _clock: IReactorTime
    _acceptor: AgentAcceptor
    _tokens: V1Tokens
    _host_keys: Sequence[KeyPair]
    _keepalive: float = field(kw_only=True)
    _epoch: Callable[[], float] = field(kw_only=True)
    _allows_member_tokens: Callable[[str], bool] = field(default=lambda _: False, kw_only=True)
    _impersonate: bool = field(default=True, kw_only=True)

    def opened(self, pipe: Pipe, leftover: bytes) -> Deferred[None]:
        """Accept the connection of an agent whose WebSocket is open; see `AgentAcceptor.opened`."""
        slot = TunnelSlot(self._acceptor.slots)
        check = partial(self._check, slot)
        ssh = V1ServerTransport(self._acceptor.wheel, self._host_keys[0], check, keepalive=self._keepalive)
        slot.attach(ssh)
        authenticated = partial(self._authenticated, getattr(pipe, "tls", None) is not None)
        return self._acceptor.accept(ssh, ssh.ready, pipe, leftover, authenticated, self._text_received)

    def _text_received(self) -> None:
        self._acceptor.rejections.log(
            "agents sent text messages",
            "an agent of kubesphere-v1 sends text messages; they are treated as binary ones",
            level=LogLevel.warn,
        )

    def _check(self, slot: TunnelSlot, config: AgentConfig) -> str:
        """Check the token, then the cluster's limit alone: its agents may share one token."""
        token = self._tokens.check(config.name, config.token)
        slot.acquire(config.name, "")
        return token

    def _authenticated(
        self, verified_tls: bool, agent: V1Agent, tunnel: SSHTunnel
    ) -> tuple[V1Tunnel, AgentRejected | None]:
        config = agent.config
        self._acceptor.open_up(
            tunnel, agent.name, agent.fingerprint, shortened(config.version, VERSION_LIMIT)
        )
        if agent.credential.is_missing:
            self._log.warn(
                "agent of {cluster} at {peer} sent no credential for its API server, so requests are "
                "rejected: old agents do not read the files that a kubeconfig names: put the credential "
                "itself into it, and restart the agent",
                cluster=agent.name,
                peer=tunnel.peer,
            )
        refusal = self._tokens.refusal(agent.name, agent.fingerprint)
        if refusal is None:
            self._tokens.connected(agent.name, agent.fingerprint)
        opened = V1Tunnel(
            tunnel,
            agent,
            self._clock,
            self._epoch,
            impersonate=self._impersonate,
            verified_tls=verified_tls,
            allows_member_tokens=partial(self._allows_member_tokens, agent.name),
        )
        return opened, refusal
