"""The receiving side of a tunnel: frames, packets, messages.

Until the peer is authenticated all bytes go through Conch.  After that packets are opened here, and only
messages that are not about channels reach Conch.

Bytes are received into a buffer of the process, unmasked and decrypted without a copy; a tunnel keeps a
buffer only while it holds part of a large packet.
"""

from __future__ import annotations

from typing import Final

from twisted.python.failure import Failure

from tower.conch.connection.liveness import LivenessTransport
from tower.conch.connection.messages import DATA, DATA_OFFSET
from tower.conch.connection.mux import Mux
from tower.conch.tunnel.framing import UNFRAMED, Reader
from tower.conch.tunnel.outlet import Outlet
from tower.errors import PeerError
from tower.net.buffers import BUFFER_SIZE, POOL
from tower.websocket.frames import CLOSE, PING, PONG, Control

#: An incomplete packet up to this size is copied, so that its buffer is free again, B.
SMALL_REST: Final = 8 * 1024

#: Received at once from an unauthenticated peer, or one that sends many small pieces: others must wait, B.
SMALL_PORTION: Final = 16 * 1024

#: Packets count as small below this average size, B, and frames if this part of the bytes is not payload.
_SMALL_PACKET: Final = 1024
_OVERHEAD: Final = 1 / 64

#: Most bytes before the hello is over, frames included.
EARLY_BYTES: Final = 512 * 1024

#: Data of packets from this size on is joined with the next packets of its channel, up to the second size, B.
_WORTH_JOINING: Final = 16 * 1024
_JOINED: Final = 192 * 1024

_OPENED: Final = memoryview(bytearray(BUFFER_SIZE))


#: Value of `Inlet._unparsed` while SSH parses nothing.
_IDLE: Final = -1


