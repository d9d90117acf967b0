"""Conch's own code is the reference: our packets and channels against `SSHTransportBase` and `SSHConnection`.

Conch has no AEAD, so this adds it: its channels run through our sealers, openers
and frames, cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.conch.ssh.channel import SSHChannel
from twisted.conch.ssh.connection import SSHConnection
from twisted.conch.ssh.transport import SSHCiphers, SSHTransportBase
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.muxes import KIND, MuxEnd
from tests.fakes.receivers import Recorder
from tower.conch.connection.channel import Channel
from tower.conch.transport.ciphers import CIPHERS, make_opener, make_sealer
from tower.conch.transport.packets import ClearOpener, ClearSealer
from tower.websocket.frames import Control, FrameReader, FrameWriter

PATTERN = bytes(range(256)) * 2000
KEY, IV = bytes(64), bytes(12)


class ConchPackets(SSHTransportBase):
    """Conch's packets in the clear; notes messages instead of acting on them."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.gotVersion = True
        self.currentEncryptions = SSHCiphers(b"none", b"none", b"none", b"none")
        self.currentEncryptions.setKeys(b"", b"", b"", b"", b"", b"")
        self.transport = StringTransport()

    def dispatchMessage(self, messageNum: int, payload: bytes) -> None:
        """Record it."""
        self.got.append(bytes((messageNum,)) + payload)


def pieces(wire: bytes, cuts: list[int]) -> list[bytes]:
    """Return *wire* cut at random positions."""
    places = sorted({cut % (len(wire) + 1) for cut in cuts})
    return [wire[start:stop] for start, stop in zip([0, *places], [*places, len(wire)], strict=True)]


class ClearPacketTests(SynchronousTestCase):
    """Packets before the first key exchange is over."""

    sizes = st.lists(st.integers(0, 600), max_size=6)
    cuts = st.lists(st.integers(0, 1 << 16), max_size=6)

    @settings(max_examples=60, deadline=None)
    @given(sizes, cuts)
    def test_conch_reads(self, sizes: list[int], cuts: list[int]) -> None:
        """Conch reads the packets that we make, wherever they are cut."""
        sealer, conch = ClearSealer(0), ConchPackets()
        messages = [bytes((2,)) + PATTERN[:size] for size in sizes]
        for piece in pieces(b"".join(map(sealer.seal, messages)), cuts):
            conch.dataReceived(piece)
        self.assertEqual(conch.got, messages)
        self.assertEqual(conch.incomingPacketSequence, sealer.sequence)

    @settings(max_examples=60, deadline=None)
    @given(sizes, cuts)
    def test_we_read(self, sizes: list[int], cuts: list[int]) -> None:
        """We read the packets that Conch makes, wherever they are cut."""
        conch, opener = ConchPackets(), ClearOpener()
        for size in sizes:
            conch.sendPacket(2, PATTERN[:size])
        transport: Any = conch.transport
        unread, got = b"", []
        for piece in pieces(transport.value(), cuts):
            unread += piece
            while len(unread) >= 4 and len(unread) >= (length := opener.wire_length(unread, 0)):
                got.append(opener.open(unread[:length]))
                unread = unread[length:]
        self.assertEqual((got, unread), ([bytes((2,)) + PATTERN[:size] for size in sizes], b""))
        self.assertEqual(opener.sequence, conch.outgoingPacketSequence)


class End(Protocol):
    """One end of a channel, of either implementation."""

    @property
    def got(self) -> bytearray:
        """The bytes that came."""

    @property
    def ended(self) -> bool:
        """Whether the other side sends no more."""

    @property
    def over(self) -> bool:
        """Whether both sides have closed."""

    def take(self) -> list[bytes]:
        """Return the messages to be sent."""

    def hear(self, message: bytes) -> None:
        """Act on a message."""

    def open(self) -> None:
        """Request the channel."""

    def write(self, data: bytes) -> None:
        """Send *data*."""

    def finish(self) -> None:
        """Send no more."""

    def close(self) -> None:
        """Close after sending the queued data."""


