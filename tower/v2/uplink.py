"""Opens a tunnel to the proxy: dial, authenticate, exchange hellos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred

from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.member.outgoing import Dialing, Outgoing
from tower.net.budget import Budget
from tower.reactor.timers import Clock
from tower.v2.hello import AgentHello
from tower.v2.known_proxies import KnownProxies
from tower.v2.transport import ClientTransport, ProxyPeer
from tower.websocket.dialer import Dialer, SubprotocolRefused
from tower.websocket.frames import FrameReader, FrameWriter


@frozen
class AgentIdentity:
    """The agent's identity towards the proxy.

    :ivar cluster: name of the cluster that it serves.
    :ivar token: a join token, until the key is enrolled.
    """

    cluster: str
    key: KeyPair
    hello: AgentHello
    token: str | None = field(default=None, repr=False)


@define(eq=False)
class Uplink:
    """Opens tunnels to the proxy.

    :param keepalive: interval of keepalives, s.
    :param epoch: returns the time of day, s since the epoch.
    :param limits: of the SSH connection.
    """

    _reactor: Clock
    _dialer: Dialer
    _identity: AgentIdentity
    _known_proxies: KnownProxies
    _outgoing: Outgoing
    _budget: Budget
    _keepalive: float = field(kw_only=True)
    _epoch: Callable[[], float] = field(kw_only=True)
    _limits: TransportLimits | None = field(default=None, kw_only=True)

    def connect(self) -> Deferred[SSHTunnel]:
        """Open a tunnel; cancelling leaves nothing behind.

        :raise TowerError: through the Deferred, with a text for the owner.
        """
        return Deferred.fromCoroutine(self._dial()).addCallback(self._authenticate)

    async def _dial(self) -> tuple[Any, bytes]:
        """Dial the proxy.  Never fall back to v1 automatically; name the option instead."""
        try:
            return await self._dialer.dial()
        except SubprotocolRefused as e:
            raise SubprotocolRefused(f"{e}; for a KubeSphere Tower proxy, set --protocol v1") from e

    def _authenticate(self, dialed: tuple[Any, bytes]) -> Deferred[SSHTunnel]:
        pipe, leftover = dialed
        identity = self._identity
        ssh = ClientTransport(
            self._reactor,
            identity.key,
            identity.cluster,
            self._known_proxies.pinned,
            identity.hello,
            token=identity.token,
            keepalive=self._keepalive,
            limits=self._limits,
        )
        tunnel = SSHTunnel(
            self._reactor, pipe, ssh, FrameReader(from_client=False), FrameWriter(to_server=True)
        )
        opened: Deferred[SSHTunnel] = Deferred(lambda _: pipe.abort())
        ssh.ready.addCallback(self._open_up, tunnel).addCallbacks(opened.callback, opened.errback)
        tunnel.start(leftover)
        return opened

    def _open_up(self, proxy: ProxyPeer, tunnel: SSHTunnel) -> SSHTunnel:
        if self._identity.token is not None:  # from now on the key is enough
            self._identity = evolve(self._identity, token=None)
        dialing = self._outgoing.for_tunnel()
        tunnel.lost.addCallback(self._stop, dialing)
        tunnel.open_up(
            proxy.name,
            proxy.fingerprint,
            proxy.hello.version,
            self._epoch(),
            self._budget,
            dialing.accept,
        )
        self._known_proxies.learn(proxy.hello.host_keys)
        return tunnel

    def _stop(self, reason: Exception, dialing: Dialing) -> Exception:
        dialing.stop()
        return reason
