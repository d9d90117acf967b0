"""The proxy's end of an agent's WebSocket: the handshake is answered, then the tunnel takes the connection.

Whatever came behind the handshake goes to the tunnel's own codec.
"""

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

#: Called with the connection, paused, and the bytes that came behind the handshake; the result fires once
#: the agent has authenticated itself or is gone, which is no failure.
Opened = Callable[[Pipe, bytes], Deferred[Any]]

#: How long an agent may take to authenticate itself while others come for whom there is no room, s.
PATIENCE = 3.0

#: How often to say that agents are turned away, s.
REMINDER = 60.0

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 54\r\n\r\n"
    b"too many agents are connecting at once; try again soon"
)


class AgentEndpoint:
    """Takes connections that asked to become an agent's WebSocket.

    When there is no room for one more, the oldest has to go, so that strangers who say nothing keep no agent
    out.  It has `PATIENCE` first, since agents that all come at once would only take each other's place; but
    the oldest of an address that has more here than the newcomer's address goes at once.

    :param opened: gets each connection once the handshake is over, by what its agent wants to speak.
    :param limit: how many may be between the handshake and the end of authentication at one time.
    :ivar refused: how many were turned away because of *limit*, or with a handshake that is none.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, opened: Mapping[bytes, Opened], *, limit: int = 256) -> None:
        self._clock = clock
        self._opened = opened
        self._limit = limit
        self._pending: dict[int, tuple[Pipe, float, str]] = {}
        self._count = 0
        self._complained: float | None = None
        self.refused = 0

    @property
    def pending(self) -> int:
        """How many are between the handshake and the end of authentication."""
        return len(self._pending)

    def accept(self, pipe: Pipe, received: bytes) -> None:
        """Take *pipe*, paused, of which *received* was read: a request's head and what came behind it."""
        end = received.find(b"\r\n\r\n") + 4
        try:
            answer, protocol = answer_upgrade(received[:end], self._opened)
        except NoUpgrade as error:
            self._complain("an agent was turned away: {reason}", reason=str(error))
            self._refuse(pipe, error.answer())
            return
        source = _source(pipe)
        if len(self._pending) >= self._limit and not self._make_room(source):
            self._complain("agents are turned away: {pending} are connecting", pending=self.pending)
            self._refuse(pipe, _BUSY)
            return
        self._count = number = self._count + 1
        self._pending[number] = pipe, self._clock.seconds(), source
        pipe.send(answer)
        self._opened[protocol](pipe, received[end:]).addBoth(self._settled, number)

    def _make_room(self, source: str) -> bool:
        """Abort one for a newcomer from *source* if one may be; return whether it was."""
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

    def _complain(self, text: str, **values: object) -> None:
        now = self._clock.seconds()
        if self._complained is None or now - self._complained >= REMINDER:
            self._complained = now
            self._log.warn(text, **values)

    def _refuse(self, pipe: Pipe, answer: bytes) -> None:
        self.refused += 1
        pipe.send(answer)
        pipe.close()

    def _settled(self, result: Any, number: int) -> None:
        self._pending.pop(number, None)
        if isinstance(result, Failure):
            self._log.failure("an agent could not be welcomed", result)


def _source(pipe: Pipe) -> str:
    return source_of(pipe.getPeer().host) if hasattr(pipe, "getPeer") else ""
