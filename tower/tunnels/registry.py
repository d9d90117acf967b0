"""The live tunnels of every cluster: where the control plane and the data plane meet.

The control plane adds tunnels, drains and cuts them; the data plane picks one and asks it for a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as TooLate
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.errors import ClusterUnreachable
from tower.net.pipes import Pipe

#: What a `Tunnel.protocol` says that leads to nodes by SSH, and not to an agent.
SSH = "ssh"

#: How long after it was last seen, or after our own start, an agent counts as reconnecting, s.
RECONNECTING = 60.0


class Tunnel(Protocol):
    """One live way into a cluster; `tower.conch.tunnel.tunnel.SSHTunnel` is the one that an agent opened.

    :ivar name: the cluster.
    :ivar fingerprint: of the agent's key.
    :ivar version: of the agent.
    :ivar peer: address of the agent.
    :ivar since: when it opened, s since the epoch.
    :ivar draining: whether it takes no new streams.
    :ivar on_change: called when `draining` changes.
    """

    name: str
    fingerprint: str
    version: str
    peer: str
    since: float
    draining: bool
    on_change: Callable[[], None]

    @property
    def server(self) -> bytes:
        """What the API server is called: authority and path; empty when nobody said."""

    @property
    def protocol(self) -> str:
        """What the agent speaks."""

    def rewrite_for(self, target: str) -> Callable[[bytes, bool], bytes] | None:
        """Return what makes the heads of requests; see `tower.web.gateway.channel_pool.Tunnel.rewrite_for`."""

    @property
    def round_trip(self) -> float:
        """To the agent, s; 0 while unknown."""

    @property
    def streams(self) -> int:
        """How many streams are open."""

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream to *target*, a `tower.net.pipes.Pipe`."""

    def drain(self) -> None:
        """Tell the agent that we will soon be gone."""

    def close(self, reason: str) -> None:
        """Close it, telling the agent why."""


