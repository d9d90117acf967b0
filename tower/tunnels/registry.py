"""The registry of live tunnels, shared by control plane and data plane.

The control plane adds, drains and cuts tunnels; the data plane picks one and opens streams in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.errors import ClusterUnreachable
from tower.kube.member_status import MemberStatus
from tower.tunnels.counters import ClusterCounters
from tower.tunnels.live import Tunnel
from tower.tunnels.replicas import best, preferred, problem

#: `Tunnel.protocol` of clusters of type ssh, which have no agent.
SSH = "ssh"

#: How long an agent counts as reconnecting after it was lost, or after the proxy's start, s.
RECONNECTING = 60.0


class Tunnels:
    """The live tunnels of all clusters.

    :param clock: monotonic.
    :param epoch: returns the time of day, s since the epoch.
    :ivar on_doubt: called with the name of a cluster for which `note_outcome` contradicts the last check.
    :ivar counters: of the clusters' tunnels and streams.
    """

    def __init__(self, clock: IReactorTime, epoch: Callable[[], float]) -> None:
        self._clock = clock
        self._epoch = epoch
        self._started = clock.seconds()
        self._live: dict[str, list[Tunnel]] = {}
        self._preferred: dict[str, list[Tunnel]] = {}
        self._next: dict[str, int] = {}
        self._last_seen: dict[str, float] = {}
        self._versions: dict[str, str] = {}
        self._reported: dict[str, MemberStatus] = {}
        self._gone_since: dict[str, float] = {}
        self._silent: dict[Tunnel, float] = {}
        self._waiting: dict[str, list[Deferred[Tunnel]]] = {}
        self._watchers: list[Callable[[str], None]] = []
        self._explanations: dict[str, Callable[[], str]] = {}
        self._troubles: dict[str, str] = {}
        self._revoked: dict[str, str] = {}
        self.on_doubt: Callable[[str], None] = lambda _: None
        self.counters = ClusterCounters()

    def __iter__(self) -> Iterator[Tunnel]:
        """Iterate over all live tunnels."""
        for tunnels in list(self._live.values()):
            yield from list(tunnels)

    def watch(self, callback: Callable[[str], None]) -> None:
        """Call *callback* with a cluster's name whenever its tunnels change."""
        self._watchers.append(callback)

    def add(self, tunnel: Tunnel) -> None:
        """Register *tunnel*."""
        name = tunnel.name
        tunnels = self._live.setdefault(name, [])
        tunnels.append(tunnel)
        self._revoked.pop(name, None)
        self._preferred[name] = preferred(tunnels)
        tunnel.on_change = lambda: self._changed(name)
        for waiting in self._waiting.pop(name, []):
            waiting.callback(tunnel)
        self._changed(name)

    def remove(self, tunnel: Tunnel) -> None:
        """Remove a lost *tunnel*; unknown tunnels are ignored."""
        tunnels = self._live.get(tunnel.name, [])
        if tunnel not in tunnels:
            return
        tunnels.remove(tunnel)
        silent = self._silent.pop(tunnel, None)
        seen = self._epoch() if silent is None else max(silent, self._last_seen.get(tunnel.name, silent))
        self._last_seen[tunnel.name] = seen
        self._gone_since[tunnel.name] = self._clock.seconds()
        if not tunnels:
            del self._live[tunnel.name]
            self._preferred.pop(tunnel.name, None)
            self._next.pop(tunnel.name, None)
        self._changed(tunnel.name)

    def _changed(self, name: str) -> None:
        tunnels = self._live.get(name)
        if tunnels:
            tunnels = self._answering(tunnels)
            self._preferred[name] = preferred(tunnels)
            status = best(tunnels)
            if status is not None and status.version:
                self._versions[name] = status.version
        for callback in self._watchers:
            callback(name)

    def pick(self, cluster: str) -> Tunnel | None:
        """Return the next tunnel of *cluster*, round robin over those that `replicas.preferred` returns."""
        tunnels = self._preferred.get(cluster)
        if not tunnels:
            return None
        if len(tunnels) == 1:
            return tunnels[0]
        number = self._next.get(cluster, 0)
        self._next[cluster] = number + 1
        return tunnels[number % len(tunnels)]

    def wait(self, cluster: str, timeout: float) -> Deferred[Tunnel]:
        """Return a tunnel of *cluster* as soon as one is added, within *timeout* s.

        Fails at once if the agent has been away for more than `RECONNECTING`.

        :raise ClusterUnreachable: no tunnel was added in time; through the Deferred.
        """
        tunnel = self.pick(cluster)
        if tunnel is not None:
            return succeed(tunnel)
        if self._clock.seconds() - self._gone_since.get(cluster, self._started) > RECONNECTING:
            return fail(ClusterUnreachable(self.why_not(cluster)))
        waiting: Deferred[Tunnel] = Deferred()
        self._waiting.setdefault(cluster, []).append(waiting)
        waiting.addTimeout(timeout, self._clock)
        waiting.addErrback(self._not_connected, cluster, waiting)
        return waiting

    def _not_connected(self, failure: Failure, cluster: str, waiting: Deferred[Tunnel]) -> Any:
        others = self._waiting.get(cluster, [])
        if waiting in others:
            others.remove(waiting)
            if not others:
                del self._waiting[cluster]
        failure.trap(defer.TimeoutError)
        raise ClusterUnreachable(self.why_not(cluster))

    def explain(self, cluster: str, explanation: Callable[[], str] | None) -> None:
        """Set the function that returns why *cluster* cannot be reached, for clusters without agents."""
        if explanation is None:
            self._explanations.pop(cluster, None)
        else:
            self._explanations[cluster] = explanation

    def note(self, cluster: str, trouble: str) -> None:
        """Set why requests fail although *cluster* has tunnels; empty: they succeed."""
        if trouble == self.trouble(cluster):
            return
        self._troubles[cluster] = trouble
        if not trouble:
            del self._troubles[cluster]
        self._changed(cluster)

    def trouble(self, cluster: str) -> str:
        """Return the last `note` of *cluster*; empty if its tunnels work."""
        return self._troubles.get(cluster, "")

    def note_revoked(self, cluster: str, fingerprint: str) -> None:
        """Set the revoked key of an agent that tried to serve *cluster*, until a tunnel is added."""
        if fingerprint and self._revoked.get(cluster) != fingerprint and cluster not in self._live:
            self._revoked[cluster] = fingerprint
            self._changed(cluster)

    def revoked_key(self, cluster: str) -> str:
        """Return the last `note_revoked` of *cluster*; empty: none."""
        return self._revoked.get(cluster, "")

    def note_outcome(self, tunnel: Tunnel, *, reached: bool) -> None:
        """Compare whether a stream reached the API server behind *tunnel* with the last check."""
        if reached != (problem(tunnel.member_status) is None):
            tunnel.request_check()
            self.on_doubt(tunnel.name)

    def note_silence(self, tunnel: Tunnel, quiet: float | None) -> None:
        """Set that *tunnel* does not answer, and that its last byte came *quiet* s ago; None: it answers."""
        if (quiet is None) == (tunnel not in self._silent):
            return
        if quiet is not None:
            self._silent[tunnel] = self._epoch() - quiet
        else:
            del self._silent[tunnel]
            tunnel.request_check()
            self.on_doubt(tunnel.name)
        self._changed(tunnel.name)

    def is_silent(self, tunnel: Tunnel) -> bool:
        """Return whether *tunnel* does not answer."""
        return tunnel in self._silent

    def quiet_since(self, tunnel: Tunnel) -> float | None:
        """Return when *tunnel* sent its last byte, s since the epoch; None: it answers."""
        return self._silent.get(tunnel)

    def silent_since(self, cluster: str) -> float | None:
        """Return when the tunnels of *cluster* sent their last byte, s since the epoch.

        None: one of them answers, or there is none.
        """
        if not self._silent:
            return None
        times = [self._silent.get(tunnel) for tunnel in self._live.get(cluster, ())]
        silent = [time for time in times if time is not None]
        return max(silent, default=None) if len(silent) == len(times) else None

    def _answering(self, tunnels: list[Tunnel]) -> list[Tunnel]:
        """Return those that answer; all if none does."""
        if not self._silent:
            return tunnels
        return [tunnel for tunnel in tunnels if tunnel not in self._silent] or tunnels

    def report(self, cluster: str, status: MemberStatus | None) -> None:
        """Set the state of a member that is known without a tunnel, such as an unusable credential."""
        if status == self._reported.get(cluster):
            return
        if status is None:
            del self._reported[cluster]
        else:
            self._reported[cluster] = status
        self._changed(cluster)

    def member_status(self, cluster: str) -> MemberStatus | None:
        """Return the state of *cluster* that its best tunnel has, or the last `report`; None: unknown."""
        tunnels = self._live.get(cluster)
        return self._reported.get(cluster) if tunnels is None else best(self._answering(tunnels))

    def kubernetes_version(self, cluster: str) -> str:
        """Return the last known version of the member's API server; empty if unknown."""
        return self._versions.get(cluster, "")

    def remember(self, cluster: str, seen: float | None, version: str) -> None:
        """Set when *cluster* was last seen, and its version, unless something newer is known.

        :param seen: s since the epoch; None: unknown.
        """
        known = self._last_seen.get(cluster)
        is_newer = seen is not None and (known is None or known < seen) and cluster not in self._live
        if seen is not None and is_newer:
            self._last_seen[cluster] = seen
        if version and (is_newer or cluster not in self._versions):
            self._versions[cluster] = version

    def explanation(self, cluster: str) -> str:
        """Return why a cluster without agents cannot be reached; empty if it has agents, or is not in use."""
        explanation = self._explanations.get(cluster)
        return "" if explanation is None else explanation()

    def why_not(self, cluster: str) -> str:
        """Return why *cluster* cannot be reached."""
        explanation = self.explanation(cluster)
        if explanation:
            return explanation
        seen = self._last_seen.get(cluster)
        if seen is None:
            return (
                f"no agent of cluster {cluster} has connected since this proxy started: check the agent's log"
            )
        # a time, not an age: the text stays the same, so that clients and conditions show it once
        moment = datetime.fromtimestamp(seen, UTC)
        return (
            f"no agent of cluster {cluster} is connected; one was last seen at {moment:%Y-%m-%dT%H:%M:%SZ}: "
            "check whether an agent runs, and read its log"
        )

    def live(self, cluster: str) -> list[Tunnel]:
        """Return the tunnels of *cluster*."""
        return list(self._live.get(cluster, []))

    def last_seen(self, cluster: str) -> float | None:
        """Return when *cluster* last had a tunnel that answers, s since the epoch: now, or earlier.

        None: it never had one.
        """
        if cluster not in self._live:
            return self._last_seen.get(cluster)
        silent = self.silent_since(cluster)
        return self._epoch() if silent is None else silent

    def cut(self, cluster: str, reason: str, fingerprint: str | None = None) -> int:
        """Close the tunnels of *cluster*, or only those of one agent key; return their number."""
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
        """Forget a removed cluster."""
        self._last_seen.pop(cluster, None)
        self._versions.pop(cluster, None)
        self._gone_since.pop(cluster, None)
        self._revoked.pop(cluster, None)
        self.counters.forget(cluster)
