"""A tunnel that an old agent opened, and how streams and requests go through it.

An old agent connects a channel to the address that it is told and passes bytes on.  So what an agent of
``tower-v2`` does at its end is done in a `tower.tunnels.apiserver_gate.APIServerGate`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, fail

from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import StreamRefused
from tower.net.addresses import join_address
from tower.tunnels.apiserver_gate import APIServerGate
from tower.tunnels.registry import Rewrite
from tower.tunnels.targets import KUBERNETES, KUBESPHERE
from tower.v1.config import CHANNEL
from tower.v1.server import V1Agent
from tower.websocket.subprotocols import KUBESPHERE_V1

#: The port that old agents leave out.
_KUBESPHERE_PORT = 80

#: Why nobody acts as these through an old agent.
_NO_SYSTEM = "no option allows it for agents of kubesphere-v1"

_HAS_PORT = re.compile(r"(?:\[[^\]]*\]|[^:\]]*):[0-9]+")


class V1Tunnel:
    """See `tower.tunnels.Tunnel`.

    :param tunnel: opened up.
    :param clock: has ``callLater`` and ``seconds``.
    :param impersonate: False lets everybody act with the agent's own rights.
    :ivar credential_expires: when what the agent sent for its API server ends, s since the epoch; None when
        nobody can tell.
    """

    protocol: ClassVar[str] = KUBESPHERE_V1

    #: An old agent does not say that it will be gone, and is not told.
    draining = False

    def __init__(self, tunnel: SSHTunnel, agent: V1Agent, clock: Any, *, impersonate: bool = True) -> None:
        self._tunnel = tunnel
        credential = agent.credential
        config = agent.config
        self._kubernetes = join_address(credential.host, credential.port).encode()
        self._kubesphere = _with_port(config.kubesphere).encode()
        self._door = APIServerGate(
            clock,
            credential.context,
            credential.server_name,
            lambda: credential.upstream,
            credential.resumption,
            impersonate=impersonate,
            why_not=_NO_SYSTEM,
        )
        self.credential_expires = credential.expires
        self.name, self.fingerprint, self.version = agent.name, agent.fingerprint, config.version
        self.peer, self.since = tunnel.peer, tunnel.since
        self.server = credential.address.encode()  # as in the Host fields that it gets
        self.on_change: Callable[[], None] = lambda: None

    @property
    def round_trip(self) -> float:
        """To the agent, s; 0 while unknown."""
        return self._tunnel.round_trip

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._tunnel.streams

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream to ``kubernetes``, where TLS is up then, or to ``kubesphere``.

        Whether the agent reached the address shows only by what comes: it accepts before it dials.

        :raise StreamRefused: through the Deferred.
        :raise TunnelLost: through the Deferred.
        """
        if target == KUBERNETES:
            return self._tunnel.open_channel(CHANNEL, self._kubernetes).addCallback(self._door.secure)
        if target == KUBESPHERE and self._kubesphere:
            return self._tunnel.open_channel(CHANNEL, self._kubesphere)
        return fail(StreamRefused("no-such-target", f'an agent of kubesphere-v1 has no target "{target}"'))

    def rewrite_for(self, target: str) -> Rewrite | None:
        """See `APIServerGate.rewrite`."""
        return self._door.rewrite if target == KUBERNETES else None

    def drain(self) -> None:
        """Say nothing: an old agent has no ear for it."""

    def close(self, reason: str) -> None:
        """Close it, telling the agent why."""
        self._tunnel.close(reason)


def _with_port(address: str) -> str:
    """Return *address* as an old agent can dial it; what it has by default lacks the port."""
    if not address or _HAS_PORT.fullmatch(address):
        return address
    return join_address(address.strip("[]"), _KUBESPHERE_PORT)
