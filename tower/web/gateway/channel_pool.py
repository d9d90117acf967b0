"""Idle channels into the clusters, kept for the next request.

A channel is pinned to one TLS connection from the agent to its API server.  Opening one costs a dial and a
handshake there, so channels are reused, the last used first.  An idle one is closed before the API server
would close it (`IDLE`), because a request that meets a closing connection fails.  One with a large window is
closed soon, because its memory is not available to others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import ClusterUnreachable, StreamRefused, TunnelLost
from tower.kube.member_status import TIMEOUT
from tower.kube.status import StatusError
from tower.net.pipes import NoReceiver
from tower.tunnels import SSH, Tunnel, Tunnels
from tower.tunnels.live import TunnelChannel
from tower.tunnels.patience import Patience
from tower.tunnels.silence import CURE, Silences
from tower.tunnels.targets import KUBERNETES

#: How long the requests of one client wait for a cluster whose agent is reconnecting, s.
WAIT = 5.0

#: How long a request that was sent to an API server known not to answer waits, s.
SENT_WAIT = 25.0

#: How long the error of an API server that did not answer is repeated to clients whose patience is spent, s:
#: until its agent has checked it.
LATE = 10.0

#: How long an idle channel is kept, s; API servers close idle connections after 90 s.
IDLE = 60.0

#: Maximum number of idle channels for each cluster and target.
KEPT = 64

#: Interval of `ChannelPool.sweep`, s.
SWEEP_PERIOD = 5.0

_CODES = {
    "not-allowed": (403, "Forbidden", "cluster {cluster}: {end} does not allow this: {text}"),
    "no-such-target": (404, "NotFound", "cluster {cluster}: {end} has no such target: {text}"),
    "busy": (503, "ServiceUnavailable", "cluster {cluster}: the tunnel is busy: {text}"),
    "timeout": (504, "Timeout", "cluster {cluster}: {target} did not answer {end}: {text}: {cure}"),
}
_OTHER = (503, "ServiceUnavailable", "cluster {cluster}: {end} cannot reach {target}: {text}: {cure}")


class _Discarded(NoReceiver):
    """The receiver of a channel that was discarded."""

    def received(self, data: memoryview) -> None:
        """Ignore the bytes."""


_DISCARDED = _Discarded()


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


class ClusterUpstream:
    """One channel of a pool; while idle it is the channel's receiver.

    :ivar channel: resumed; its user sets its receiver.
    :ivar rewrite: changes heads right before they are sent, or None.
    :ivar reused: whether an earlier request was answered on it.
    :ivar shelf: the list of idle channels that it is in, or None.
    """

    __slots__ = ("age", "channel", "reused", "rewrite", "shelf", "tunnel")

    def __init__(self, channel: TunnelChannel, tunnel: Tunnel, target: str) -> None:
        self.channel = channel
        self.tunnel = tunnel
        self.rewrite = tunnel.rewrite_for(target)
        self.reused = False
        self.age = 0.0
        self.shelf: list[ClusterUpstream] | None = None

    def discard(self) -> None:
        """Close it; it must not be on a shelf."""
        self.shelf = None
        self.channel.receiver = _DISCARDED  # not self: a closed channel keeps its receiver
        self.channel.abort()

    def _leave(self) -> None:
        if self.shelf is not None and self in self.shelf:
            self.shelf.remove(self)
        self.shelf = None

    def received(self, data: memoryview) -> None:
        """Abort: bytes without a request mean that the sender is out of step."""
        self._leave()
        self.channel.abort()

    def ended(self) -> None:
        """Close it: the API server or the agent has ended its side."""
        self._leave()
        self.channel.close()

    def drained(self) -> None:
        """Ignore it: nothing waits to be sent."""

    def closed(self, reason: Exception) -> None:
        """Remove it from its shelf."""
        self._leave()


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
        self._seconds = seconds
        self._late: WeakKeyDictionary[Tunnel, tuple[float, str]] = WeakKeyDictionary()
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
                refusal = _refusal(e.with_traceback(None), cluster, target, tunnel)
                if refusal.code == 504 and target == KUBERNETES:
                    self._late[tunnel] = self._seconds() + LATE, refusal.message
                    self._patience.spend(cluster, attempt.client)
                raise refusal from None  # as above
            else:
                self.opened += 1
                if target == KUBERNETES:
                    self._tunnels.note_outcome(tunnel, reached=True)
                    self._late.pop(tunnel, None)
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
        late = None if attempt.tunnel is None else self._late_error(cluster, attempt.tunnel)
        if late is None or self._patience.left(cluster, attempt.client, age):
            return None
        return late

    def unanswered_since(self, cluster: str, attempt: Attempt, age: float) -> StatusError | None:
        """Return the same for a request that was sent, which a slow API server may still answer."""
        late = None if attempt.tunnel is None else self._late_error(cluster, attempt.tunnel)
        if late is None or not (age >= SENT_WAIT or self._patience.is_spent(cluster, attempt.client)):
            return None
        self._patience.spend(cluster, attempt.client)
        return late

    def _late_error(self, cluster: str, tunnel: Tunnel) -> StatusError | None:
        """Return the error if the API server behind *tunnel* is known not to answer."""
        until, text = self._late.get(tunnel, (0.0, ""))
        if self._seconds() < until:
            return StatusError(504, text)
        status = tunnel.member_status
        if status is None or status.api_server.reason != TIMEOUT:
            return None
        return StatusError(503, f"cluster {cluster}: {status.api_server.text}")

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

    def stop(self) -> None:
        """Close all idle channels."""
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            while shelf:
                shelf.pop().discard()


def silent_text(cluster: str) -> str:
    """Return the error text for a cluster whose agents do not answer."""
    return f"cluster {cluster}: its agent is connected but does not answer: {CURE}"


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


def _refusal(error: StreamRefused, cluster: str, target: str, tunnel: Tunnel) -> StatusError:
    code, reason, text = _CODES.get(error.code, _OTHER)
    name = "the API server" if target == KUBERNETES else f"target {target}"
    end = "a node" if tunnel.protocol == SSH else "the agent"
    why = error.reported_by(f"{end} of {cluster}")
    if target == KUBERNETES:
        cure = f"check that the API server runs, and its address in the kubeconfig of {_owner(tunnel)}"
    else:
        cure = "check that the target runs, and its address"
    return StatusError(
        code, text.format(end=end, cluster=cluster, target=name, text=why, cure=cure), reason=reason
    )


def _owner(tunnel: Tunnel) -> str:
    return "the cluster" if tunnel.protocol == SSH else "the agent"
