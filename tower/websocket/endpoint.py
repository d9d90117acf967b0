"""The proxy's endpoint for agents: answers the WebSocket handshake, then passes it to a tunnel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.net.connection_slots import source_of
from tower.net.pipes import Pipe
from tower.websocket.server_handshake import NoUpgrade, answer_upgrade

#: Called with the connection, paused, and the bytes received after the handshake; the result fires when the
#: agent has authenticated or disconnected.
Opened = Callable[[Pipe, bytes], Deferred[Any]]

#: How long an agent may authenticate at least, although new agents wait for its slot, s.
PATIENCE = 3.0

#: Shortest interval of log lines about rejected agents, s.
REMINDER = 60.0

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 54\r\n\r\n"
    b"too many agents are connecting at once; try again soon"
)


class AgentEndpoint:
    """Accepts WebSockets of agents.

    At the limit, the oldest connection is closed for a new one, so that silent clients lock no agent out:
    after `PATIENCE`, since agents that connect all at once would only evict each other; at once if its
    address has more connections here than the new one's.

    :param opened: called with each connection after the handshake, by subprotocol.
    :param limit: connections between handshake and authentication.
    :ivar refused: number of connections rejected at the limit, or for an invalid handshake.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, opened: Mapping[bytes, Opened], *, limit: int = 256) -> None:
        self._clock = clock
        self._opened = opened
        self._limit = limit
        self._pending: dict[int, tuple[Pipe, float, str]] = {}
        self._count = 0
        self._logged: float | None = None
        self.refused = 0

    @property
    def pending(self) -> int:
        """Number of connections between handshake and authentication."""
        return len(self._pending)

    def accept(self, pipe: Pipe, received: bytes) -> None:
        """Take over *pipe*, paused; *received*: the request's head and the bytes after it."""
        end = received.find(b"\r\n\r\n") + 4
        try:
            answer, protocol = answer_upgrade(received[:end], self._opened)
        except NoUpgrade as error:
            self._warn("agent connection rejected: {reason}", reason=str(error))
            self._refuse(pipe, error.answer())
            return
        source = _source(pipe)
        if len(self._pending) >= self._limit and not self._make_room(source):
            self._warn("agent connections rejected: {pending} are already connecting", pending=self.pending)
            self._refuse(pipe, _BUSY)
            return
        self._count = number = self._count + 1
        self._pending[number] = pipe, self._clock.seconds(), source
        pipe.send(answer)
        self._opened[protocol](pipe, received[end:]).addBoth(self._settled, number)

    def _make_room(self, source: str) -> bool:
        """Abort a connection for a new one from *source*, if one may be; return whether it was."""
        number, (pipe, since, _) = next(iter(self._pending.items()))
        if self._clock.seconds() - since < PATIENCE:
            counts = Counter(each for _, _, each in self._pending.values())
            largest, most = counts.most_common(1)[0]
            if most <= counts[source] + 1:
                return False
            number, pipe = next(
                (number, pipe) for number, (pipe, _, each) in self._pending.items() if each == largest
            )
        del self._pending[number]
        pipe.abort()
        return True

    def _warn(self, text: str, **values: object) -> None:
        now = self._clock.seconds()
        if self._logged is None or now - self._logged >= REMINDER:
            self._logged = now
            self._log.warn(text, **values)

    def _refuse(self, pipe: Pipe, answer: bytes) -> None:
        self.refused += 1
        pipe.send(answer)
        pipe.close()

    def _settled(self, result: Any, number: int) -> None:
        self._pending.pop(number, None)
        if isinstance(result, Failure):
            self._log.failure("error in accepting an agent", result)


def _source(pipe: Pipe) -> str:
    return source_of(pipe.getPeer().host) if hasattr(pipe, "getPeer") else ""
