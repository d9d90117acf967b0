"""One tunnel to the proxy, from the first packet to the hello."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.conch.transport.keys import KeyPair, checked_fingerprint
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import ConfigurationError
from tower.member.outgoing import Outgoing
from tower.net.budget import Budget
from tower.trust.statedir import StateDir
from tower.v2.hello import AgentHello
from tower.v2.transport import ClientTransport, ProxyPeer
from tower.websocket.dialer import Dialer, NotSpoken
from tower.websocket.frames import FrameReader, FrameWriter

_HOST_KEYS = "host-keys.json"


class KnownProxies:
    """The fingerprints of the proxy's host key: those of the join line, and those it announced since.

    What a proxy announces over an authenticated connection is kept, so that it can change to its next key
    while agents run.  It counts only together with the join line that it came by.

    :param given: of the join line.
    """

    _log = Logger()

    def __init__(self, state: StateDir, given: Collection[str]) -> None:
        self._state = state
        self._given = sorted(given)
        self._announced = self._load()

    @property
    def pinned(self) -> set[str]:
        """Every key that the proxy may have."""
        return {*self._given, *self._announced}

    def _load(self) -> list[str]:
        try:
            kept = json.loads(self._state.read(_HOST_KEYS) or b"{}")
            if kept.get("given") != self._given:
                return []
            return [checked_fingerprint(text) for text in kept["announced"]]
        except (ValueError, TypeError, AttributeError, KeyError, ConfigurationError):
            self._log.warn(
                "{name} in the state directory is damaged; it will be written anew", name=_HOST_KEYS
            )
            return []

    def learn(self, announced: Collection[str]) -> None:
        """Keep what the proxy announced; a full disk is logged, and the next hello tries again."""
        try:
            good = sorted(checked_fingerprint(text) for text in announced)
            if good == self._announced or not good:
                return
            kept = {"given": self._given, "announced": good}
            self._state.write(_HOST_KEYS, json.dumps(kept).encode())
        except ConfigurationError as e:
            self._log.warn("cannot keep the host keys that the proxy announced: {reason}", reason=str(e))
        else:
            self._announced = good


@frozen
class AgentIdentity:
    """Who the agent is to the proxy.

    :ivar cluster: the name that it serves.
    :ivar token: a join token for as long as the key is not enrolled.
    """

    cluster: str
    key: KeyPair
    hello: AgentHello
    token: str | None = field(default=None, repr=False)


class Uplink:
    """Opens tunnels.

    :param keepalive: how often the proxy is probed, s.
    :param epoch: returns the time of day, s since the epoch.
    :param limits: of the SSH connection.
    """

    def __init__(
        self,
        reactor: Any,
        dialer: Dialer,
        identity: AgentIdentity,
        host_keys: KnownProxies,
        outgoing: Outgoing,
        budget: Budget,
        *,
        keepalive: float,
        epoch: Callable[[], float],
        limits: TransportLimits | None = None,
    ) -> None:
        self._reactor = reactor
        self._dialer = dialer
        self._identity = identity
        self._host_keys = host_keys
        self._outgoing = outgoing
        self._budget = budget
        self._keepalive = keepalive
        self._epoch = epoch
        self._limits = limits

    def connect(self) -> Deferred[SSHTunnel]:
        """Return a live tunnel; cancelling leaves nothing behind.

        :raise TowerError: through the Deferred, with a text for the owner.
        """
        return Deferred.fromCoroutine(self._dial()).addCallback(self._authenticate)

    async def _dial(self) -> tuple[Any, bytes]:
        """Dial; there is no step down to what is not safe, but the way to it is told."""
        try:
            return await self._dialer.dial()
        except NotSpoken as e:
            raise NotSpoken(f"{e}; if it is a proxy of KubeSphere Tower, it needs --protocol v1") from e

    def _authenticate(self, dialled: tuple[Any, bytes]) -> Deferred[SSHTunnel]:
        pipe, leftover = dialled
        identity = self._identity
        ssh = ClientTransport(
            self._reactor,
            identity.key,
            identity.cluster,
            self._host_keys.pinned,
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
        if self._identity.token is not None:  # the key alone lets us in from now on
            self._identity = evolve(self._identity, token=None)
        dialling = self._outgoing.for_tunnel()
        tunnel.lost.addCallback(self._stop, dialling)
        tunnel.open_up(
            proxy.name,
            proxy.fingerprint,
            proxy.hello.version,
            self._epoch(),
            self._budget,
            dialling.accept,
        )
        self._host_keys.learn(proxy.hello.host_keys)
        return tunnel

    def _stop(self, reason: Exception, dialling: Any) -> Exception:
        dialling.stop()
        return reason
