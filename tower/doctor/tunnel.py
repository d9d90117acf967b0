"""Checks of an agent's tunnel: WebSocket, host key, and whether the agent's key is enrolled."""

from __future__ import annotations

from collections.abc import Collection

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.clusters.agent_rejection import DISABLED, REVOKED
from tower.conch.connection.client import Client
from tower.conch.transport.keys import KeyPair, fingerprint
from tower.conch.transport.limits import DEFAULT_LIMITS
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.doctor.findings import Step, Verdict, fail, ok, warn
from tower.doctor.network import PATIENCE
from tower.doctor.route import ServerRoute
from tower.errors import PeerError, TowerError
from tower.reactor.timers import Clock, within
from tower.v2.peers import HostKeyMismatch
from tower.v2.uplink import start, tunnel_to_proxy
from tower.v2.userauth import UserAuthClient
from tower.websocket.dialer import Dialer, DialFailed, SubprotocolRefused
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2

#: Timeout for the end of a connection, s.
_PARTING = 2.0

#: Interval of keepalives, s; longer than the connection.
_KEEPALIVE = 60.0


class _NoAnswer(TowerError):
    """The proxy did not answer the SSH handshake in time."""


class KeyProbe(Client):
    """An SSH client that verifies the proxy's host key and, with a key, authenticates.  It is not a tunnel.

    :param pinned: fingerprints of accepted host keys.
    :param key: None: end after the key exchange.
    :ivar seen: fingerprint of the proxy's host key.
    :ivar notice: the proxy's notice about a key that it rejects; see `UserAuthClient`.
    :ivar ready: fires with whether the proxy accepts the key, False without a key; fails with the reason.
    """

    __slots__ = ("_has_key", "_pinned", "notice", "ready", "seen")

    def __init__(self, clock: Clock, pinned: Collection[str], cluster: str, key: KeyPair | None) -> None:
        super().__init__(clock, _KEEPALIVE, DEFAULT_LIMITS)
        self.ready: Deferred[bool] = Deferred()
        self.seen = self.notice = ""
        self._pinned = frozenset(pinned)
        self._has_key = key is not None
        if key is not None:
            self.auth = UserAuthClient(
                cluster, key, None, lambda: self._settle(accepted=True), self._rejected
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

    def _rejected(self, notice: str) -> None:
        self.notice = notice
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
    _notice: str = field(default="", init=False)

    def steps(self) -> list[Step]:
        """Return the checks, in order."""
        steps = [Step("WebSocket", self._websocket)]
        if not self._is_v1:
            steps += [Step("host key", self._host_key), Step("enrollment", self._enrolment)]
        return steps

    async def _connect(self, key: KeyPair | None) -> tuple[SSHTunnel, KeyProbe, Deferred[bool]]:
        """Return a new connection, its probe, and the result of its handshake, which has begun."""
        route = self._route
        reactor = route.network.reactor
        dialer = Dialer(reactor, route.url, context=route.context, proxy=route.proxy)
        pipe, leftover = await dialer.dial(KUBESPHERE_V1 if self._is_v1 else TOWER_V2)
        probe = KeyProbe(reactor, self._pinned, self._cluster, key)
        tunnel = tunnel_to_proxy(reactor, pipe, probe)
        return tunnel, probe, start(tunnel, pipe, probe.ready, leftover)

    async def _leave(self, tunnel: SSHTunnel) -> None:
        """Close *tunnel* so that the proxy can distinguish it from an agent that was cut."""
        tunnel.close("the check is finished")
        try:
            await within(self._route.network.reactor, _PARTING, tunnel.lost, _too_slow)
        except _NoAnswer:
            tunnel.abort()

    async def _websocket(self) -> Verdict:
        authority = self._route.url.authority
        try:
            tunnel, _, handshake = await self._connect(None)
        except SubprotocolRefused as e:
            return fail(
                str(e), f"give --proxy-server the URL of 'tower join {self._cluster}'; is it a Tower proxy?"
            )
        except DialFailed as e:
            return fail(str(e), f"let the HTTP proxy or load balancer at {authority} pass WebSocket upgrades")
        handshake.addErrback(lambda _: None)  # only the WebSocket is of interest
        await self._leave(tunnel)
        return ok(f"{authority} accepts WebSockets of agents")

    async def _host_key(self) -> Verdict:
        tunnel, probe, handshake = await self._connect(self._key)
        try:
            self._accepted = await within(self._route.network.reactor, PATIENCE, handshake, _too_slow)
            self._notice = probe.notice
        except HostKeyMismatch as e:
            return fail(
                f"the proxy's host key is {e.fingerprint}, not {' or '.join(sorted(self._pinned))}",
                f"if the key was changed on purpose: --host-key {e.fingerprint}",
            )
        finally:
            await self._leave(tunnel)
        return ok(f"the proxy's host key is {probe.seen}")

    def _enrolment(self) -> Verdict:
        join = (
            f"run 'tower join {self._cluster}' on the proxy's machine, and its line here; in a pod, "
            f"apply a new manifest, as with 'tower join {self._cluster} --format manifest'"
        )
        if self._key is None:
            if self._has_token:
                return ok("not joined yet; the agent joins with its token at its start")
            return fail("this agent has neither a key nor a join token", join)
        name = f"key {self._key.fingerprint}"
        if self._accepted:
            return ok(f"{name} is enrolled for cluster {self._cluster}")
        if self._notice == DISABLED:
            cure = f"run 'tower cluster enable {self._cluster}' on the proxy's machine"
            return fail(f"{name} is enrolled, but cluster {self._cluster} is disabled", cure)
        if self._notice == REVOKED:
            return fail(f"{name} was revoked for cluster {self._cluster}", join)
        seen = f"{name} is not enrolled for cluster {self._cluster}"
        return warn(f"{seen}; the agent tries its join token", join) if self._has_token else fail(seen, join)


def _too_slow() -> Exception:
    return _NoAnswer(f"no answer to the SSH handshake within {PATIENCE:g} s: check the proxy's log")
