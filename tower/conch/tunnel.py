"""A live tunnel: one connection, the frames around SSH packets, the packets, and the channels in them.

`Tunnel` drives the sans-IO pieces.  Until the peer is authenticated everything goes the slow way, through
Conch; then the tunnel takes the parsing over and only messages that are not about channels reach Conch.

On the way in, bytes are received into a buffer of the process, unmasked and decrypted without being copied;
a tunnel keeps a buffer only while it holds part of a large packet.  On the way out, small packets of one
turn of the reactor leave in one frame and one ``send``; large ones are sealed from one buffer of the process
into another and leave at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.budget import Budget
from tower.conch.buffers import BUFFER_SIZE, POOL, Batch
from tower.conch.channel import Channel
from tower.conch.interfaces import SSH, Reader, Writer
from tower.conch.mux import ALONE_PACKET, DATA, DATA_OFFSET, Mux
from tower.conch.opening import Incoming, TunnelLost
from tower.conch.packets import OVERHEAD
from tower.errors import PeerError
from tower.pipes import Buffer, Pipe
from tower.web.frames import CLOSE, LONGEST_HEADER, PING, PONG, Control

#: Type of the channels that lead to a target; its name follows as an SSH string.
STREAM = b"stream@tower.kubesphere.io"

#: Packets up to this size wait for the end of the turn and leave in one frame, B.
SMALL_PACKET = 8 * 1024

#: Packets up to this size, of which a peer of kubesphere-v1 takes no longer ones, leave in one frame, too, B.
MEDIUM_PACKET = 40 * 1024

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

#: What may wait for a peer that takes nothing: answers and window adjustments, since data stops before, B.
LARGEST_BACKLOG = 4 * 1024 * 1024

#: Bytes of small packets after which a frame is sent without waiting for the turn's end.
_BATCH = 64 * 1024

_PLAIN = memoryview(bytearray(DATA_OFFSET + ALONE_PACKET + 64))
_SEALED = memoryview(bytearray(LONGEST_HEADER + len(_PLAIN) + OVERHEAD))
_OPENED = memoryview(bytearray(BUFFER_SIZE))
_GATHERED = Batch(LONGEST_HEADER, ALONE_PACKET + MEDIUM_PACKET + _BATCH)


def _nothing() -> None:
    """Stand in for a hook that nobody uses."""


class Tunnel:
    """One end of a tunnel; create it, then `start`, then `open_up` once the peer is authenticated.

    :param reactor: an ``IReactorTime``.
    :param pipe: the connection, paused.
    :param ssh: our end of SSH.
    :param reader: takes the peer's frames apart.
    :param writer: makes ours.
    :ivar name: the cluster.
    :ivar fingerprint: of the agent's key.
    :ivar version: of the peer's program.
    :ivar peer: address of the peer.
    :ivar server: what the agent calls its API server; see `tower.conch.hello.AgentHello`.
    :ivar since: when the tunnel opened, s since the epoch.
    :ivar draining: whether it takes no new streams because the peer will soon be gone.
    :ivar congested: whether data has to wait: the socket is full, or keys are being exchanged.
    :ivar lost: fires with the reason when the tunnel is gone.
    :ivar bytes_in: bytes of the connection received.
    :ivar bytes_out: bytes of the connection sent.
    """

    __slots__ = (
        "__weakref__",
        "_backlog",
        "_buffer",
        "_exchanging",
        "_full",
        "_have",
        "_mux",
        "_out",
        "_out_size",
        "_over",
        "_pipe",
        "_portion",
        "_reactor",
        "_reader",
        "_rest",
        "_soon",
        "_ssh",
        "_turn_is_due",
        "_unparsed",
        "_writer",
        "bytes_in",
        "bytes_out",
        "congested",
        "disconnecting",
        "draining",
        "fingerprint",
        "lost",
        "name",
        "on_change",
        "peer",
        "server",
        "since",
        "version",
    )

    _log = Logger()

    #: What the two ends speak, and who writes the heads of requests anew: nobody, the agent does that.
    protocol: ClassVar[str] = "tower-v2"
    rewrite: ClassVar[None] = None

    def __init__(self, reactor: Any, pipe: Pipe, ssh: SSH, reader: Reader, writer: Writer) -> None:
        self._reactor = reactor
        self._pipe = pipe
        self._ssh = ssh
        self._reader, self._writer = reader, writer
        self._mux: Mux | None = None
        self._unparsed: int | None = None
        self._buffer: memoryview | None = None
        self._have = 0
        self._portion = SMALL_PORTION
        self._rest = b""
        self._out: list[bytes] = []
        self._out_size = 0
        self._full = self._exchanging = self.congested = False
        self._backlog = 0
        self._soon: Callable[[Callable[[], None]], Any] = getattr(
            reactor, "soon", partial(reactor.callLater, 0)
        )
        self._turn_is_due = False
        self._over = self.disconnecting = False
        self.name = self.fingerprint = self.version = ""
        self.server = b""
        self.since = 0.0
        self.draining = False
        self.on_change: Callable[[], None] = _nothing
        self.lost: Deferred[Exception] = Deferred()
        self.bytes_in = self.bytes_out = 0
        address = pipe.getPeer() if hasattr(pipe, "getPeer") else None
        self.peer = f"{address.host}:{address.port}" if address is not None else ""

    def start(self, leftover: bytes = b"") -> None:
        """Begin the SSH handshake; *leftover* came on the connection before."""
        self._ssh.lost.addCallback(self._lost)
        self._ssh.on_exchange, self._ssh.on_keys = self._exchange_begins, self._exchange_ends
        self._ssh.on_drain = self._peer_drains
        self._pipe.receiver = self
        self._ssh.makeConnection(self)
        if leftover and not self._over:
            self.received(memoryview(bytearray(leftover)))
        self._pipe.resume()

    def open_up(
        self,
        name: str,
        fingerprint: str,
        version: str,
        since: float,
        budget: Budget,
        accept: Callable[[Incoming], None] | None = None,
    ) -> None:
        """Take parsing over from SSH, whose peer is authenticated now, and carry streams.

        :param accept: decides about streams that the peer opens; None refuses all.
        """
        self.name, self.fingerprint, self.version, self.since = name, fingerprint, version, since
        self._mux = Mux(self, budget, owner=self, accept=accept)
        rest = self._ssh.release()
        if self._unparsed is None:
            self._rest = rest
        else:
            self._unparsed = len(rest)

    # Streams

    def open(self, target: str) -> Deferred[Channel]:
        """Open a stream to *target*; see `tower.conch.mux.Mux.open`."""
        data = target.encode()
        return self.open_channel(STREAM, len(data).to_bytes(4, "big") + data)

    def open_channel(self, kind: bytes, data: bytes) -> Deferred[Channel]:
        """Open a channel of any type; see `tower.conch.mux.Mux.open`."""
        if self._mux is None or self.disconnecting:
            return fail(TunnelLost("the tunnel is gone"))
        return self._mux.open(kind, data)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return 0 if self._mux is None else len(self._mux.channels)

    def drain(self) -> None:
        """Tell the peer that we will soon be gone, so that it opens no new streams."""
        self._ssh.drain()

    def close(self, reason: str) -> None:
        """Close in good order, telling the peer why."""
        self._ssh.close(reason)

    def _peer_drains(self) -> None:
        self.draining = True
        self.on_change()

    # tower.conch.mux.Wire

    @property
    def round_trip(self) -> float:
        """To the peer, s; 0 until it was measured."""
        return self._ssh.round_trip or 0.0

    def seconds(self) -> float:
        """Return monotonic time, s."""
        seconds: float = self._reactor.seconds()
        return seconds

    def _exchange_begins(self) -> None:
        self._exchanging = self.congested = True

    def _exchange_ends(self) -> None:
        self._exchanging, self.congested = False, self._full
        self.soon()

    def send(self, payload: bytes) -> None:
        """Send a small message at the end of this turn of the reactor."""
        if self._exchanging:
            self._ssh.sendPacket(payload[0], payload[1:])
            return
        if self.disconnecting:
            return
        data = self._ssh.sealer.seal(payload)
        if _GATHERED.owner is self and _GATHERED.put(data):
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _BATCH:
            self._flush()
        elif not self._turn_is_due:
            self._turn_is_due = True
            self._soon(self._turn)

    def lease(self) -> memoryview:
        """Return the process's buffer for one packet."""
        return _PLAIN

    def commit(self, size: int) -> None:
        """Seal the packet in the lease; send it now, or with the others of this turn if it is small."""
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
        """Seal the packet in the lease behind those that leave with it, soon or at the end of the turn.

        A Go peer reads a message in ever larger pieces, so few long messages cost it much less than many.
        """
        batch, mux = _GATHERED, self._mux
        if batch.owner is None:
            batch.owner, batch.end = self, batch.front
            for data in self._out:
                batch.put(data)
            self._out.clear()
            self._out_size = 0
            self.soon()
        batch.end += self._ssh.sealer.seal_into(_PLAIN, size, batch.memory[batch.end :])
        if mux is None or batch.end - batch.front > mux.largest:
            self._ship()

    def _ship(self) -> None:
        """Send what was gathered."""
        batch = _GATHERED
        batch.owner = None
        if not self._over:
            begin = self._writer.wrap_into(batch.memory, batch.front, batch.end)
            self._transmit(batch.memory[begin : batch.end])

    def soon(self) -> None:
        """Have `_turn` called once this turn of the reactor is over."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        self._flush()
        if self._over:
            return
        mux = self._mux
        if mux is not None and mux.turns and not self.congested:
            mux.drained()
        self._ssh.rekey_if_due()
        self._flush()

    def _flush(self) -> None:
        if _GATHERED.owner is self:
            self._ship()
        if not self._out or self._over:
            return
        data = b"".join(self._out)
        self._out.clear()
        self._out_size = 0
        self._transmit(self._writer.wrap(data))

    def _transmit(self, data: Buffer) -> None:
        size = len(data)
        self.bytes_out += size
        if self._pipe.send(data):
            return
        if self._full:
            self._backlog += size
            if self._backlog > LARGEST_BACKLOG:
                self._backlog = 0
                self._ssh.fail(PeerError("the peer does not take what it asks for"))
                self._pipe.abort()
        self._full = self.congested = True

    # ITransport, for SSH

    def write(self, data: bytes) -> None:
        """Send bytes of SSH at the end of this turn of the reactor."""
        if self.disconnecting or (_GATHERED.owner is self and _GATHERED.put(data)):
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _BATCH:
            self._flush()
        else:
            self.soon()

    def loseConnection(self) -> None:
        """Close the connection after what is queued."""
        if not self.disconnecting:
            self._flush()
            self.disconnecting = True
            if goodbye := self._writer.wrap(b"\x03\xe8", CLOSE):
                self._pipe.send(goodbye)
            self._pipe.close()

    def abortConnection(self) -> None:
        """Close the connection now."""
        self.disconnecting = True
        self._pipe.abort()

    def getPeer(self) -> IAddress:
        """Return the peer's address."""
        return self._pipe.getPeer()  # type: ignore[attr-defined,no-any-return]

    def getHost(self) -> IAddress:
        """Return our address."""
        return self._pipe.getHost()  # type: ignore[attr-defined,no-any-return]

    # tower.pipes.Receiver, and the two methods with which we say where bytes go

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
        begin, tail = 0, self._have
        packets = self._ssh.opener.packets
        try:
            if self._mux is None and self.bytes_in > EARLY_BYTES:
                raise PeerError("too much before the hello")
            pieces = self._reader.feed(buffer[tail : tail + count])
            for piece in pieces:
                if isinstance(piece, Control):
                    self._control(piece)
                else:
                    start, end = piece[0] + self._have, piece[1] + self._have
                    if begin == tail:
                        begin = tail = start
                    elif start != tail:
                        buffer[tail : tail + end - start] = buffer[start:end]
                    tail += end - start
                    begin = self._parse(buffer, begin, tail)
                if self.disconnecting:
                    break
            if count >= SMALL_PORTION and self._mux is not None:
                payload = sum(piece[1] - piece[0] for piece in pieces if not isinstance(piece, Control))
                packets = self._ssh.opener.packets - packets
                small = packets * _SMALL_PACKET > count or payload < count * (1 - _OVERHEAD)
                self._portion = SMALL_PORTION if small else BUFFER_SIZE
        except PeerError as e:
            self._ssh.fail(e)
        if begin == tail or self.disconnecting:
            self._buffer = None
            POOL.give_back(buffer)
        else:
            self._keep(buffer, begin, tail)

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
        opener, channels_go_on = ssh.opener, not ssh.awaits_keys
        while not self.disconnecting and (opened := opener.open_next(buffer, begin, end, _OPENED)):
            begin, until = opened
            if channels_go_on and _OPENED[1] == DATA:
                if _WORTH_JOINING <= until < _JOINED and end - begin > _WORTH_JOINING:
                    begin = self._parse_joined(mux, buffer, begin, end, until)
                    opener, channels_go_on = ssh.opener, not ssh.awaits_keys
                    continue
                mux.data(_OPENED, 1, until)
            else:
                self._act(mux, _OPENED[1:until])
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
        if other and not self.disconnecting:
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

    def received(self, data: memoryview) -> None:
        """Take bytes that did not come through `buffer`."""
        while data and not self.disconnecting:
            room = self.buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.filled(size)
            data = data[size:]

    def _control(self, frame: Control) -> None:
        if frame.opcode == PING:
            self._transmit(self._writer.wrap(frame.payload, PONG))
        elif frame.opcode == CLOSE:
            self.loseConnection()

    def ended(self) -> None:
        """The peer's side of the connection ended, and a tunnel has no use for half of one."""
        self.loseConnection()

    def drained(self) -> None:
        """The socket takes bytes again."""
        self._full, self.congested = False, self._exchanging
        self._backlog = 0
        self._turn()

    def closed(self, reason: Exception) -> None:
        """The connection is gone."""
        self._ssh.connectionLost(Failure(reason))

    def _lost(self, reason: Exception) -> None:
        self._over = self.disconnecting = True
        self._buffer = None
        self._out.clear()
        if _GATHERED.owner is self:
            _GATHERED.owner = None
        if self._mux is not None:
            self._mux.lost(reason)
            self._mux = None  # or each would hold the other
        self.on_change = _nothing  # whoever is told holds us
        self.lost.callback(reason)
