"""Idle channels into the clusters, kept for the next request.

A channel is pinned to one TLS connection from the agent to its API server.  Opening one costs a dial and a
handshake there, so channels are reused, the last used first.  An idle one is closed before the API server
would close it (`IDLE`), because a request that meets a closing connection fails.  One with a large window is
closed soon, because its memory is not available to others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import ClusterUnreachable, StreamRefused, TunnelLost
from tower.kube.status import StatusError
from tower.tunnels import Tunnel, Tunnels
from tower.tunnels.live import TunnelChannel
from tower.tunnels.patience import Patience
from tower.tunnels.silence import Silences
from tower.tunnels.targets import KUBERNETES
from tower.web.gateway.upstream.cluster_upstream import ClusterUpstream
from tower.web.gateway.upstream.late_servers import LateServers
from tower.web.gateway.upstream.open_failures import open_failure, silent_text

#: How long the requests of one client wait for a cluster whose agent is reconnecting, s.
WAIT: Final = 5.0

#: How long a request that was sent to an API server known not to answer waits, s.
SENT_WAIT: Final = 25.0

#: How long an idle channel is kept, s; API servers close idle connections after 90 s.
IDLE: Final = 60.0

#: Maximum number of idle channels for each cluster and target.
KEPT: Final = 64

#: Interval of `ChannelPool.sweep`, s.
SWEEP_PERIOD: Final = 5.0


@dataclass(slots=True)
class Attempt:
    """The opening of a channel for one request.

    :ivar client: name of the client; its patience is limited.
    :ivar age: how long the request has waited before, s.
    :ivar tunnel: the tunnel in which the channel is being opened; set by the pool.
    """

    client: str
    age: float = 0.0
    tunnel: Tunnel | None = None


class ChannelPool:
    """The idle channels of all clusters.

    A ``TimerService(SWEEP_PERIOD, pool.sweep)`` closes old ones; `stop` closes all.

    :param seconds: returns monotonic time, s.
    :param silences: of the tunnels; shared with `tower.tunnels.silence_watch`.
    :param wait: see `WAIT`.
    :ivar opened: number of channels opened.
    :ivar taken: number of requests that reused one.
    """

    def __init__(
        self,
        tunnels: Tunnels,
        seconds: Callable[[], float],
        silences: Silences,
        *,
        wait: float = WAIT,
        idle: float = IDLE,
        kept: int = KEPT,
    ) -> None:
        self._tunnels = tunnels
        self._patience = Patience(wait, seconds)
        self._silences = silences
        self._late = LateServers(seconds)
        self._idle = idle
        self._kept = kept
        self._shelves: dict[tuple[str, str], list[ClusterUpstream]] = {}
        self.opened = self.taken = 0

    def take(self, cluster: str, target: str) -> ClusterUpstream | None:
        """Return an idle channel, or None: then `open` one."""
        shelf = self._shelves.get((cluster, target))
        while shelf:
            upstream = shelf.pop()
            if upstream.channel.is_leaving or (self._silences.any and self._silences.knows(upstream.tunnel)):
                upstream.discard()
                continue
            self.taken += 1
            return upstream
        return None

    def give(self, cluster: str, target: str, upstream: ClusterUpstream) -> None:
        """Keep *upstream* for the next request; it must be resumed and in step."""
        shelf = self._shelves.get((cluster, target))
        if shelf is None:
            shelf = self._shelves[cluster, target] = []
        if upstream.channel.is_leaving or len(shelf) >= self._kept:
            upstream.discard()
        else:
            upstream.reused = True
            upstream.age = 0.0
            upstream.shelf = shelf
            upstream.channel.receiver = upstream
            shelf.append(upstream)

    def open(self, cluster: str, target: str, attempt: Attempt) -> Deferred[ClusterUpstream]:
        """Open a channel, after a short wait if the cluster's agent is reconnecting.

        If the result is cancelled, the channel is closed when it opens.

        :raise ClusterUnreachable: through the Deferred.
        :raise StatusError: through the Deferred: the far end did not open the channel.
        """
        return Deferred.fromCoroutine(self._open(cluster, target, attempt)).addErrback(_without_frames)

    async def _open(self, cluster: str, target: str, attempt: Attempt) -> ClusterUpstream:
        counters = self._tunnels.counters.of(cluster)
        for number in (1, 2):
            tunnel = await self._find(cluster, attempt)
            attempt.tunnel = tunnel
            if target == KUBERNETES and (error := self.unanswered(cluster, attempt, attempt.age)) is not None:
                counters.not_opened("timeout")
                raise error
            try:
                channel = await _unless_cancelled(tunnel.open(target))
            except TunnelLost as lost:
                lost.with_traceback(None)  # its frames refer to the Deferred that refers to it
                if number == 2:
                    counters.not_opened("tunnel-lost")
                    text = f"the tunnel to cluster {cluster} was lost twice while a stream was being opened"
                    raise StatusError(503, f"{text}: retry") from None
            except StreamRefused as e:
                if target == KUBERNETES:
                    self._tunnels.note_outcome(tunnel, reached=False)
                counters.not_opened(e.code)
                refusal = open_failure(e.with_traceback(None), cluster, target, tunnel)
                if refusal.code == 504 and target == KUBERNETES:
                    self._late.note(tunnel, refusal.message)
                    self._patience.spend(cluster, attempt.client)
                raise refusal from None  # as above
            else:
                self.opened += 1
                if target == KUBERNETES:
                    self._tunnels.note_outcome(tunnel, reached=True)
                    self._late.forget(tunnel)
                self._patience.renew(cluster)
                return ClusterUpstream(channel, tunnel, target)
        raise AssertionError("unreachable")

    async def _find(self, cluster: str, attempt: Attempt) -> Tunnel:
        """Return a tunnel of *cluster*, as soon as there is one.

        :raise ClusterUnreachable: none was added in time.
        :raise StatusError: all tunnels are silent.
        """
        counters = self._tunnels.counters.of(cluster)
        try:
            return self._pick(cluster) or await self._tunnels.wait(
                cluster, self._patience.left(cluster, attempt.client, attempt.age)
            )
        except ClusterUnreachable:
            counters.not_opened("no-tunnel")
            raise
        except StatusError:
            counters.not_opened("silent")
            raise

    def _pick(self, cluster: str) -> Tunnel | None:
        """Return a tunnel of *cluster* that is not silent; None if there is no tunnel.

        :raise StatusError: all tunnels are silent.
        """
        tunnel = self._tunnels.pick(cluster)
        if tunnel is None or not (self._silences.any and self._silences.knows(tunnel)):
            return tunnel
        for other in self._tunnels.live(cluster):
            if not self._silences.knows(other):
                return other
        raise StatusError(503, silent_text(cluster))

    def doubt(self, upstream: ClusterUpstream) -> None:
        """Check the member of *upstream* soon, unless its agent does so: it rejects Tower's credential."""
        self._tunnels.note_outcome(upstream.tunnel, reached=False)

    def unanswered(self, cluster: str, attempt: Attempt, age: float) -> StatusError | None:
        """Return the error if the API server is known not to answer, and the client has waited long enough.

        Without this limit each request would wait until the agent gives the API server up.

        :param age: how long the request has waited, s.
        """
        late = None if attempt.tunnel is None else self._late.error(cluster, attempt.tunnel)
        if late is None or self._patience.left(cluster, attempt.client, age):
            return None
        return late

    def unanswered_since(self, cluster: str, attempt: Attempt, age: float) -> StatusError | None:
        """Return the same for a request that was sent, which a slow API server may still answer."""
        late = None if attempt.tunnel is None else self._late.error(cluster, attempt.tunnel)
        if late is None or not (age >= SENT_WAIT or self._patience.is_spent(cluster, attempt.client)):
            return None
        self._patience.spend(cluster, attempt.client)
        return late

    def is_silent(self, tunnel: Tunnel) -> bool:
        """Return whether *tunnel*, which a request waits for, does not answer; to be called each second."""
        return self._silences.look(tunnel)

    def sweep(self) -> None:
        """Close channels that were idle too long; to be called every `SWEEP_PERIOD` s."""
        self._patience.sweep()
        self._silences.sweep()
        for key, shelf in list(self._shelves.items()):
            for upstream in list(shelf):
                upstream.age += SWEEP_PERIOD
                idle = SWEEP_PERIOD if upstream.channel.is_large else self._idle
                if upstream.age > idle or upstream.channel.is_leaving:
                    shelf.remove(upstream)
                    upstream.discard()
            if not shelf:
                del self._shelves[key]

    def close_idle(self, cluster: str) -> None:
        """Close the idle channels of *cluster*."""
        for key in [key for key in self._shelves if key[0] == cluster]:
            shelf = self._shelves.pop(key)
            while shelf:
                shelf.pop().discard()

    def stop(self) -> None:
        """Close all idle channels."""
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            while shelf:
                shelf.pop().discard()


def _without_frames(failure: Failure) -> Failure:
    """Remove the traceback: the frames of a failed coroutine refer to its failure, a reference cycle."""
    failure.cleanFailure()
    return failure


def _unless_cancelled(opening: Deferred[TunnelChannel]) -> Deferred[TunnelChannel]:
    """Return *opening* as a Deferred that can be cancelled: a channel that opens later is closed."""
    result: Deferred[TunnelChannel] = Deferred()

    def opened(channel: TunnelChannel) -> None:
        if result.called:
            channel.abort()
        else:
            result.callback(channel)

    def failed(failure: Failure) -> None:
        if not result.called:
            result.errback(failure)

    opening.addCallbacks(opened, failed)
    return result
