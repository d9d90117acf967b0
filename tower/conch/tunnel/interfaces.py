"""What a tunnel needs of the pieces that it drives: SSH, and the frames around its packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.conch.transport.packets import Opener, Sealer
from tower.net.pipes import Buffer
from tower.websocket.frames import Control


class SSH(Protocol):
    """What a tunnel uses of `tower.v2.transport.ServerTransport` and ``ClientTransport``.

    :ivar on_exchange: called when channel data has to wait because keys are being exchanged.
    :ivar on_keys: called when it need not wait any more.
    :ivar awaits_keys: whether the peer may say nothing about channels before its next keys.
    """

    sealer: Sealer
    opener: Opener
    on_exchange: Callable[[], None]
    on_keys: Callable[[], None]
    awaits_keys: bool
    on_drain: Callable[[], None]
    lost: Deferred[Exception]

    @property
    def round_trip(self) -> float | None:
        """To the peer, s."""

    def makeConnection(self, transport: Any) -> None:
        """Start."""

    def dataReceived(self, data: bytes) -> None:
        """Take bytes, the slow way."""

    def connectionLost(self, reason: Failure) -> None:
        """Note that the connection is gone."""

    def sendPacket(self, messageType: int, payload: bytes) -> None:
        """Send a message, in its turn."""

    def release(self) -> bytes:
        """Leave parsing to the tunnel."""

    def dispatch(self, payload: Buffer) -> None:
        """Act on a message that is not about channels."""

    def rekey_if_due(self) -> None:
        """Change keys if they were used enough."""

    def fail(self, reason: Exception) -> None:
        """Disconnect because the peer broke the protocol."""

    def close(self, text: str) -> None:
        """Disconnect in good order."""

    def drain(self) -> None:
        """Announce that we will soon be gone."""


class Reader(Protocol):
    """What a tunnel uses of `tower.websocket.frames.FrameReader`."""

    def feed(self, data: memoryview) -> list[tuple[int, int] | Control]:
        """Take frames apart."""


class Writer(Protocol):
    """What a tunnel uses of `tower.websocket.frames.FrameWriter`."""

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Make a frame in place."""

    def wrap(self, payload: bytes, opcode: int = 2) -> bytes:
        """Return a frame."""
