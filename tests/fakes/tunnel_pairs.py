"""Both ends of a tunnel in memory: real SSH, real frames, and the bytes in between in the test's hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock

from tests.fakes.receivers import Recorder
from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY, Gate
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.transport.limits import TransportLimits
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.budget import Budget
from tower.net.pipes import Buffer, Receiver
from tower.v2.hello import AgentHello
from tower.v2.transport import ClientTransport, ServerTransport
from tower.websocket.frames import BINARY, CONTINUATION, PING, Control, FrameReader, FrameWriter
from tower.websocket.masks import mask


class MemoryPipe:
    """One end of a pipe in memory; `carry` takes bytes to the other end.

    :ivar room: bytes until `send` returns False.
    :ivar waiting: what was sent and not carried yet.
    :ivar gone: whether it was closed, both ways.
    :ivar broken: the other end receives nothing more, but can still send.
    """

    receiver: Receiver

    def __init__(self) -> None:
        self.other: MemoryPipe
        self.waiting = bytearray()
        self.room = 200_000
        self.paused = True
        self.gone = self.broken = self._closing = self._congested = False
        self.change: Callable[[bytes], bytes] = lambda data: data

    def send(self, data: Buffer) -> bool:
        """See Pipe."""
        if self.gone or self.broken or self._closing:
            return False
        self.waiting += self.change(bytes(data))
        if len(self.waiting) <= self.room:
            return True
        self._congested = True
        return False

    def carry(self, size: int) -> bool:
        """Take up to *size* bytes to the other end; return whether anything was."""
        other = self.other
        if other.paused or other.gone or not self.waiting:
            return False
        if (buffer := getattr(other.receiver, "buffer", None)) is not None:
            space = buffer()
            size = min(size, len(space), len(self.waiting))
            space[:size] = self.waiting[:size]
            del self.waiting[:size]
            other.receiver.filled(size)  # type: ignore[attr-defined]
        else:
            piece = bytes(self.waiting[:size])
            del self.waiting[:size]
            other.receiver.received(memoryview(piece))
        self.settle()
        return True

    def settle(self) -> None:
        """Call drained, or end a closed pipe, once everything is delivered."""
        if self.waiting or self.gone:
            return
        if self._closing:
            self.lose()
        elif self._congested:
            self._congested = False
            self.receiver.drained()

    def finish(self) -> None:
        """Never used."""
        raise NotImplementedError

    def close(self) -> None:
        """See Pipe."""
        self._closing = self.paused = True
        self.settle()

    def abort(self) -> None:
        """See Pipe."""
        self.lose()

    def lose(self) -> None:
        """Disconnect both ends."""
        for end in (self, self.other):
            if not end.gone:
                end.gone = True
                end.waiting.clear()
                end.receiver.closed(ConnectionError("the pipe is closed"))

    def pause(self) -> None:
        """See Pipe."""
        self.paused = True

    def resume(self) -> None:
        """See Pipe."""
        self.paused = self._closing

    def getPeer(self) -> IPv4Address:
        """Return an address."""
        return IPv4Address("TCP", "192.0.2.1", 4321)

    getHost = getPeer


def carry_all(clock: Clock, *pipes: MemoryPipe) -> None:
    """Carry bytes and run what is due until nothing moves."""
    for _ in range(1000):
        moved = [pipe.carry(1 << 16) for pipe in pipes]
        clock.advance(0)
        if not any(moved) and not any(pipe.waiting for pipe in pipes):
            return
    raise AssertionError("it never comes to rest")


class TunnelEnd:
    """One end.

    :ivar incoming: what the peer wanted opened.
    :ivar lost: why the tunnel ended.
    :ivar late: if set, it gets the authenticated peer, and the test calls `open_up`.
    """

    def __init__(self, clock: Clock, ssh: Any, *, server: bool, frames: bool) -> None:
        self.pipe = MemoryPipe()
        self.ssh = ssh
        reader = FrameReader(from_client=server) if frames else UNFRAMED
        writer = FrameWriter(to_server=not server) if frames else UNFRAMED
        self.tunnel = SSHTunnel(clock, self.pipe, ssh, reader, writer)
        self.budget = Budget(64 << 20)
        self.incoming: list[Incoming] = []
        self.lost: Exception | None = None
        self.open = False
        self.late: list[Any] | None = None
        ssh.ready.addCallbacks(self._open_up, lambda failure: None)
        self.tunnel.lost.addCallback(self._note)

    def _open_up(self, peer: Any) -> None:
        if self.late is None:
            self.open_up(peer)
        else:
            self.late.append(peer)

    def open_up(self, peer: Any) -> None:
        """Take streams from now on."""
        self.open = True
        self.tunnel.open_up(peer.name, peer.fingerprint, "1", 5.0, self.budget, self.incoming.append)

    def _note(self, reason: Exception) -> None:
        self.lost = reason


class TunnelPair:
    """A proxy's and an agent's end of one tunnel.

    :ivar cut: how many bytes are carried at once, in turn.
    """

    def __init__(
        self,
        *,
        cipher: bytes | None = None,
        frames: bool = True,
        limits: TransportLimits | None = None,
        cut: tuple[int, ...] = (1 << 20,),
        start: bool = True,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.cut = cut
        gate = Gate()
        gate.enrolled.add(("alpha", AGENT_KEY.fingerprint))
        server = ServerTransport(self.clock, (HOST_KEY,), gate, keepalive=0, limits=limits)
        hello = AgentHello(version="1", name="host", targets=("kubernetes",))
        client = ClientTransport(
            self.clock, AGENT_KEY, "alpha", (HOST_KEY.fingerprint,), hello, keepalive=0, limits=limits
        )
        if cipher is not None:
            client.supportedCiphers = [cipher]
        self.proxy = TunnelEnd(self.clock, server, server=True, frames=frames)
        self.agent = TunnelEnd(self.clock, client, server=False, frames=frames)
        self.ends = (self.proxy, self.agent)
        self.proxy.pipe.other, self.agent.pipe.other = self.agent.pipe, self.proxy.pipe
        if start:
            for end in self.ends:
                end.tunnel.start()
            self.pump()
            assert self.proxy.open
            assert self.agent.open

    def pump(self, *, limit: int = 100_000) -> None:
        """Carry bytes until there are none."""
        turn = 0
        while True:
            self.clock.advance(0)
            busy = any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls())
            for end in self.ends:
                busy |= end.pipe.carry(self.cut[turn % len(self.cut)])
                turn += 1
            if not busy:
                return
            if turn > limit:
                raise AssertionError("they do not stop talking")

    def channel(self, proxy: Recorder, agent: Recorder) -> tuple[Channel, Channel]:
        """Return both ends of a new stream, resumed."""
        opened: list[Channel] = []
        self.proxy.tunnel.open("kubernetes").addCallback(opened.append)
        self.pump()
        there = self.agent.incoming.pop().accept()
        self.pump()
        for channel, receiver in ((opened[0], proxy), (there, agent)):
            channel.receiver = receiver
            channel.resume()
        return opened[0], there


class Refragmenter:
    """Cuts frames into others of at most *size* bytes, as gorilla does, with a ping between any two.

    :param masked: whether the frames are masked: they come from the agent.
    """

    def __init__(self, size: int, *, masked: bool) -> None:
        self._size = size
        self._masked = masked
        self._reader = FrameReader(from_client=masked)

    def __call__(self, wire: bytes) -> bytes:
        """Return the replacement of *wire*, which is whole frames."""
        data = bytearray(wire)
        payload, out = b"", b""
        for piece in self._reader.feed(memoryview(data)):
            if isinstance(piece, Control):
                out += self._frame(128 | piece.opcode, piece.payload)
            else:
                payload += data[piece[0] : piece[1]]
        cuts = range(0, len(payload), self._size)
        for start in cuts:
            opcode = CONTINUATION if start else BINARY
            last = 128 if start == cuts[-1] else 0
            out += self._frame(last | opcode, payload[start : start + self._size])
            out += self._frame(128 | PING, b"p" * (start % 126))
        return out

    def _frame(self, first: int, payload: bytes) -> bytes:
        flag, size = 128 if self._masked else 0, len(payload)
        head = (
            bytes((first, flag | size))
            if size < 126
            else bytes((first, flag | 126)) + size.to_bytes(2, "big")
        )
        covered = bytearray(payload)
        if not self._masked:
            return head + covered
        mask(memoryview(covered), b"\1\2\3\4")
        return head + b"\1\2\3\4" + covered
