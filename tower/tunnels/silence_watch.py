"""Detects agents that are connected but do not answer, also while no request waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tower.tunnels.live import Tunnel
    from tower.tunnels.registry import Tunnels
    from tower.tunnels.silence import Silences

#: Interval of `SilenceWatch.check`, s.
PERIOD = 1.0

#: How long a tunnel must be quiet until it may count as silent, s: longer than the default interval of
#: keepalives, so that a working tunnel causes no further probes, and a short pause of an agent has no effect.
QUIET = 10.5


class SilenceWatch:
    """Reports to the registry which tunnels do not answer.

    :param seconds: returns monotonic time, s.
    """

    def __init__(self, tunnels: Tunnels, silences: Silences, seconds: Callable[[], float]) -> None:
        self._tunnels = tunnels
        self._silences = silences
        self._seconds = seconds
        self._heard: dict[Tunnel, tuple[int, float]] = {}

    def check(self) -> None:
        """Compare the bytes received with those of the last call; to be called every `PERIOD` s."""
        now = self._seconds()
        before, self._heard = self._heard, {}
        for tunnel in self._tunnels:
            received = tunnel.bytes_in
            if received is None:
                continue
            heard = before.get(tunnel)
            if heard is None or heard[0] != received:
                heard = received, now
                self._tunnels.note_silence(tunnel, None)
            elif now - heard[1] >= QUIET and self._silences.look(tunnel):
                self._tunnels.note_silence(tunnel, now - heard[1])
            self._heard[tunnel] = heard
