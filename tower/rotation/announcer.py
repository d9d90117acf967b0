"""Announces the proxy's host keys and CAs to agents with a live tunnel, and notes what they confirm."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.clusters.agent_keys import AgentKeys
from tower.conch.connection.global_requests import RequestRefused, Unanswered
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import TunnelLost
from tower.reactor.cooperate import map_cooperatively
from tower.rotation.dependents import LackingAgent
from tower.tunnels import Tunnels
from tower.v2.hello import ANNOUNCE, Announcement


@define(eq=False)
class Announcer:
    """Sends announcements while a rotation needs them; each agent's hello contains them anyway.

    Only tower-v2 agents get them.

    :param announcement: returns what to announce.
    :ivar is_active: whether new tunnels get an announcement, to confirm it.
    """

    _clock: IReactorTime
    _tunnels: Tunnels
    _keys: AgentKeys
    _announcement: Callable[[], Announcement]
    is_active: bool = field(default=False, init=False)
    _seen: WeakSet[SSHTunnel] = field(factory=WeakSet, init=False)
    _refused: set[tuple[str, str]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        """Follow the tunnels."""
        self._tunnels.watch(self._changed)

    async def publish(self) -> None:
        """Announce to all agents that are connected."""
        self._refused.clear()
        live = [tunnel for tunnel in self._tunnels if isinstance(tunnel, SSHTunnel)]
        await map_cooperatively(self._clock, live, self._send)

    async def repeat(self) -> None:
        """Announce again to agents that refused: some store an announcement only after their answer."""
        refused = [
            tunnel
            for cluster, fingerprint in sorted(self._refused)
            for tunnel in self._tunnels.live(cluster)
            if tunnel.fingerprint == fingerprint and isinstance(tunnel, SSHTunnel)
        ]
        await map_cooperatively(self._clock, refused, self._send)

    def lacking(self, *pins: str) -> tuple[list[LackingAgent], int]:
        """Return the agents that have not confirmed all *pins*, and the number of those that have."""
        lacking, ready = [], 0
        for key in self._keys.all():
            if all(map(key.has, pins)):
                ready += 1
            else:
                lacking.append(
                    LackingAgent(key.cluster, key.fingerprint, self._why(key.cluster, key.fingerprint))
                )
        return sorted(lacking, key=lambda one: (one.cluster, one.agent)), ready

    def _why(self, cluster: str, fingerprint: str) -> str:
        live = [each for each in self._tunnels.live(cluster) if each.fingerprint == fingerprint]
        if not live:
            return "not connected"
        if (cluster, fingerprint) in self._refused:
            version = live[0].version or "unknown"
            return f"version {version} did not confirm it: upgrade the agent, or check its log"
        return "has not answered yet"

    def _changed(self, cluster: str) -> None:
        for tunnel in self._tunnels.live(cluster):
            if isinstance(tunnel, SSHTunnel) and tunnel not in self._seen:
                self._seen.add(tunnel)
                self._keys.connected(cluster, tunnel.fingerprint)
                if self.is_active:
                    self._send(tunnel)

    def _send(self, tunnel: SSHTunnel) -> None:
        announcement = self._announcement()
        answer = tunnel.request(ANNOUNCE, announcement.encode())
        answer.addCallback(self._confirmed, tunnel.name, tunnel.fingerprint, announcement)
        answer.addErrback(self._not_confirmed, tunnel.name, tunnel.fingerprint)

    def _confirmed(self, _: bytes, cluster: str, fingerprint: str, announcement: Announcement) -> None:
        self._refused.discard((cluster, fingerprint))
        self._keys.confirmed(cluster, fingerprint, [*announcement.host_keys, *announcement.ca_hashes])

    def _not_confirmed(self, failure: Failure, cluster: str, fingerprint: str) -> None:
        if failure.check(RequestRefused):
            self._refused.add((cluster, fingerprint))
        else:
            failure.trap(Unanswered, TunnelLost)
