"""Detects agents that are connected but do not answer, such as a stopped process, sooner than keepalives.

Keepalives give a peer up after three intervals, which closes its streams, so they are patient.  A request
that waits for an answer calls `Silences.look`.  The first call sends the agent a probe.  An agent that has
sent nothing since then counts as silent until it sends something.  A slow agent that is alive answers probes.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from attrs import define

from tower.tunnels.live import Tunnel

#: Cure of a silent agent.
CURE = "check the agent's process and the network between it and this proxy"

#: How long an agent may leave a probe unanswered, s.
SILENCE = 4.0

#: Number of calls of `Silences.look` after the first, and their least distance, s: if this process itself
#: stood still, the answers may wait to be read.
LOOKS = 4
DISTANCE = 0.5


@define
class _Look:
    """The calls for one tunnel.

    :ivar received: `Tunnel.bytes_in` at the first call.
    """

    received: int
    began: float
    last: float
    number: int = 0


class Silences:
    """The silent tunnels; *seconds* returns monotonic time, s.

    :ivar any: whether a tunnel may be silent.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._looks: WeakKeyDictionary[Tunnel, _Look] = WeakKeyDictionary()
        self._silent: WeakKeyDictionary[Tunnel, int] = WeakKeyDictionary()
        self.any = False

    def look(self, tunnel: Tunnel) -> bool:
        """Return whether *tunnel* is silent; to be called about once a second by each waiting request."""
        received = tunnel.bytes_in
        if received is None:
            return False
        now = self._seconds()
        look = self._looks.get(tunnel)
        if look is None or look.received != received:
            self._looks[tunnel] = _Look(received, now, now)
            self._silent.pop(tunnel, None)
            tunnel.nudge()
            return False
        if now - look.last >= DISTANCE:
            look.last = now
            look.number += 1
        if look.number < LOOKS or now - look.began < SILENCE:
            return False
        self._silent[tunnel] = received
        self.any = True
        return True

    def knows(self, tunnel: Tunnel) -> bool:
        """Return whether *tunnel* was silent at the last call of `look`, and still is."""
        if tunnel not in self._silent:
            return False
        if tunnel.bytes_in == self._silent[tunnel]:
            return True
        del self._silent[tunnel]
        return False

    def sweep(self) -> None:
        """Forget tunnels that are silent no more; to be called periodically."""
        for tunnel in list(self._silent):
            self.knows(tunnel)
        self.any = bool(self._silent)
