"""One channel into a cluster, for requests one after the other."""

from __future__ import annotations

from typing import Final

from tower.net.pipes import NoReceiver
from tower.tunnels import Tunnel
from tower.tunnels.live import TunnelChannel


class _Discarded(NoReceiver):
    """The receiver of a channel that was discarded."""

    def received(self, data: memoryview) -> None:
        """Ignore the bytes."""


_DISCARDED: Final = _Discarded()


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
        shelf, self.shelf = self.shelf, None
        if shelf is not None and self in shelf:
            shelf.remove(self)

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
