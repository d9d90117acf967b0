"""Where old agents come in: SSH over each WebSocket, and a tunnel once a config has shown a good token."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger, LogLevel

from tower.clusters.v1_tokens import V1Tokens
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.escaping import LONGEST_VERSION, shortened
from tower.net.pipes import Pipe
from tower.tunnels.limits import TunnelSlot
from tower.v1.config import AgentConfig
from tower.v1.server import V1Agent, V1ServerTransport
from tower.v1.tunnel import V1Tunnel
from tower.v2.acceptor import AgentAcceptor


class V1AgentAcceptor:
    """Takes old agents.

    :param clock: for the connections' timers.
    :param reception: keeps the tunnels.
    :param tokens: knows which token is good for which cluster.
    :param keepalive: how often agents are probed, s.
    :param impersonate: False lets everybody act with the agents' own rights.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        reception: AgentAcceptor,
        tokens: V1Tokens,
        host_key: KeyPair,
        *,
        keepalive: float,
        impersonate: bool = True,
    ) -> None:
        self._clock = clock
        self._reception = reception
        self._tokens = tokens
        self._host_key = host_key
        self._keepalive = keepalive
        self._impersonate = impersonate

    def opened(self, pipe: Pipe, leftover: bytes) -> Deferred[None]:
        """Take the connection of an agent whose WebSocket is open; see `AgentAcceptor.opened`."""
        slot = TunnelSlot(self._reception.places)
        admit = partial(self._admit, slot)
        ssh = V1ServerTransport(self._reception.wheel, self._host_key, admit, keepalive=self._keepalive)
        slot.attach(ssh)
        return self._reception.take(ssh, ssh.ready, pipe, leftover, self._welcome, self._text_came)

    def _text_came(self) -> None:
        self._reception.rejections.log(
            "agents sent text messages",
            "an agent of kubesphere-v1 sends text messages; they are treated as binary ones",
            level=LogLevel.warn,
        )

    def _admit(self, slot: TunnelSlot, config: AgentConfig) -> str:
        """All agents of a cluster may send one token, so the cluster's limit alone counts for them."""
        token = self._tokens.check(config.name, config.token)
        slot.acquire(config.name, "")
        return token

    def _welcome(self, agent: V1Agent, tunnel: SSHTunnel) -> tuple[V1Tunnel, str | None]:
        config = agent.config
        self._reception.open_up(
            tunnel, agent.name, agent.fingerprint, shortened(config.version, LONGEST_VERSION)
        )
        if agent.credential.is_missing:
            self._log.warn(
                "agent of {cluster} at {peer} sent no credential for its API server, which will refuse "
                "nearly all requests: old agents take none from the files that a kubeconfig names",
                cluster=agent.name,
                peer=tunnel.peer,
            )
        refusal = self._tokens.refusal(agent.name, agent.fingerprint)
        return V1Tunnel(tunnel, agent, self._clock, impersonate=self._impersonate), refusal
