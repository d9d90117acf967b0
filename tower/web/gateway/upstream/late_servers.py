"""API servers that are known not to answer."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from tower.kube.member_status import TIMEOUT
from tower.kube.status import StatusError
from tower.tunnels import Tunnel

#: How long the error of an API server that did not answer is repeated, s: until its agent has checked it.
LATE = 10.0


class LateServers:
    """The errors of the API servers behind tunnels; *seconds* returns monotonic time, s."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._late: WeakKeyDictionary[Tunnel, tuple[float, str]] = WeakKeyDictionary()

    def note(self, tunnel: Tunnel, text: str) -> None:
        """Repeat *text* for `LATE`: all requests of a command then have the same error."""
        self._late[tunnel] = self._seconds() + LATE, text

    def forget(self, tunnel: Tunnel) -> None:
        """Record that the API server has answered."""
        self._late.pop(tunnel, None)

    def error(self, cluster: str, tunnel: Tunnel) -> StatusError | None:
        """Return the error if the API server is known not to answer."""
        until, text = self._late.get(tunnel, (0.0, ""))
        if self._seconds() < until:
            return StatusError(504, text)
        status = tunnel.member_status
        if status is None or status.api_server.reason != TIMEOUT:
            return None
        return StatusError(503, f"cluster {cluster}: {status.api_server.text}")
