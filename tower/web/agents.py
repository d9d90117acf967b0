"""The proxy's end of an agent's WebSocket: Autobahn shakes hands, then the tunnel takes the connection.

Autobahn never sees a frame: the moment the handshake is over, the connection and whatever came behind
the handshake go to the tunnel's own codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionDeny, ConnectionRequest
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.pipes import Pipe
from tower.transport import PipeTransport

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


class QuietLog:
    """In place of Autobahn's log: what goes wrong is told by our own, once and with less ado."""

    def debug(self, *_: Any, **__: Any) -> None:
        """Say nothing."""

    info = warn = error = debug


class _AgentSocket(WebSocketServerProtocol):
    """One handshake.  Its settings are class attributes, see `_socket_class`."""

    log = QuietLog()

    # Autobahn copies what is listed here to each connection, and formats a log line of it each time: a
    # third of what a connecting agent costs.
    CONFIG_ATTRS: list[str] = []

    def __init__(self, opened: Callable[[bytes], None]) -> None:
        super().__init__()
        self._opened = opened

    def onConnect(self, request: ConnectionRequest) -> str:
        """Take the one subprotocol that we speak."""
        if request.protocols != [TOWER_V2]:
            raise ConnectionDeny(ConnectionDeny.BAD_REQUEST, f"agents speak {TOWER_V2} here")
        return TOWER_V2

    def onOpen(self) -> None:
        """Hand over."""
        leftover, self.data = self.data, b""
        self._opened(leftover)


def _socket_class(factory: WebSocketServerFactory) -> type[_AgentSocket]:
    """Return a class with *factory*'s settings in it."""
    settings = {name: getattr(factory, name) for name in WebSocketServerProtocol.CONFIG_ATTRS}
    for name, value in settings.items():
        if callable(value):
            settings[name] = staticmethod(value)
    return type("_ConfiguredAgentSocket", (_AgentSocket,), {**settings, "factory": factory})


class AgentEndpoint:
    """Takes connections that asked to become an agent's WebSocket.

    :param opened: gets each connection once the handshake is over.
    :param limit: how many may be between the handshake and the end of authentication at one time.
    :ivar pending: how many are there now.
    :ivar refused: how many were turned away because of *limit*, or with a handshake that is none.
    """

    _log = Logger()

    def __init__(self, reactor: Any, opened: Opened, *, limit: int = 256) -> None:
        self._opened = opened
        self._limit = limit
        self.pending = 0
        self.refused = 0
        factory = WebSocketServerFactory(server="", reactor=reactor)
        factory.setProtocolOptions(
            versions=[13],
            webStatus=False,
            openHandshakeTimeout=0,  # the head is here in full when we are called
            maxFramePayloadSize=1,
            maxMessagePayloadSize=1,  # frames are the tunnel's, Autobahn gets none
        )
        self._socket_class = _socket_class(factory)

    def accept(self, pipe: Pipe, received: bytes) -> None:
        """Take *pipe*, of which *received* was read: the head of the request and what came behind it."""
        if self.pending >= self._limit:
            self.refused += 1
            self._log.warn("turned an agent away: {pending} are connecting", pending=self.pending)
            pipe.send(_BUSY)
            pipe.close()
            return
        self.pending += 1
        opened = False

        def hand_over(leftover: bytes) -> None:
            nonlocal opened
            opened = True
            self._opened(transport.release(), leftover).addBoth(self._settled)

        socket = self._socket_class(hand_over)
        transport = PipeTransport(pipe, socket)
        transport.start()
        socket.dataReceived(received)
        if not opened:
            # the head was whole, so Autobahn has answered it with an error
            self.refused += 1
            self.pending -= 1
            transport.loseConnection()

    def _settled(self, result: Any) -> None:
        self.pending -= 1
        if isinstance(result, Failure):
            self._log.failure("an agent could not be welcomed", result)
