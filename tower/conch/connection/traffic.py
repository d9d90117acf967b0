"""Bytes and stalls of all streams that belong together: those of a cluster, or of an agent."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tower.conch.connection.channel import Channel
    from tower.conch.connection.mux import Mux


class TrafficTotals(NamedTuple):
    """Totals of all streams so far.

    :ivar received, sent: B.
    :ivar stalled: time that data waited because the stream's receiver did not read, s.
    :ivar streams: number of open streams.
    """

    received: int
    sent: int
    stalled: float
    streams: int


class Traffic:
    """Adds up the streams of any number of tunnels.

    A channel counts its own bytes; here they are added when it ends, and read at each `totals` before that.
    """

    __slots__ = ("_muxes", "_received", "_sent", "_stalled")

    def __init__(self) -> None:
        self._muxes: set[Mux] = set()
        self._received = self._sent = 0
        self._stalled = 0.0

    def attach(self, mux: Mux) -> None:
        """Include the channels of *mux*."""
        self._muxes.add(mux)

    def detach(self, mux: Mux) -> None:
        """Forget *mux*, whose channels were all `ended`."""
        self._muxes.discard(mux)

    def ended(self, channel: Channel) -> None:
        """Add the numbers of *channel*, which its mux forgets."""
        self._received += channel.bytes_in
        self._sent += channel.bytes_out
        self._stalled += channel.stalled_so_far

    def totals(self) -> TrafficTotals:
        """Return the numbers of all streams, open ones included."""
        received, sent, stalled, streams = self._received, self._sent, self._stalled, 0
        for mux in self._muxes:
            for channel in mux.channels.values():
                received += channel.bytes_in
                sent += channel.bytes_out
                stalled += channel.stalled_so_far
            streams += len(mux.channels)
        return TrafficTotals(received, sent, stalled, streams)

    def labels(self) -> Counter[str]:
        """Return the number of open streams by `Channel.label`."""
        return Counter(channel.label for mux in self._muxes for channel in mux.channels.values())
