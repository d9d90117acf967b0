"""Counters of each cluster's tunnels and streams, and of rejected agents; read at each scrape."""

from __future__ import annotations

from attrs import define, field

from tower.conch.connection.traffic import Traffic
from tower.conch.tunnel.endings import ENDINGS

#: Reasons for which an agent is rejected: `tower.clusters.agent_rejection.AGENT_REJECTIONS`, and those of its
#: connection.
REJECTIONS = (
    "disabled",
    "revoked",
    "unknown-cluster",
    "invalid-token",
    "unknown-key",
    "authentication",
    "too-many-tunnels",
    "timeout",
    "protocol-error",
    "connection-lost",
)

#: Reasons for which a stream is not opened: the codes of `StreamRefused`, and the last three, of the proxy.
OPEN_FAILURES = (
    "not-allowed",
    "no-such-target",
    "busy",
    "refused",
    "unreachable",
    "timeout",
    "name",
    "tls",
    "failed",
    "no-tunnel",
    "tunnel-lost",
    "silent",
)


def _zeros(reasons: tuple[str, ...]) -> dict[str, float]:
    return dict.fromkeys(reasons, 0)


@define(eq=False)
class TunnelCounters:
    """The counters of one cluster.

    :ivar disconnects: number of lost tunnels, by `tower.conch.tunnel.endings.ending`.
    :ivar open_failures: number of streams that were not opened, by reason.
    """

    traffic: Traffic = field(factory=Traffic)
    disconnects: dict[str, float] = field(factory=lambda: _zeros(ENDINGS))
    open_failures: dict[str, float] = field(factory=lambda: _zeros(OPEN_FAILURES))

    def not_opened(self, reason: str) -> None:
        """Count a stream that was not opened; an unknown *reason* counts as ``failed``."""
        self.open_failures[reason if reason in self.open_failures else "failed"] += 1


@define(eq=False)
class ClusterCounters:
    """The counters of all clusters.

    :ivar rejections: number of rejected agents, by reason.
    """

    rejections: dict[str, float] = field(factory=lambda: _zeros(REJECTIONS))
    _clusters: dict[str, TunnelCounters] = field(factory=dict, init=False)

    def of(self, cluster: str) -> TunnelCounters:
        """Return the counters of *cluster*, which are made on first use."""
        counters = self._clusters.get(cluster)
        if counters is None:
            counters = self._clusters[cluster] = TunnelCounters()
        return counters

    def disconnected(self, cluster: str, reason: str) -> None:
        """Count a lost tunnel, unless *cluster* was removed."""
        counters = self._clusters.get(cluster)
        if counters is not None:
            counters.disconnects[reason] += 1

    def forget(self, cluster: str) -> None:
        """Forget a removed cluster."""
        self._clusters.pop(cluster, None)