class ConchEnd(SSHChannel):
    """Conch's."""

    name = KIND

    def __init__(self) -> None:
        super().__init__()
        self.got = bytearray()
        self.ended = False
        self.over = False
        self._sent: list[bytes] = []
        connection: Any = SSHConnection()
        connection.transport, connection.getChannel, connection.channelClosed = self, self._accept, self._over
        self.connection: SSHConnection = connection

    def _accept(self, kind: bytes, window: int, longest: int, data: bytes) -> SSHChannel:
        self.conn = self.connection
        self.remoteWindowLeft, self.remoteMaxPacket = window, longest
        return self

    def _over(self, channel: SSHChannel) -> None:
        self.over = True

    def sendPacket(self, kind: int, payload: bytes) -> None:
        """See SSHTransportBase."""
        self._sent.append(bytes((kind,)) + payload)

    def take(self) -> list[bytes]:
        """See End."""
        sent, self._sent = self._sent, []
        return sent

    def hear(self, message: bytes) -> None:
        """See End."""
        self.connection.packetReceived(message[0], message[1:])

    def open(self) -> None:
        """See End."""
        self.connection.openChannel(self)

    def dataReceived(self, data: bytes) -> None:
        """See SSHChannel."""
        self.got += data

    def eofReceived(self) -> None:
        """See SSHChannel."""
        self.ended = True

    def finish(self) -> None:
        """See End."""
        self.connection.sendEOF(self)

    def close(self) -> None:
        """See End."""
        self.loseConnection()


class OurEnd:
    """Ours; its receiver pauses now and then."""

    def __init__(self) -> None:
        self._end = MuxEnd(Clock())
        self._recorder = Recorder()
        self.got = self._recorder.got
        self.channel: Channel

    @property
    def ended(self) -> bool:
        """See End."""
        return "ended" in self._recorder.log

    @property
    def over(self) -> bool:
        """See End."""
        return "closed" in self._recorder.log

    def _take_channel(self, channel: Channel) -> None:
        self.channel = channel
        channel.receiver = self._recorder
        channel.resume()

    def take(self) -> list[bytes]:
        """See End."""
        while self._end.turn():
            pass
        return self._end.wire.take()

    def hear(self, message: bytes) -> None:
        """See End."""
        self._end.hear(message)
        while self._end.incoming:
            self._take_channel(self._end.incoming.pop().accept())

    def open(self) -> None:
        """See End."""
        self._end.mux.open(KIND, b"").addCallback(self._take_channel)

    def write(self, data: bytes) -> None:
        """See End."""
        self.channel.send(data)

    def finish(self) -> None:
        """See End."""
        self.channel.finish()

    def close(self) -> None:
        """See End."""
        self.channel.close()


class Way:
    """Carries messages from one end to another as a tunnel does: sealed, framed, cut anywhere."""

    def __init__(self, cipher: bytes, cuts: list[int], *, masked: bool) -> None:
        self._sealer, self._opener = make_sealer(cipher, KEY, IV), make_opener(cipher, KEY, IV)
        self._reader, self._writer = FrameReader(from_client=masked), FrameWriter(to_server=masked)
        self._cuts = cuts
        self._unread = b""

    def carry(self, messages: list[bytes], hear: Callable[[bytes], None]) -> None:
        """Deliver all of *messages*."""
        wire = self._writer.wrap(b"".join(map(self._sealer.seal, messages))) if messages else b""
        for piece in pieces(wire, self._cuts):
            data = bytearray(piece)
            for found in self._reader.feed(memoryview(data)):
                assert not isinstance(found, Control)
                self._unread += data[found[0] : found[1]]
            while len(self._unread) >= 4:
                length = self._opener.wire_length(self._unread, 0)
                if len(self._unread) < length:
                    break
                packet, self._unread = self._unread[:length], self._unread[length:]
                hear(self._opener.open(packet))


