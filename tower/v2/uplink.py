"""Opens a tunnel to the proxy: dial, authenticate, exchange hellos."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.conch.connection.liveness import LivenessTransport
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.member.member_health import MemberHealth
from tower.member.outgoing import Outgoing
from tower.net.budget import Budget
from tower.net.pipes import Pipe
from tower.reactor.coroutines import deferred
from tower.reactor.timers import Clock
from tower.tunnels.version_skew import skew
from tower.v2.hello import MEMBER_STATUS, AgentHello, Announcement
from tower.v2.known_proxies import KnownProxies
from tower.v2.transport import ClientTransport
from tower.websocket.dialer import Dialer, SubprotocolRefused
from tower.websocket.frames import FrameReader, FrameWriter

T = TypeVar("T")


@frozen
class AgentIdentity:
    """The agent's identity towards the proxy.

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
    :param health: the state of the member, which proxies get that support it.
    """

    _log = Logger()

    _reactor: Clock
    _dialer: Dialer
    _identity: AgentIdentity
    _known_proxies: KnownProxies
    _outgoing: Outgoing
    _budget: Budget
    _keepalive: float = field(kw_only=True)
    _epoch: Callable[[], float] = field(kw_only=True)
    _limits: TransportLimits | None = field(default=None, kw_only=True)
    _health: MemberHealth | None = field(default=None, kw_only=True)

    @deferred
    async def connect(self) -> SSHTunnel:
        """Open a tunnel; cancelling leaves nothing behind.

        :raise TowerError: through the Deferred, with a text for the owner.
        """
        pipe, leftover = await self._dial()
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
        ssh.on_announcement = self._known_proxies.update
        tunnel = tunnel_to_proxy(self._reactor, pipe, ssh)
        proxy = await start(tunnel, pipe, ssh.ready, leftover)
        if identity.token is not None:  # from now on the key is enough
            self._identity = evolve(identity, token=None)
        dialing = self._outgoing.for_tunnel()
        tunnel.lost.addCallback(dialing.lost)
        tunnel.open_up(
            proxy.name,
            proxy.fingerprint,
            proxy.hello.version,
            self._epoch(),
            self._budget,
            dialing.accept,
            self._outgoing.tally.traffic,
        )
        if problem := skew(identity.hello.version, proxy.hello.version):
            self._log.warn("{problem}", problem=problem)
        self._known_proxies.learn(Announcement(proxy.hello.host_keys, proxy.hello.ca_hashes))
        self._known_proxies.used(proxy.fingerprint)
        if self._health is not None and MEMBER_STATUS in proxy.hello.capabilities:
            tunnel.lost.addCallback(self._follow(self._health, ssh))
            ssh.on_check_request = self._health.doubted
        return tunnel

    @staticmethod
    def _follow(health: MemberHealth, ssh: ClientTransport) -> Callable[[Exception], Exception]:
        """Report the member's status by *ssh*; call the result when the tunnel is lost."""
        health.follow(ssh.report)

        def lost(reason: Exception) -> Exception:
            health.unfollow(ssh.report)
            return reason

        return lost

    async def _dial(self) -> tuple[Pipe, bytes]:
        """Dial the proxy.  Never fall back to v1 automatically; name the option instead."""
        try:
            return await self._dialer.dial()
        except SubprotocolRefused as e:
            raise SubprotocolRefused(f"{e}; for a KubeSphere Tower proxy, set --protocol v1") from e


def tunnel_to_proxy(reactor: Clock, pipe: Pipe, ssh: LivenessTransport) -> SSHTunnel:
    """Return the agent's end of a tunnel on *pipe*."""
    return SSHTunnel(reactor, pipe, ssh, FrameReader(from_client=False), FrameWriter(to_server=True))


def start(tunnel: SSHTunnel, pipe: Pipe, ready: Deferred[T], leftover: bytes) -> Deferred[T]:
    """Begin the SSH handshake of *tunnel*; return the result of *ready*.  Cancelling aborts it."""
    result: Deferred[T] = Deferred(lambda _: pipe.abort())
    ready.addCallbacks(result.callback, result.errback)
    tunnel.start(leftover)
    return result
