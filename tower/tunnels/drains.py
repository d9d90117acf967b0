"""Waits for the streams of disabled clusters to end, before they are cut.

The cluster's annotation ``tower.kubesphere.io/drain`` sets how long.  A disabled cluster accepts no new
request and no new agent meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.tunnels.registry import Tunnels

#: Interval of checks whether a cluster's streams have ended, s.
CHECK_PERIOD = 0.2


@define(eq=False)
class ClusterDrains:
    """The clusters that are being drained.

    :param close_idle: closes the channels of a cluster that no request uses.
    """

    _log = Logger()

    _clock: IReactorTime
    _tunnels: Tunnels
    _close_idle: Callable[[str], None]
    _waiting: dict[str, IDelayedCall] = field(factory=dict, init=False)

    def begin(self, cluster: str, limit: float, done: Callable[[], None]) -> None:
        """Call *done* when no stream of *cluster* is open, after *limit* s at most; no-op while it waits."""
        if cluster in self._waiting:
            return
        self._close_idle(cluster)
        if streams := self._streams(cluster):
            self._log.info(
                "cluster {cluster} is disabled: waiting up to {limit:g} s for open streams: {streams}",
                cluster=cluster,
                limit=limit,
                streams=streams,
            )
        self._check(cluster, self._clock.seconds() + limit, done)

    def cancel(self, cluster: str) -> None:
        """Stop waiting for *cluster*."""
        timer = self._waiting.pop(cluster, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        """Stop waiting for all."""
        for cluster in list(self._waiting):
            self.cancel(cluster)

    def _check(self, cluster: str, until: float, done: Callable[[], None]) -> None:
        self._waiting.pop(cluster, None)
        self._close_idle(cluster)
        if self._streams(cluster) and self._clock.seconds() < until:
            self._waiting[cluster] = self._clock.callLater(CHECK_PERIOD, self._check, cluster, until, done)
        else:
            done()

    def _streams(self, cluster: str) -> int:
        return sum(tunnel.streams for tunnel in self._tunnels.live(cluster))