class Inlet:
    """The receiver of a tunnel's connection; see `tower.net.pipes.Receiver`."""

    __slots__ = (
        "_buffer",
        "_framed",
        "_have",
        "_mux",
        "_outlet",
        "_portion",
        "_reader",
        "_rest",
        "_ssh",
        "_unparsed",
        "bytes_in",
    )

    def __init__(self, ssh: LivenessTransport, reader: Reader, outlet: Outlet) -> None:
        self._ssh = ssh
        self._reader = reader
        self._framed = reader is not UNFRAMED
        self._outlet = outlet
        self._mux: Mux | None = None
        self._unparsed = _IDLE
        self._buffer: memoryview | None = None
        self._have = 0
        self._portion = SMALL_PORTION
        self._rest = b""
        self.bytes_in = 0

    def open_up(self, mux: Mux) -> None:
        """Take over the parsing from SSH: its peer is authenticated."""
        self._mux = mux
        rest = self._ssh.release()
        if self._unparsed == _IDLE:
            self._rest = rest
        else:
            self._unparsed = len(rest)

    # Optional methods of a receiver: it provides the buffer

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes of the connection."""
        buffer = self._buffer
        if buffer is None:
            self._buffer = buffer = POOL.take()
            self._have = len(self._rest)
            if not self._have:
                return buffer[: self._portion]
            buffer[: self._have] = self._rest
            self._rest = b""
        return buffer[self._have : self._have + self._portion]

    def filled(self, count: int) -> None:
        """Parse *count* bytes that the connection put into `buffer`."""
        self.bytes_in += count
        buffer = self._buffer
        assert buffer is not None
        is_much = count >= SMALL_PORTION
        packets = self._ssh.opener.packets if is_much else 0
        payload, begin, tail = count, 0, self._have + count
        try:
            if self._mux is None and self.bytes_in > EARLY_BYTES:
                raise PeerError("too much before the hello")
            if self._framed:
                payload, begin, tail = self._unframe(buffer, count)
            else:
                begin = self._parse(buffer, 0, tail)
            if is_much and self._mux is not None:
                packets = self._ssh.opener.packets - packets
                small = packets * _SMALL_PACKET > count or payload < count * (1 - _OVERHEAD)
                self._portion = SMALL_PORTION if small else BUFFER_SIZE
        except PeerError as e:
            self._ssh.fail(e)
        if begin == tail or self._outlet.disconnecting:
            self._buffer = None
            POOL.give_back(buffer)
        else:
            self._keep(buffer, begin, tail)

    def _unframe(self, buffer: memoryview, count: int) -> tuple[int, int, int]:
        """Parse frames, and the packets in them.

        :return: size of the payload; begin and end in *buffer* of the payload that is not parsed yet.
        """
        have = self._have
        begin, tail, payload = 0, have, 0
        for piece in self._reader.feed(buffer[have : have + count]):
            if isinstance(piece, Control):
                self._control(piece)
            else:
                start, size = piece[0] + have, piece[1] - piece[0]
                if begin == tail:
                    begin = tail = start
                elif start != tail:
                    buffer[tail : tail + size] = buffer[start : start + size]
                payload += size
                tail += size
                begin = self._parse(buffer, begin, tail)
            if self._outlet.disconnecting:
                break
        return payload, begin, tail

    def _keep(self, buffer: memoryview, begin: int, tail: int) -> None:
        """Keep an incomplete packet: a small one as a copy, else at the front of its buffer."""
        left = tail - begin
        if left > SMALL_REST:
            if begin:
                buffer[:left] = buffer[begin:tail]
            self._have = left
            return
        self._rest = bytes(buffer[begin:tail])
        self._buffer = None
        POOL.give_back(buffer)

    def _parse(self, buffer: memoryview, begin: int, end: int) -> int:
        """Handle the packets in ``buffer[begin:end]``; return the offset of the first incomplete one."""
        ssh = self._ssh
        mux = self._mux
        if mux is None:
            self._unparsed = 0
            ssh.dataReceived(bytes(buffer[begin:end]))
            unparsed, self._unparsed = self._unparsed, _IDLE
            if self._mux is None:
                return end
            # opened up in this call: SSH did not parse the end of the bytes that it got
            return self._parse(buffer, end - unparsed, end)
        outlet, plain, data = self._outlet, _OPENED, mux.data
        opener, channels_go_on = ssh.opener, not ssh.awaits_keys
        while begin < end and not outlet.disconnecting:
            opened = opener.open_next(buffer, begin, end, plain)
            if opened is None:
                break
            begin, until = opened
            if channels_go_on and plain[1] == DATA:
                if _WORTH_JOINING <= until < _JOINED and end - begin > _WORTH_JOINING:
                    begin = self._parse_joined(mux, buffer, begin, end, until)
                    opener, channels_go_on = ssh.opener, not ssh.awaits_keys
                    continue
                data(plain, 1, until)
            else:
                self._act(mux, plain[1:until])
                opener, channels_go_on = ssh.opener, not ssh.awaits_keys
        return begin

    def _parse_joined(self, mux: Mux, buffer: memoryview, begin: int, end: int, until: int) -> int:
        """Handle the opened packet together with the next ones of its channel, as one piece of data.

        Each is opened where its head falls on the end of the data before it, which is restored then.

        :return: offset of the first packet that was not opened.
        """
        opener, head = self._ssh.opener, bytes(_OPENED[1:6])
        position = stop = until
        other = b""
        joinable = until == DATA_OFFSET + int.from_bytes(_OPENED[6:DATA_OFFSET], "big")
        while joinable and stop < _JOINED:
            position = stop - DATA_OFFSET
            covered = bytes(_OPENED[position:stop])
            opened = opener.open_next(buffer, begin, end, _OPENED[position:])
            if opened is None:
                break
            begin, until = opened
            own = bytes(_OPENED[position:stop])
            _OPENED[position:stop] = covered
            if own[1:6] != head or until != DATA_OFFSET + int.from_bytes(own[6:], "big"):
                other = own
                break
            stop = position + until
        if stop > DATA_OFFSET:
            _OPENED[6:DATA_OFFSET] = (stop - DATA_OFFSET).to_bytes(4, "big")
        mux.data(_OPENED, 1, stop)
        if other and not self._outlet.disconnecting:
            _OPENED[position : position + DATA_OFFSET] = other
            self._act(mux, _OPENED[position + 1 : position + until])
        return begin

    def _act(self, mux: Mux, payload: memoryview) -> None:
        """Handle one message."""
        ssh, kind = self._ssh, payload[0]
        if 90 <= kind <= 100 and not ssh.awaits_keys:
            mux.message(kind, payload)
        else:
            ssh.dispatch(bytes(payload))

    # tower.net.pipes.Receiver

    def received(self, data: memoryview) -> None:
        """Handle bytes that were not received into `buffer`."""
        while data and not self._outlet.disconnecting:
            room = self.buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.filled(size)
            data = data[size:]

    def _control(self, frame: Control) -> None:
        if frame.opcode == PING:
            self._outlet.control(frame.payload, PONG)
        elif frame.opcode == CLOSE:
            self._outlet.loseConnection()

    def ended(self) -> None:
        """Close both ways: the peer closed its side."""
        self._outlet.loseConnection()

    def drained(self) -> None:
        """The socket takes bytes again."""
        self._outlet.drained()

    def closed(self, reason: Exception) -> None:
        """Report the lost connection to SSH."""
        self._ssh.connectionLost(Failure(reason))

    def lost(self) -> None:
        """Drop references: the connection is lost."""
        self._buffer = None
        self._mux = None  # breaks a cycle
