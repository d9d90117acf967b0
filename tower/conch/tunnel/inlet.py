"""The way into a tunnel: frames are taken apart, packets opened, and messages acted on.

Until the peer is authenticated everything goes the slow way, through Conch; then the parsing is done here and
only messages that are not about channels reach Conch.

Bytes are received into a buffer of the process, unmasked and decrypted without being copied; a tunnel keeps a
buffer only while it holds part of a large packet.
"""

from __future__ import annotations

from twisted.python.failure import Failure

from tower.conch.connection.messages import DATA, DATA_OFFSET
from tower.conch.connection.mux import Mux
from tower.conch.tunnel.interfaces import SSH, Reader
from tower.conch.tunnel.outlet import Outlet
from tower.conch.tunnel.unframed import UNFRAMED
from tower.errors import PeerError
from tower.net.buffers import BUFFER_SIZE, POOL
from tower.websocket.frames import CLOSE, PING, PONG, Control

#: What a tunnel may keep of a packet without keeping a whole buffer, B.
SMALL_REST = 8 * 1024

#: Read at once from a peer that is not let in yet, or that sends many small pieces; others have to wait, B.
SMALL_PORTION = 16 * 1024

#: Packets are small if they are shorter than this on average, B, and frames if so much of them is no payload.
_SMALL_PACKET = 1024
_OVERHEAD = 1 / 64

#: All that may come before the hello is over, frames included, B.
EARLY_BYTES = 512 * 1024

#: Data of packets from this size on is joined with what follows it in its channel, up to that size, B.
_WORTH_JOINING = 16 * 1024
_JOINED = 192 * 1024

_OPENED = memoryview(bytearray(BUFFER_SIZE))


class Inlet:
    """The receiver of a tunnel's connection; see `tower.net.pipes.Receiver`.

    :param reader: takes frames apart.
    :param outlet: where control frames are answered.
    :ivar bytes_in: bytes of the connection received.
    """

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

    def __init__(self, ssh: SSH, reader: Reader, outlet: Outlet) -> None:
        self._ssh = ssh
        self._reader = reader
        self._framed = reader is not UNFRAMED
        self._outlet = outlet
        self._mux: Mux | None = None
        self._unparsed: int | None = None
        self._buffer: memoryview | None = None
        self._have = 0
        self._portion = SMALL_PORTION
        self._rest = b""
        self.bytes_in = 0

    def open_up(self, mux: Mux) -> None:
        """Take parsing over from SSH, whose peer is authenticated now."""
        self._mux = mux
        rest = self._ssh.release()
        if self._unparsed is None:
            self._rest = rest
        else:
            self._unparsed = len(rest)

    # Where bytes go: two methods that a receiver may have

    def buffer(self) -> memoryview:
        """Return where the connection is to put what comes next."""
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
        """Take apart what the connection put there."""
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
        """Take frames apart, and put together and act on what is in them.

        :return: how much of it was payload; where what is left of that begins in *buffer*, and where it ends.
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
        """Keep what is left of a packet: alone if it is little, else at the front of its buffer."""
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
        """Act on the packets in ``buffer[begin:end]`` and return where the first incomplete one begins."""
        ssh = self._ssh
        mux = self._mux
        if mux is None:
            self._unparsed = 0
            ssh.dataReceived(bytes(buffer[begin:end]))
            unparsed, self._unparsed = self._unparsed, None
            if self._mux is None:
                return end
            # opened up just now: what SSH did not parse is the end of what it got
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
        """Act on the packet that is open, with the data of the next ones behind its own, as one piece.

        Each is opened where its head falls on the end of the data before it, which is put back then.

        :return: where the first packet begins that was not opened.
        """
        opener, head = self._ssh.opener, bytes(_OPENED[1:6])
        place = stop = until
        other = b""
        joinable = until == DATA_OFFSET + int.from_bytes(_OPENED[6:DATA_OFFSET], "big")
        while joinable and stop < _JOINED:
            place = stop - DATA_OFFSET
            covered = bytes(_OPENED[place:stop])
            opened = opener.open_next(buffer, begin, end, _OPENED[place:])
            if opened is None:
                break
            begin, until = opened
            own = bytes(_OPENED[place:stop])
            _OPENED[place:stop] = covered
            if own[1:6] != head or until != DATA_OFFSET + int.from_bytes(own[6:], "big"):
                other = own
                break
            stop = place + until
        if stop > DATA_OFFSET:
            _OPENED[6:DATA_OFFSET] = (stop - DATA_OFFSET).to_bytes(4, "big")
        mux.data(_OPENED, 1, stop)
        if other and not self._outlet.disconnecting:
            _OPENED[place : place + DATA_OFFSET] = other
            self._act(mux, _OPENED[place + 1 : place + until])
        return begin

    def _act(self, mux: Mux, payload: memoryview) -> None:
        """Act on one message."""
        ssh, kind = self._ssh, payload[0]
        if 90 <= kind <= 100 and not ssh.awaits_keys:
            mux.message(kind, payload)
        else:
            ssh.dispatch(bytes(payload))

    # tower.net.pipes.Receiver

    def received(self, data: memoryview) -> None:
        """Take bytes that did not come through `buffer`."""
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
        """The peer's side of the connection ended, and a tunnel has no use for half of one."""
        self._outlet.loseConnection()

    def drained(self) -> None:
        """The socket takes bytes again."""
        self._outlet.drained()

    def closed(self, reason: Exception) -> None:
        """The connection is gone."""
        self._ssh.connectionLost(Failure(reason))

    def lost(self) -> None:
        """Note that the connection is gone."""
        self._buffer = None
        self._mux = None  # or each would hold the other
