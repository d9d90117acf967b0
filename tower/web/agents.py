"""The proxy's end of an agent's WebSocket: the handshake is answered, then the tunnel takes the connection.

Whatever came behind the handshake goes to the tunnel's own codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.pipes import Pipe
from tower.web.upgrade import NoUpgrade, answer_upgrade

#: The subprotocol of Tower's own agents.
TOWER_V2 = "tower-v2"

#: Called with the connection, paused, and the bytes that came behind the handshake; the result fires once
#: the agent has authenticated itself or is gone, which is no failure.
Opened = Callable[[Pipe, bytes], Deferred[Any]]

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 54\r\n\r\n"
    b"too many agents are connecting at once; try again soon"
)


class AgentEndpoint:
    """Takes connections that asked to become an agent's WebSocket.

    :param opened: gets each connection once the handshake is over.
    :param limit: how many may be between the handshake and the end of authentication at one time.
    :ivar pending: how many are there now.
    :ivar refused: how many were turned away because of *limit*, or with a handshake that is none.
    """

    _log = Logger()

    def __init__(self, opened: Opened, *, limit: int = 256) -> None:
        self._opened = opened
        self._limit = limit
        self.pending = 0
        self.refused = 0

    def accept(self, pipe: Pipe, received: bytes) -> None:
        """Take *pipe*, paused, of which *received* was read: a request's head and what came behind it."""
        if self.pending >= self._limit:
            self._log.warn("turned an agent away: {pending} are connecting", pending=self.pending)
            self._refuse(pipe, _BUSY)
            return
        end = received.find(b"\r\n\r\n") + 4
        try:
            answer = answer_upgrade(received[:end], TOWER_V2.encode())
        except NoUpgrade as error:
            self._refuse(pipe, error.answer())
            return
        self.pending += 1
        pipe.send(answer)
        self._opened(pipe, received[end:]).addBoth(self._settled)

    def _refuse(self, pipe: Pipe, answer: bytes) -> None:
        self.refused += 1
        pipe.send(answer)
        pipe.close()

    def _settled(self, result: Any) -> None:
        self.pending -= 1
        if isinstance(result, Failure):
            self._log.failure("an agent could not be welcomed", result)
