"""Autobahn's own end of a WebSocket connection, and bytes cut anywhere."""

from __future__ import annotations

from typing import Any, cast

from autobahn.twisted.websocket import (
    WebSocketClientFactory,
    WebSocketClientProtocol,
    WebSocketServerFactory,
    WebSocketServerProtocol,
)
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from tower.websocket.frames import (
    BINARY,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
)
from tower.websocket.masks import mask


def cut(message: bytes, key: bytes, kind: int = BINARY, size: int = 1024) -> bytes:
    """Return *message* in masked frames of *size* bytes, as a deployed agent sends it."""
    wire = b""
    for start in range(0, max(len(message), 1), size):
        piece = bytearray(message[start : start + size])
        last = 128 if start + size >= len(message) else 0
        length = bytes((128 | len(piece),)) if len(piece) < 126 else b"\xfe" + len(piece).to_bytes(2, "big")
        own = bytes(byte ^ start >> 10 & 255 for byte in key)
        mask(memoryview(piece), own)
        wire += bytes(((CONTINUATION if start else kind) | last,)) + length + own + piece
    return wire


class Autobahn:
    """Autobahn's frame code after the handshake, with its received and sent frames."""

    def __init__(self, *, client: bool) -> None:
        self.got: list[tuple[int, bytes]] = []
        protocol: Any = WebSocketClientProtocol() if client else WebSocketServerProtocol()
        self.protocol = protocol
        make = WebSocketClientFactory if client else WebSocketServerFactory
        protocol.factory = make(reactor=Clock())
        protocol.transport = self.transport = StringTransport()
        protocol._connectionMade()
        protocol.state = protocol.STATE_OPEN
        protocol.websocket_version = 18
        protocol.inside_message, protocol.current_frame = False, None
        self.transport.clear()
        self.transport.registerProducer(protocol, streaming=True)  # it is unregistered when it fails
        protocol.onMessage = self._message
        protocol.onPing = lambda payload: self.got.append((PING, payload))
        protocol.onPong = lambda payload: self.got.append((PONG, payload))

    def _message(self, payload: bytes, isBinary: bool) -> None:
        self.got.append((BINARY if isBinary else TEXT, payload))

    def feed(self, wire: bytes) -> None:
        """Receive bytes."""
        self.protocol._dataReceived(wire)

    def sent(self) -> bytes:
        """Return what it sent."""
        data = cast(bytes, self.transport.value())
        self.transport.clear()
        return data
