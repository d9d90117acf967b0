"""Pinned channels into the clusters, kept for the next request.

A channel is pinned to one TLS connection that the agent holds to its API server.  Opening one costs a dial
and a handshake there, so channels are used again, the last used first; an unused one is closed before the
API server would close it (`IDLE`), since a request that meets a closing connection is a failed request.  One
whose window has become large keeps memory from others, so it is closed soon.
"""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import StreamRefused, TunnelLost
from tower.kube.status import StatusError
from tower.tunnels import SSH
from tower.tunnels.registry import Rewrite, TunnelChannel
from tower.tunnels.targets import KUBERNETES

#: How long a request waits for a cluster whose agent is reconnecting, s.
WAIT = 5.0

#: How long an unused channel is kept, s; API servers close idle connections after 90 s.
IDLE = 60.0

#: How many unused channels are kept for each cluster and target.
KEPT = 64

#: How often `ChannelPool.sweep` is to be called, s.
SWEEP_PERIOD = 5.0

_CODES = {
    "not-allowed": (403, "Forbidden", "{who} of cluster {cluster} does not allow this: {text}"),
    "no-such-target": (404, "NotFound", "{who} of cluster {cluster} refused: {text}"),
    "busy": (503, "ServiceUnavailable", "the tunnel to cluster {cluster} is busy: {text}"),
    "timeout": (504, "Timeout", "{target} of cluster {cluster} did not answer its {end}: {text}"),
}
_OTHER = (503, "ServiceUnavailable", "{who} of cluster {cluster} cannot reach {target}: {text}")


class Tunnel(Protocol):
    """What is needed of `tower.tunnels.Tunnel`."""

    @property
    def protocol(self) -> str:
        """What the agent speaks."""

    def rewrite_for(self, target: str) -> Rewrite | None:
        """Return what makes heads for the far end of a stream; None where the agent does, or nobody.

        What it returns raises `StatusError` when the member's credential is not lent for such a request.
        """

    @property
    def server(self) -> bytes:
        """What the agent calls its API server: authority and path; empty when it did not say."""

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream; it comes paused."""


class Tunnels(Protocol):
    """What is needed of `tower.tunnels.Tunnels`."""

    def pick(self, cluster: str) -> Tunnel | None:
        """Return a live tunnel, if there is one."""

    def wait(self, cluster: str, timeout: float) -> Deferred[Any]:
        """Wait for one, *timeout* s at most; errback `ClusterUnreachable`."""


class _NoOwner:
    """The receiver of a channel that was discarded."""

    def received(self, data: memoryview) -> None:
        """Nobody wants it."""

    def ended(self) -> None:
        """Nobody waits for it."""

    def drained(self) -> None:
        """Nothing waits to be sent."""

    def closed(self, reason: Exception) -> None:
        """That was the aim."""


_NOBODY = _NoOwner()


class ClusterUpstream:
    """One channel of a pool; while unused it is the channel's receiver and notices its end.

    :ivar channel: resumed, whoever uses it sets its receiver.
    :ivar rewrite: what heads go through right before they are sent, if anything.
    :ivar reused: whether an earlier request was answered on it.
    :ivar shelf: where it waits for the next request, while it does.
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
        """Close it for good; it is not on its shelf any more."""
        self.shelf = None
        self.channel.receiver = _NOBODY  # not ourselves: one that is gone already keeps what it is given
        self.channel.abort()

    def _leave(self) -> None:
        if self.shelf is not None and self in self.shelf:
            self.shelf.remove(self)
        self.shelf = None

    def received(self, data: memoryview) -> None:
        """Take bytes that no request asked for: whoever sends them is not to be trusted with another."""
        self._leave()
        self.channel.abort()

    def ended(self) -> None:
        """Note that the API server or the agent wants it closed."""
        self._leave()
        self.channel.close()

    def drained(self) -> None:
        """Nothing waits to be sent."""

    def closed(self, reason: Exception) -> None:
        """Note that it is gone."""
        self._leave()


class ChannelPool:
    """The unused channels of every cluster.

    A ``TimerService(SWEEP_PERIOD, pool.sweep)`` closes old ones, and `stop` all.

    :ivar opened: how many channels were opened.
    :ivar taken: how many requests found one.
    """

    def __init__(self, tunnels: Tunnels, *, wait: float = WAIT, idle: float = IDLE, kept: int = KEPT) -> None:
        self._tunnels = tunnels
        self._wait = wait
        self._idle = idle
        self._kept = kept
        self._shelves: dict[tuple[str, str], list[ClusterUpstream]] = {}
        self.opened = self.taken = 0

    def take(self, cluster: str, target: str) -> ClusterUpstream | None:
        """Return an unused channel, or None: then `open` one."""
        shelf = self._shelves.get((cluster, target))
        while shelf:
            upstream = shelf.pop()
            if upstream.channel.is_leaving:
                upstream.discard()
                continue
            self.taken += 1
            return upstream
        return None

    def give(self, cluster: str, target: str, upstream: ClusterUpstream) -> None:
        """Keep *upstream* for the next request; it has to be resumed and in step."""
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

    def open(self, cluster: str, target: str) -> Deferred[ClusterUpstream]:
        """Open a channel, waiting a little for a cluster whose agent is reconnecting.

        Cancelling the result lets go of the channel when it comes.

        :raise ClusterUnreachable: through the Deferred.
        :raise Refusal: through the Deferred: why the far end did not open it.
        """
        return Deferred.fromCoroutine(self._open(cluster, target)).addErrback(_without_frames)

    async def _open(self, cluster: str, target: str) -> ClusterUpstream:
        for attempt in (1, 2):
            tunnel = self._tunnels.pick(cluster) or await self._tunnels.wait(cluster, self._wait)
            try:
                channel = await _unless_cancelled(tunnel.open(target))
            except TunnelLost as lost:
                lost.with_traceback(None)  # its frames hold the Deferred that holds it
                if attempt == 2:
                    raise StatusError(
                        503, f"the tunnel to cluster {cluster} broke twice while opening a stream"
                    ) from None
            except StreamRefused as e:
                raise _refusal(e.with_traceback(None), cluster, target, tunnel) from None  # likewise
            else:
                self.opened += 1
                return ClusterUpstream(channel, tunnel, target)
        raise AssertionError("unreachable")

    def sweep(self) -> None:
        """Close what has been unused for too long; to be called every `SWEEP_PERIOD` s."""
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
        """Close all unused channels."""
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            while shelf:
                shelf.pop().discard()


def _without_frames(failure: Failure) -> Failure:
    """Pass on what happened, not where: frames of a coroutine that failed hold its failure and all else."""
    failure.cleanFailure()
    return failure


def _unless_cancelled(opening: Deferred[TunnelChannel]) -> Deferred[TunnelChannel]:
    """Return the channel of *opening*, which cannot itself be cancelled; if it comes too late, close it."""
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
    what = "its API server" if target == KUBERNETES else f"target {target}"
    who, end = ("a node", "nodes") if tunnel.protocol == SSH else ("the agent", "agent")
    told = error.reported_by(f"{who} of {cluster}")
    return StatusError(
        code, text.format(who=who, end=end, cluster=cluster, target=what, text=told), reason=reason
    )