class Line:
    """Two ends and the queues between them.

    :ivar sent: data sent by each end.
    :ivar before: what each end had got when it was closed on its own side.
    """

    def __init__(self, near: End, far: End, cipher: bytes, cuts: list[int]) -> None:
        self.ends = (near, far)
        self._ways = (Way(cipher, cuts, masked=True), Way(cipher, cuts, masked=False))
        self.sent = (bytearray(), bytearray())
        self._silent = [False, False]
        self.before: list[bytes | None] = [None, None]
        near.open()
        self.pump()

    def pump(self) -> None:
        """Carry messages until there are none."""
        busy = True
        while busy:
            busy = False
            for side in (0, 1):
                messages = self.ends[side].take()
                busy |= bool(messages)
                self._ways[side].carry(messages, self.ends[1 - side].hear)

    def do(self, side: int, deed: str, size: int) -> None:
        """Let one end act, unless it is no longer allowed to."""
        end = self.ends[side]
        if (self._silent[side] and deed != "close") or end.over or self.before[side] is not None:
            return
        if deed == "write":
            data = PATTERN[len(self.sent[side]) % 256 :][:size]
            self.sent[side].extend(data)
            end.write(data)
            return
        if deed == "pump":
            self.pump()
            return
        self.pump()  # Conch sends an end before what still waits for a window
        if self.ends[side].over:
            return
        self._silent[side] = True
        if deed == "finish":
            end.finish()
        else:
            self.before[side] = bytes(end.got)
            end.close()

    def seen(self, side: int) -> bytes:
        """Return what an end got before it was closed on its own side."""
        before = self.before[side]
        return bytes(self.ends[side].got) if before is None else before


class ChannelTests(SynchronousTestCase):
    """Channels: with either implementation at one end, the other sees the same."""

    deeds = st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(("write", "write", "write", "pump", "finish", "close")),
            st.sampled_from((0, 1, 100, 5000, 32_768, 70_000, 200_000)),
        ),
        max_size=12,
    )

    @settings(max_examples=120, deadline=None)
    @given(deeds, st.sampled_from(CIPHERS), st.lists(st.integers(0, 1 << 20), max_size=4))
    def test_same_as_conch(self, deeds: list[tuple[int, str, int]], cipher: bytes, cuts: list[int]) -> None:
        """Bytes, windows that run out, ends, closes with data pending: as between two ends of Conch's."""
        lines = []
        for near, far in ((ConchEnd(), ConchEnd()), (OurEnd(), ConchEnd()), (ConchEnd(), OurEnd())):
            line = Line(near, far, cipher, cuts)
            for side, deed, size in deeds:
                line.do(side, deed, size)
            line.pump()
            for side in (0, 1):
                if line.before == [None, None]:
                    self.assertEqual(bytes(line.ends[side].got), bytes(line.sent[1 - side]))
            lines.append(line)
        reference, *ours = lines
        for line in ours:
            for side in (0, 1):
                end = line.ends[side]
                self.assertEqual(line.seen(side), reference.seen(side), f"end {side}")
                # a channel of Conch's that still has something to send does not take no for an answer
                if any(line.before[each] is not None for each in (0, 1)) and not getattr(end, "buf", b""):
                    self.assertTrue(end.over, f"end {side}")

    def test_half_close(self) -> None:
        """An end of ours that has received and sent EOF closes; Conch's sees both."""
        ours, conch = OurEnd(), ConchEnd()
        line = Line(ours, conch, CIPHERS[0], [])
        line.do(0, "write", 200_000)
        line.do(0, "finish", 0)
        line.pump()
        self.assertEqual((len(conch.got), conch.ended, conch.over), (200_000, True, False))
        line.do(1, "write", 300_000)
        line.do(1, "finish", 0)
        line.pump()
        self.assertEqual((len(ours.got), ours.ended, ours.over), (300_000, True, True))
        self.assertTrue(conch.over)

    def test_paused(self) -> None:
        """A window that is used up stops Conch, and it goes on when the receiver does."""
        ours, conch = OurEnd(), ConchEnd()
        line = Line(conch, ours, CIPHERS[0], [7])
        ours.channel.pause()
        line.do(0, "write", 400_000)
        line.pump()
        self.assertEqual(len(ours.got), 0)
        self.assertGreater(len(conch.buf), 300_000)
        ours.channel.resume()
        line.pump()
        self.assertEqual((len(ours.got), conch.buf), (400_000, b""))
