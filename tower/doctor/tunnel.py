"""Checks of an agent's tunnel: WebSocket, host key, and whether the agent's key is enrolled."""

from __future__ import annotations

from collections.abc import Collection

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.conch.connection.client import Client
from tower.conch.transport.keys import KeyPair, fingerprint
from tower.conch.transport.limits import DEFAULT_LIMITS
from tower.doctor.findings import Step, Verdict, fail, ok, warn
from tower.doctor.network import PATIENCE
from tower.doctor.route import ServerRoute
from tower.errors import PeerError, TowerError
from tower.net.pipes import Pipe
from tower.reactor.timers import Clock, within
from tower.v2.peers import HostKeyMismatch
from tower.v2.uplink import start, tunnel_to_proxy
from tower.v2.userauth import UserAuthClient
from tower.websocket.dialer import Dialer, DialFailed, SubprotocolRefused
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2

#: Interval of keepalives, s; longer than the connection.
_KEEPALIVE = 60.0


class _NoAnswer(TowerError):
    """The proxy did not answer the SSH handshake in time."""


class KeyProbe(Client):
    """An SSH client that verifies the proxy's host key and, with a key, authenticates.  It is not a tunnel.

    :param pinned: fingerprints of accepted host keys.
    :param key: None: end after the key exchange.
    :ivar seen: fingerprint of the proxy's host key.
    :ivar ready: fires with whether the proxy accepts the key, False without a key; fails with the reason.
    """

    __slots__ = ("_has_key", "_pinned", "ready", "seen")

    def __init__(self, clock: Clock, pinned: Collection[str], cluster: str, key: KeyPair | None) -> None:
        super().__init__(clock, _KEEPALIVE, DEFAULT_LIMITS)
        self.ready: Deferred[bool] = Deferred()
        self.seen = ""
        self._pinned = frozenset(pinned)
        self._has_key = key is not None
        if key is not None:
            self.auth = UserAuthClient(
                cluster, key, None, lambda: self._settle(accepted=True), lambda: self._settle(accepted=False)
            )

    @property
    def peer(self) -> str:
        """See `PacketTransport.peer`."""
        return "the proxy"

    def host_key_error(self, host_key: bytes) -> PeerError | None:
        """See `Client.host_key_error`."""
        self.seen = fingerprint(host_key)
        return None if self.seen in self._pinned else HostKeyMismatch(self.seen, self._pinned)

    def secured(self) -> None:
        """Authenticate, or finish."""
        if self._has_key:
            super().secured()
        else:
            self._settle(accepted=False)

    def _settle(self, *, accepted: bool) -> None:
        if not self.ready.called:
            self.ready.callback(accepted)

    def ended(self, reason: Exception) -> None:
        """Fail `ready`."""
        super().ended(reason)
        if not self.ready.called:
            self.ready.errback(Failure(reason))


@define(eq=False)
class TunnelChecks:
    """Checks over one new WebSocket, after those of the route.

    :param pinned: fingerprints of the proxy's host keys that the agent accepts.
    :param key: the agent's key; None: it has not joined yet.
    :param is_v1: whether the agent uses kubesphere-v1, which has neither.
    """

    _route: ServerRoute
    _cluster: str
    _pinned: Collection[str]
    _key: KeyPair | None
    _has_token: bool
    _is_v1: bool = False
    _accepted: bool = field(default=False, init=False)

    def steps(self) -> list[Step]:
        """Return the checks, in order."""
        steps = [Step("WebSocket", self._websocket)]
        if not self._is_v1:
            steps += [Step("host key", self._host_key), Step("enrollment", self._enrolment)]
        return steps

    async def _dial(self) -> tuple[Pipe, bytes]:
        route = self._route
        dialer = Dialer(route.network.reactor, route.url, context=route.context, proxy=route.proxy)
        return await dialer.dial(KUBESPHERE_V1 if self._is_v1 else TOWER_V2)

    async def _websocket(self) -> Verdict:
        authority = self._route.url.authority
        try:
            pipe, _ = await self._dial()
        except SubprotocolRefused as e:
            return fail(
                str(e), f"give --proxy-server the URL of 'tower join {self._cluster}'; is it a Tower proxy?"
            )
        except DialFailed as e:
            return fail(str(e), f"let the HTTP proxy or load balancer at {authority} pass WebSocket upgrades")
        pipe.abort()
        return ok(f"{authority} accepts WebSockets of agents")

    async def _host_key(self) -> Verdict:
        pipe, leftover = await self._dial()
        reactor = self._route.network.reactor
        probe = KeyProbe(reactor, self._pinned, self._cluster, self._key)
        tunnel = tunnel_to_proxy(reactor, pipe, probe)
        try:
            self._accepted = await within(
                reactor, PATIENCE, start(tunnel, pipe, probe.ready, leftover), _too_slow
            )
        except HostKeyMismatch as e:
            return fail(
                f"the proxy's host key is {e.fingerprint}, not {' or '.join(sorted(self._pinned))}",
                f"if the key was changed on purpose: --host-key {e.fingerprint}",
            )
        finally:
            pipe.abort()
        return ok(f"the proxy's host key is {probe.seen}")

    def _enrolment(self) -> Verdict:
        join = f"run 'tower join {self._cluster}' on the proxy's machine, and its line here"
        if self._key is None:
            if self._has_token:
                return ok("not joined yet; the agent joins with its token at its start")
            return fail("this agent has neither a key nor a join token", join)
        name = f"key {self._key.fingerprint}"
        if self._accepted:
            return ok(f"{name} is enrolled for cluster {self._cluster}")
        seen = f"{name} is not enrolled for cluster {self._cluster}"
        return warn(f"{seen}; the agent tries its join token", join) if self._has_token else fail(seen, join)


def _too_slow() -> Exception:
    return _NoAnswer(f"no answer to the SSH handshake within {PATIENCE:g} s: check the proxy's log")
