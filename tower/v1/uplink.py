"""Opens a tunnel to an old proxy; a proxy that supports tower-v2 needs a configured host key instead."""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import define, evolve, field
from twisted.logger import Logger

from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import ConfigurationError
from tower.member.outgoing import Dialing
from tower.net.budget import Budget
from tower.reactor.coroutines import deferred
from tower.reactor.timers import Clock
from tower.v1.client import V1ClientTransport
from tower.v1.config import AgentConfig
from tower.v1.outgoing import V1Outgoing
from tower.v1.registration import Registrar
from tower.v2.uplink import start, tunnel_to_proxy
from tower.websocket.dialer import Dialer, DialFailed, SubprotocolRefused
from tower.websocket.subprotocols import KUBESPHERE_V1


class NeedsHostKey(DialFailed):
    """The proxy supports tower-v2, and its host key is not configured."""


@define(eq=False)
class V1Uplink:
    """Opens tunnels to an old proxy.

    :param pinned: fingerprints of the proxy's host key; None accepts every key.
    :param keepalive: interval of keepalives, s.
    :param epoch: returns the time of day, s since the epoch.
    :ivar sent: the last registration that was sent.  Secret.
    """

    _reactor: Clock
    _dialer: Dialer
    _registrar: Registrar
    _pinned: Collection[str] | None
    _outgoing: V1Outgoing
    _budget: Budget
    _keepalive: float = field(kw_only=True)
    _epoch: Callable[[], float] = field(kw_only=True)
    _limits: TransportLimits | None = field(default=None, kw_only=True)
    sent: AgentConfig | None = field(default=None, init=False, repr=False)

    @property
    def change(self) -> AgentConfig | None:
        """The registration, if it has changed since it was sent.

        The token for the proxy does not count: proxies check it in new registrations only.
        """
        if self.sent is None:
            return None
        try:
            current = self._registrar.registration().config
        except ConfigurationError:
            return None  # no better one can be sent
        return None if evolve(current, token=self.sent.token) == self.sent else current

    @deferred
    async def connect(self) -> SSHTunnel:
        """Open a tunnel; cancelling leaves nothing behind.

        :raise TowerError: through the Deferred, with a text for the owner.
        """
        registration = self._registrar.registration()
        self.sent = registration.config
        pipe, leftover = await self._dialer.dial(KUBESPHERE_V1)
        config = registration.config
        ssh = V1ClientTransport(
            self._reactor, config, self._pinned, keepalive=self._keepalive, limits=self._limits
        )
        tunnel = tunnel_to_proxy(self._reactor, pipe, ssh)
        dialing = self._outgoing.for_tunnel(registration)
        tunnel.lost.addCallback(dialing.lost)
        ssh.on_admitted = lambda: self._open_up(tunnel, config.name, dialing)
        tunnel.fingerprint = await start(tunnel, pipe, ssh.ready, leftover)
        return tunnel

    def _open_up(self, tunnel: SSHTunnel, cluster: str, dialing: Dialing) -> None:
        """Carry streams: an old proxy opens them before it answers the registration."""
        tunnel.open_up(
            cluster,
            "",
            KUBESPHERE_V1,
            self._epoch(),
            self._budget,
            dialing.accept,
            self._outgoing.tally.traffic,
        )


@define(eq=False)
class EitherUplink:
    """Tries tower-v2 first, and opens a tunnel by kubesphere-v1 if the server supports nothing else.

    For agents without a configured host key: they do not connect to a proxy that has one.
    """

    _log = Logger()

    _dialer: Dialer
    _old: V1Uplink

    @deferred
    async def connect(self) -> SSHTunnel:
        """See `V1Uplink.connect`."""
        try:
            connection, _ = await self._dialer.dial()
        except SubprotocolRefused as e:
            self._log.info("no tower-v2 there ({reason}); trying kubesphere-v1", reason=str(e))
            return await self._old.connect()
        connection.abort()
        raise NeedsHostKey(
            f"{self._dialer.url} speaks tower-v2, which is safe only with the proxy's host key: set "
            "--host-key as 'tower join' prints it, instead of --insecure-v1-any-host-key"
        )