class Tunnels:
    """:param clock: for whatever waits; its ``seconds()`` count steadily.
    :param epoch: returns the time of day, s since the epoch.
    """

    def __init__(self, clock: IReactorTime, epoch: Callable[[], float]) -> None:
        self._clock = clock
        self._epoch = epoch
        self._started = clock.seconds()
        self._live: dict[str, list[Tunnel]] = {}
        self._next: dict[str, int] = {}
        self._last_seen: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._waiting: dict[str, list[Deferred[Tunnel]]] = {}
        self._watchers: list[Callable[[str], None]] = []
        self._explanations: dict[str, Callable[[], str]] = {}
        self._troubles: dict[str, str] = {}

    def __iter__(self) -> Iterator[Tunnel]:
        """Go through all live tunnels."""
        for tunnels in list(self._live.values()):
            yield from list(tunnels)

    def watch(self, callback: Callable[[str], None]) -> None:
        """Have *callback* called with a cluster's name whenever its tunnels change."""
        self._watchers.append(callback)

    def add(self, tunnel: Tunnel) -> None:
        """Take *tunnel* into service."""
        name = tunnel.name
        self._live.setdefault(name, []).append(tunnel)
        tunnel.on_change = lambda: self._changed(name)
        for waiting in self._waiting.pop(name, []):
            waiting.callback(tunnel)
        self._changed(name)

    def remove(self, tunnel: Tunnel) -> None:
        """Note that *tunnel* is gone; unknown ones are ignored."""
        tunnels = self._live.get(tunnel.name, [])
        if tunnel not in tunnels:
            return
        tunnels.remove(tunnel)
        self._last_seen[tunnel.name] = self._epoch()
        self._gone_since[tunnel.name] = self._clock.seconds()
        if not tunnels:
            del self._live[tunnel.name]
            self._next.pop(tunnel.name, None)
        self._changed(tunnel.name)

    def _changed(self, name: str) -> None:
        for callback in self._watchers:
            callback(name)

    def pick(self, cluster: str) -> Tunnel | None:
        """Return a tunnel of *cluster*, each in its turn; one that drains only if there is no other."""
        tunnels = self._live.get(cluster)
        if not tunnels:
            return None
        if len(tunnels) == 1:
            return tunnels[0]
        usable = [tunnel for tunnel in tunnels if not tunnel.draining] or tunnels
        number = self._next.get(cluster, 0)
        self._next[cluster] = number + 1
        return usable[number % len(usable)]

    def wait(self, cluster: str, timeout: float) -> Deferred[Tunnel]:
        """Return a tunnel of *cluster* as soon as there is one, within *timeout* s.

        That is for an agent that reconnects; one that was away for long is not waited for.

        :raise ClusterUnreachable: through the Deferred: there was none in time.
        """
        tunnel = self.pick(cluster)
        if tunnel is not None:
            return succeed(tunnel)
        if self._clock.seconds() - self._gone_since.get(cluster, self._started) > RECONNECTING:
            return fail(ClusterUnreachable(self.why_not(cluster)))
        waiting: Deferred[Tunnel] = Deferred()
        self._waiting.setdefault(cluster, []).append(waiting)
        waiting.addTimeout(timeout, self._clock)
        waiting.addErrback(self._nobody_came, cluster, waiting)
        return waiting

    def _nobody_came(self, failure: Failure, cluster: str, waiting: Deferred[Tunnel]) -> Any:
        others = self._waiting.get(cluster, [])
        if waiting in others:
            others.remove(waiting)
            if not others:
                del self._waiting[cluster]
        failure.trap(TooLate)
        raise ClusterUnreachable(self.why_not(cluster))

    def explain(self, cluster: str, explanation: Callable[[], str] | None) -> None:
        """Have *explanation* say why *cluster* cannot be reached, as it is not agents that would come."""
        if explanation is None:
            self._explanations.pop(cluster, None)
        else:
            self._explanations[cluster] = explanation

    def note(self, cluster: str, trouble: str) -> None:
        """Note why nobody gets anywhere by the tunnels that *cluster* has; empty: they do."""
        if trouble == self.trouble(cluster):
            return
        self._troubles[cluster] = trouble
        if not trouble:
            del self._troubles[cluster]
        self._changed(cluster)

    def trouble(self, cluster: str) -> str:
        """Return what was last noted of *cluster*; empty while its tunnels, if there are any, are well."""
        return self._troubles.get(cluster, "")

    def why_not(self, cluster: str) -> str:
        """Say since when *cluster* has no agent, or what else keeps it from being reached."""
        explanation = self._explanations.get(cluster)
        if explanation is not None:
            return explanation()
        seen = self._last_seen.get(cluster)
        if seen is None:
            return f"no agent of cluster {cluster} has connected since this proxy started"
        return f"agent of cluster {cluster} was last seen {max(0, self._epoch() - seen):.0f} s ago"

    def live(self, cluster: str) -> list[Tunnel]:
        """Return the tunnels of *cluster*."""
        return list(self._live.get(cluster, []))

    def last_seen(self, cluster: str) -> float | None:
        """Return when *cluster* last had a tunnel, s since the epoch: now, if it has one; None if never."""
        return self._epoch() if cluster in self._live else self._last_seen.get(cluster)

    def cut(self, cluster: str, reason: str, fingerprint: str | None = None) -> int:
        """Close the tunnels of *cluster*, or only those of the agent with that key; return how many."""
        chosen = [
            tunnel
            for tunnel in self.live(cluster)
            if fingerprint is None or tunnel.fingerprint == fingerprint
        ]
        for tunnel in chosen:
            self.remove(tunnel)
            tunnel.close(reason)
        return len(chosen)

    def forget(self, cluster: str) -> None:
        """Drop what is remembered about a cluster that is no more."""
        self._last_seen.pop(cluster, None)
        self._gone_since.pop(cluster, None)


#: Takes a request's head in our form, and whether nobody is impersonated; returns it as it is sent.
Rewrite: TypeAlias = Callable[[bytes, bool], bytes]


class TunnelChannel(Pipe, Protocol):
    """What is needed of `tower.conch.connection.channel.Channel`."""

    @property
    def is_large(self) -> bool:
        """Whether either side lent it much of its memory."""

    @property
    def is_leaving(self) -> bool:
        """Whether what carries it will soon be gone, so that it is not to be used again."""
