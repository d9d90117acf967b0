"""The sending side of a tunnel: packets are sealed, framed, and sent.

Small packets of one turn of the reactor leave in one frame and one ``send``; so do packets of medium size,
which are sealed one after the other into the buffer that is sent.  Large ones are sealed from one buffer of
the process into another and leave at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import IAddress

from tower.conch.connection.liveness import LivenessTransport
from tower.conch.connection.messages import DATA_OFFSET, LONGEST_DATA
from tower.conch.connection.mux import Mux
from tower.conch.transport.packets import OVERHEAD
from tower.conch.tunnel.framing import UNFRAMED, Writer
from tower.errors import PeerError
from tower.net.buffers import Batch
from tower.net.pipes import Buffer, Pipe
from tower.reactor.timers import Clock
from tower.reactor.turn import Turn
from tower.websocket.frames import CLOSE, LONGEST_HEADER

#: Packets up to this size wait for the end of the turn and leave in one frame, B.
SMALL_PACKET: Final = 8 * 1024

#: Packets up to this size, the longest that peers of kubesphere-v1 accept, leave in one frame too, B.
MEDIUM_PACKET: Final = 40 * 1024

#: Limit of replies and window adjustments queued for a peer that does not read; data stops earlier, B.
LONGEST_QUEUE: Final = 4 * 1024 * 1024

#: Small packets of this total size are sent without waiting for the end of the turn, B.
_BATCH: Final = 64 * 1024

_PLAIN: Final = memoryview(bytearray(DATA_OFFSET + LONGEST_DATA + 64))
_SEALED: Final = memoryview(bytearray(LONGEST_HEADER + len(_PLAIN) + OVERHEAD))
_GATHERED: Final = Batch(LONGEST_HEADER, LONGEST_DATA + MEDIUM_PACKET + _BATCH)


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """Sends messages of a mux, and SSH bytes (``ITransport``).

    :param reactor: a `tower.reactor.poller.Poller`, or any other clock.
    :ivar congested: whether data must wait: the socket is full, keys are being exchanged, or the tunnel
        closes.
    :ivar disconnecting: whether nothing more is sent or received.
    """

    __slots__ = (
        "_exchanging",
        "_framed",
        "_full",
        "_out",
        "_out_size",
        "_over",
        "_pipe",
        "_queued",
        "_reactor",
        "_soon",
        "_ssh",
        "_turn",
        "_turn_is_due",
        "_writer",
        "bytes_out",
        "congested",
        "disconnecting",
        "mux",
    )

    def __init__(self, reactor: Clock, pipe: Pipe, ssh: LivenessTransport, writer: Writer) -> None:
        self._reactor = reactor
        self._pipe = pipe
        self._ssh = ssh
        self._writer = writer
        self._framed = writer is not UNFRAMED
        self.mux: Mux | None = None
        self._out: list[bytes] = []
        self._out_size = 0
        self._full = self._exchanging = self.congested = False
        self._queued = 0
        self._soon: Callable[[Callable[[], None]], Any] = getattr(
            reactor, "soon", partial(reactor.callLater, 0)
        )
        self._turn: Turn = getattr(reactor, "turn", None) or Turn()
        self._turn_is_due = False
        self._over = self.disconnecting = False
        self.bytes_out = 0

    # Called by the mux

    @property
    def round_trip(self) -> float:
        """To the peer, s; 0 until it is measured."""
        return self._ssh.round_trip or 0.0

    def seconds(self) -> float:
        """Return monotonic time, s."""
        return self._reactor.seconds()

    def send(self, payload: bytes) -> None:
        """Send a small message, together with others of this turn of the reactor."""
        if self._exchanging:
            self._ssh.sendPacket(payload[0], payload[1:])
            return
        if self.disconnecting:
            return
        data = self._ssh.sealer.seal(payload)
        turn = self._turn
        if turn.is_lone and not self._turn_is_due:
            turn.is_lone = False
            self._transmit(self._writer.wrap(data) if self._framed else data)
            self._ssh.rekey_if_due()
            return
        if _GATHERED.owner is self and _GATHERED.put(data):
            return
        self._out.append(data)
        self._out_size = size = self._out_size + len(data)
        if not self._turn_is_due:
            self._turn_is_due = True
            self._soon(self._end_turn)
        if size > _BATCH:
            self._flush()

    def lease(self) -> memoryview:
        """Return the process's buffer for one packet: `DATA_OFFSET` bytes, then the data."""
        return _PLAIN

    def commit(self, size: int) -> None:
        """Seal the leased packet, padding length included; send it now, or with others if it is small."""
        if self.disconnecting:
            return
        if size <= MEDIUM_PACKET:
            if size <= SMALL_PACKET:
                self.send(bytes(_PLAIN[1:size]))
                return
            if _GATHERED.owner in (None, self):
                self._gather(size)
                return
        self._flush()
        sealed = self._ssh.sealer.seal_into(_PLAIN, size, _SEALED[LONGEST_HEADER:])
        end = LONGEST_HEADER + sealed
        begin = self._writer.wrap_into(_SEALED, LONGEST_HEADER, end)
        self._transmit(_SEALED[begin:end])

    def _gather(self, size: int) -> None:
        """Seal the leased packet into the buffer of those that leave together, at the end of the turn at
        latest.

        A Go peer reads a message in growing pieces, so few long messages cost it much less than many.
        """
        batch, mux = _GATHERED, self.mux
        if batch.owner is None:
            batch.owner, batch.end = self, batch.front
            for data in self._out:
                batch.put(data)
            self._out.clear()
            self._out_size = 0
            self.soon()
        batch.end += self._ssh.sealer.seal_into(_PLAIN, size, batch.memory[batch.end :])
        if mux is None or batch.end - batch.front > mux.fairness.largest:
            self._ship()

    def _ship(self) -> None:
        """Send the gathered packets."""
        batch = _GATHERED
        batch.owner = None
        if not self._over:
            begin = self._writer.wrap_into(batch.memory, batch.front, batch.end)
            self._transmit(batch.memory[begin : batch.end])

    def soon(self) -> None:
        """Call `Mux.drained` later in this turn of the reactor, never within this call."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_is_due = False
        self._flush()
        if self._over:
            return
        mux = self.mux
        if mux is not None and mux.waiting and not self.congested:
            mux.drained()
        self._ssh.rekey_if_due()
        if self._out or _GATHERED.owner is self:
            self._flush()

    def _flush(self) -> None:
        if _GATHERED.owner is self:
            self._ship()
        out = self._out
        if not out or self._over:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_size = 0
        self._transmit(self._writer.wrap(data) if self._framed else data)

    def _transmit(self, data: Buffer) -> None:
        size = len(data)
        self.bytes_out += size
        if self._pipe.send(data):
            return
        if self._full:
            self._queued += size
            if self._queued > LONGEST_QUEUE:
                self._queued = 0
                self._ssh.fail(PeerError("the peer does not read the replies to its requests"))
                self._pipe.abort()
        self._full = self.congested = True

    # ITransport, for SSH

    def write(self, data: bytes) -> None:
        """Send SSH bytes at the end of this turn of the reactor."""
        if self.disconnecting or (_GATHERED.owner is self and _GATHERED.put(data)):
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _BATCH:
            self._flush()
        else:
            self.soon()

    def loseConnection(self) -> None:
        """Close the connection after flushing."""
        if not self.disconnecting:
            self._flush()
            self.disconnecting = self.congested = True
            if goodbye := self._writer.wrap(b"\x03\xe8", CLOSE):
                self._pipe.send(goodbye)
            self._pipe.close()

    def abortConnection(self) -> None:
        """Close the connection now."""
        self.disconnecting = self.congested = True
        self._pipe.abort()

    def getPeer(self) -> IAddress:
        """Return the peer's address."""
        return self._pipe.getPeer()  # type: ignore[attr-defined,no-any-return]

    def getHost(self) -> IAddress:
        """Return our address."""
        return self._pipe.getHost()  # type: ignore[attr-defined,no-any-return]

    # Called by the tunnel

    def exchange_begins(self) -> None:
        """Hold back data during a key exchange."""
        self._exchanging = self.congested = True

    def exchange_ends(self) -> None:
        """Send data again."""
        self._exchanging, self.congested = False, self._full or self.disconnecting
        self.soon()

    def drained(self) -> None:
        """Resume sending: the socket has room again."""
        self._full, self.congested = False, self._exchanging or self.disconnecting
        self._queued = 0
        self._end_turn()

    def control(self, payload: bytes, opcode: int) -> None:
        """Send a control frame at once."""
        self._transmit(self._writer.wrap(payload, opcode))

    def lost(self) -> None:
        """Drop references: the connection is lost."""
        self._over = self.disconnecting = self.congested = True
        self._out.clear()
        if _GATHERED.owner is self:
            _GATHERED.owner = None
        self.mux = None  # breaks a cycle
