"""Tests of `tower.conch.tunnel.tunnel`: two real ends, joined in memory; a pump cuts bytes anywhere."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import Recorder
from tests.fakes.sockets import SocketReactor, socket_pair
from tests.fakes.tunnel_pairs import Refragmenter, TunnelPair
from tower.conch.connection.channel import Channel
from tower.conch.connection.window import ALONE, BASE
from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.kex import OutOfOrder
from tower.conch.transport.limits import Closed, Disconnected, TransportLimits
from tower.conch.transport.packets import BadPacket
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.inlet import EARLY_BYTES, SMALL_PORTION, SMALL_REST
from tower.conch.tunnel.outlet import LONGEST_QUEUE
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import PeerError, TunnelLost
from tower.net.connection import Connection, ConnectionEnded
from tower.websocket.frames import CLOSE, PING, PONG, BadFrame, FrameReader, FrameWriter

BULK = random.Random(6).randbytes(1 << 20)


class StreamTests(SynchronousTestCase):
    """Carries streams."""

    def test_facts(self) -> None:
        """A tunnel has the attributes of its peer, and counts."""
        pair = TunnelPair()
        tunnel = pair.proxy.tunnel
        self.assertEqual((tunnel.name, tunnel.version, tunnel.since), ("alpha", "1", 5.0))
        self.assertEqual((tunnel.peer, tunnel.fingerprint[:7]), ("192.0.2.1:4321", "SHA256:"))
        self.assertEqual((tunnel.outlet.getPeer(), tunnel.outlet.getHost()), (pair.proxy.pipe.getPeer(),) * 2)
        self.assertEqual((tunnel.streams, tunnel.round_trip, tunnel.draining), (0, 0.0, False))
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        self.assertFalse(channel.is_leaving)
        tunnel.draining = True
        self.assertTrue(channel.is_leaving)
        self.assertEqual((tunnel.streams, pair.agent.tunnel.streams), (1, 1))
        before = tunnel.bytes_out
        channel.send(BULK[:5000])
        pair.pump()
        self.assertEqual(far.got, BULK[:5000])
        self.assertLess(5000, tunnel.bytes_out - before)
        self.assertLess(tunnel.bytes_out - before, 5100)
        self.assertEqual(tunnel.bytes_out, pair.agent.tunnel.bytes_in)

    def test_handshake_cut_anywhere(self) -> None:
        """The handshake, and the change from the slow parser to the fast one, do not depend on cuts."""
        for cut in ((1,), (2, 3), (7,), (40, 1), (1000, 3)):
            for frames in (True, False):
                near, far = Recorder(), Recorder()
                pair = TunnelPair(cut=cut, frames=frames)
                channel, _ = pair.channel(near, far)
                channel.send(b"hello")
                pair.pump()
                self.assertEqual(far.got, b"hello")

    def test_right_behind_the_handshake(self) -> None:
        """Data received in one piece with the end of the handshake is not lost."""
        pair = TunnelPair(start=False)
        results: list[Channel] = []
        pair.agent.ssh.ready.addCallback(
            lambda _: pair.agent.tunnel.open("early").addCallback(results.append)
        )
        for end in pair.ends:
            end.tunnel.start()
        pair.pump()
        pair.proxy.incoming.pop().accept()
        pair.pump()
        self.assertEqual(len(results), 1)

    def test_opened_up_later(self) -> None:
        """If it is opened up later, a packet received in part until then is not lost."""
        pair = TunnelPair(start=False)
        pair.proxy.late = []
        for end in pair.ends:
            end.tunnel.start()
        pair.pump()
        wire = pair.agent.ssh.sealer.seal(b"\x5a\0\0\0\6stream\0\0\0\0\0\1\0\0\0\1\0\0")
        pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(wire)
        pair.agent.pipe.carry(30)
        pair.proxy.open_up(pair.proxy.late.pop())
        pair.pump()
        self.assertEqual(len(pair.proxy.incoming), 1)

    def test_leftover(self) -> None:
        """Bytes received after the WebSocket handshake are the beginning."""
        pair = TunnelPair(start=False)
        pair.agent.tunnel.start()
        pair.clock.advance(0)
        early = bytes(pair.agent.pipe.waiting)
        pair.agent.pipe.waiting.clear()
        self.assertIn(pair.agent.pipe.send(b""), (True, False))
        pair.proxy.tunnel.start(early)
        pair.pump()
        self.assertTrue(pair.proxy.open)

    @settings(max_examples=30, deadline=None)
    @given(
        st.sampled_from(CIPHERS),
        st.booleans(),
        st.lists(st.integers(1, 3000) | st.integers(1, 400_000), min_size=1, max_size=6),
        st.sampled_from((None, 1, 125, 126, 1024, 5000)),
        st.lists(st.sampled_from((0, 1, 100, 4096, 4097, 9000, 70_000, 300_000)), max_size=5),
    )
    def test_any_cut(
        self, cipher: bytes, frames: bool, cuts: list[int], fragment: int | None, sizes: list[int]
    ) -> None:
        """Bytes both ways do not depend on cuts, frames, fragments and pings between them, or the cipher."""
        pair = TunnelPair(cipher=cipher, frames=frames)
        recorders = Recorder(), Recorder()
        ends = pair.channel(*recorders)
        pair.cut = tuple(cuts)
        longest = 300_000 if min(cuts) >= 30 else 9000
        if fragment is not None and frames:
            if fragment < 1000:
                longest = 9000 if min(cuts) >= 30 else 100  # or it takes long
            pair.agent.pipe.change = Refragmenter(fragment, masked=True)
            pair.proxy.pipe.change = Refragmenter(fragment, masked=False)
        sizes = [min(size, longest) for size in sizes]
        sent = b"".join(BULK[size : 2 * size] for size in sizes)
        for channel in ends:
            for size in sizes:
                channel.send(BULK[size : 2 * size])
            channel.finish()
        pair.pump(limit=2_000_000)  # one byte a frame, pings between, 30 bytes a turn: that is many turns
        for recorder in recorders:
            self.assertTrue(recorder.got == sent)
            self.assertEqual(recorder.log[-2:], ["ended", "closed"])
        for end in pair.ends:
            self.assertEqual((end.lost, end.tunnel.streams, end.budget.lent), (None, 0, 0))

    def test_many_packets_in_a_frame(self) -> None:
        """Small packets of one turn leave in one frame."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        for _ in range(20):
            channel.send(b"x" * 50)
        self.assertEqual(len(pair.proxy.pipe.waiting), 0)
        pair.clock.advance(0)
        found = FrameReader(from_client=False).feed(memoryview(bytearray(pair.proxy.pipe.waiting)))
        self.assertEqual(len(found), 1)
        pair.pump()
        self.assertEqual(far.got, b"x" * 1000)

    def test_batch(self) -> None:
        """When there are many small ones, they do not wait for the turn's end."""
        pair = TunnelPair()
        recorders = [Recorder() for _ in range(3)]
        channels = [pair.channel(Recorder(), far)[0] for far in recorders]
        for channel in channels:
            for _ in range(15):
                channel.send(b"x" * 4000)
        self.assertGreater(len(pair.proxy.pipe.waiting), 64_000)
        pair.pump()
        self.assertEqual([len(far.got) for far in recorders], [60_000] * 3)

    def test_order(self) -> None:
        """Small and large packets, and the end, stay in order."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        expected = b""
        for size in (10, 30_000, 5000, 10, 4096, 4097, 9000, 1):
            channel.send(BULK[:size])
            expected += BULK[:size]
        channel.finish()
        pair.pump()
        self.assertEqual((far.got, far.log), (expected, ["received", "ended"]))

    def test_lease(self) -> None:
        """A lease is sealed from where it lies, small or large."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        expected = b""
        for size in (1, 100, 8000, 20_000, 30_000):
            lease = channel.lease()
            assert lease is not None
            lease[:size] = BULK[:size]
            channel.commit(size)
            expected += BULK[:size]
        pair.pump()
        self.assertTrue(far.got == expected)


class Sizes(Recorder):
    """Remembers in what pieces bytes came, too."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def received(self, data: memoryview) -> None:
        """See `tower.net.pipes.Receiver`."""
        self.sizes.append(len(data))
        super().received(data)


def wide(near: Recorder, far: Recorder) -> tuple[TunnelPair, Channel]:
    """Return a tunnel and a channel from the proxy to the agent whose windows have grown."""
    pair = TunnelPair()
    channel, _ = pair.channel(near, far)
    channel.send(BULK)
    pair.pump()
    far.got.clear()
    far.log.clear()
    return pair, channel


class GatheringTests(SynchronousTestCase):
    """Packets of a size that old agents take leave together."""

    def test_one_frame(self) -> None:
        """Those of one turn leave in one frame, with the small ones before, between and behind them."""
        far = Sizes()
        pair, channel = wide(Recorder(), far)
        expected = b""
        for size in (100, 30_000, 32_768, 7, 30_000, 5000):
            channel.send(BULK[:size])
            expected += BULK[:size]
        self.assertEqual(len(pair.proxy.pipe.waiting), 0)
        pair.clock.advance(0)
        wire = pair.proxy.pipe.waiting
        [piece] = FrameReader(from_client=False).feed(memoryview(bytearray(wire)))
        self.assertEqual(piece, (4 if len(wire) < 65_536 else 10, len(wire)))
        pair.pump()
        self.assertTrue(far.got == expected)

    def test_enough(self) -> None:
        """When they are as long as the longest packet they are sent at once; a large packet never waits."""
        pair, channel = wide(Recorder(), Recorder())
        pair.proxy.pipe.room = 1 << 20
        for _ in range(10):
            channel.send(BULK[:30_000])
        self.assertGreater(len(pair.proxy.pipe.waiting), 256 * 1024)
        self.assertLess(len(pair.proxy.pipe.waiting), 300_000)
        channel.send(BULK[:60_000])
        self.assertGreater(len(pair.proxy.pipe.waiting), 360_000)
        pair.clock.advance(0)
        self.assertLess(len(pair.proxy.pipe.waiting), 361_000)

    def test_congested(self) -> None:
        """A full connection stops what would be gathered."""
        pair, channel = wide(Recorder(), Recorder())
        pair.proxy.pipe.room = 1000
        self.assertTrue(channel.send(BULK[:30_000]))
        pair.clock.advance(0)
        self.assertFalse(channel.send(BULK[:30_000]))
        self.assertEqual(channel.queued, 30_000)

    def test_one_tunnel_at_a_time(self) -> None:
        """While one tunnel gathers, another one's packets leave at once; none is lost when the first is."""
        one, two = Recorder(), Recorder()
        first, channel = wide(Recorder(), one)
        second, other = wide(Recorder(), two)
        channel.send(BULK[:30_000])
        other.send(BULK[:20_000])
        self.assertEqual(len(first.proxy.pipe.waiting), 0)
        self.assertGreater(len(second.proxy.pipe.waiting), 20_000)
        channel.send(BULK[30_000:60_000])
        first.pump()
        second.pump()
        self.assertTrue(one.got == BULK[:60_000])
        self.assertTrue(two.got == BULK[:20_000])
        channel.send(BULK[:30_000])
        first.proxy.pipe.lose()
        other.send(BULK[:30_000])
        self.assertEqual(len(second.proxy.pipe.waiting), 0)
        second.pump()
        self.assertTrue(two.got == BULK[:20_000] + BULK[:30_000])

    def test_close(self) -> None:
        """Gathered packets leave before the tunnel is closed, and before it changes keys."""
        far = Recorder()
        pair, channel = wide(Recorder(), far)
        channel.send(BULK[:30_000])
        pair.proxy.ssh.sendKexInit()
        channel.send(BULK[30_000:50_000])
        pair.pump()
        channel.send(BULK[50_000:80_000])
        pair.proxy.tunnel.close("enough")
        pair.pump()
        self.assertTrue(far.got == BULK[:80_000])
        self.assertIn("enough", str(pair.agent.lost))


class JoiningTests(SynchronousTestCase):
    """Data of packets in a row is delivered as one piece."""

    def test_joined(self) -> None:
        """It is, up to a size, and the end behind it comes in its turn."""
        far = Sizes()
        pair, channel = wide(Recorder(), far)
        far.sizes.clear()
        for start in range(0, 240_000, 30_000):
            channel.send(BULK[start : start + 30_000])
        channel.finish()
        pair.pump()
        self.assertTrue(far.got == BULK[:240_000])
        self.assertEqual((far.sizes, far.log[-1]), ([210_000, 30_000], "ended"))

    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(CIPHERS),
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from((1, 9, 100, 16_374, 20_000, 30_000, 50_000))),
            max_size=16,
        ),
        st.lists(st.integers(1, 400_000), min_size=1, max_size=3),
    )
    def test_any_order(self, cipher: bytes, script: list[tuple[int, int]], cuts: list[int]) -> None:
        """Channels get their own bytes, in any order of packets, cut at any position."""
        pair = TunnelPair(cipher=cipher)
        recorders = [Recorder() for _ in range(3)]
        channels = [pair.channel(Recorder(), far)[0] for far in recorders]
        expected = [b"", b"", b""]
        for number, size in script:
            channels[number].send(BULK[size : 2 * size])
            expected[number] += BULK[size : 2 * size]
        channels[1].finish()
        channels[2].close()
        if min(cuts) > 100:
            pair.cut = tuple(cuts)
        pair.pump()
        self.assertTrue([far.got for far in recorders] == expected)
        self.assertEqual(recorders[1].log[-1], "ended")
        self.assertEqual(recorders[2].log[-1], "closed")
        self.assertIsNone(pair.agent.lost)

    def test_wrong_behind(self) -> None:
        """Packets that follow are checked as strictly as single ones."""
        for wrong, why in (
            (b"\x5e\0\0\0\0\0\0\0\5long", "differs from its length field"),
            (b"\x5e\0\0\0\x63\0\0\0\4long", "not open"),
            (b"\x5e\0\0\0\0\0\0", "without a length"),
            (b"\x5e", "message 94 of 1 B"),
            (b"\x61\0\0\0\x63", "not open"),
            (b"\x50", "shorter than its fields"),
        ):
            near = Recorder()
            pair = TunnelPair()
            _, channel = pair.channel(near, Recorder())
            channel.send(BULK[:20_000])
            channel.send(BULK[:20_000])
            pair.agent.tunnel.outlet.send(wrong)
            pair.agent.tunnel.outlet.send(b"\x5e\0\0\0\0\0\0\x50\0" + bytes(0x5000))
            pair.pump()
            self.assertTrue(near.got[:40_000] == BULK[:20_000] * 2)
            self.assertIn(why, str(pair.proxy.lost))
            self.assertEqual(len(near.got), 40_000)


class FlowTests(SynchronousTestCase):
    """Stops and goes on."""

    def test_full_pipe(self) -> None:
        """A full connection stops channels until it has room."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        pair.proxy.pipe.room = 1000
        self.assertFalse(channel.send(BULK))
        self.assertTrue(pair.proxy.tunnel.outlet.congested)
        self.assertLess(len(pair.proxy.pipe.waiting), BASE + 1000)
        pair.pump()
        self.assertTrue(far.got == BULK)
        self.assertEqual(near.log, ["drained"])
        self.assertFalse(pair.proxy.tunnel.outlet.congested)

    def test_paused_channel(self) -> None:
        """A paused channel holds no more than its window and stops no other channel."""
        pair = TunnelPair()
        slow, fast = Recorder(), Recorder()
        first, there = pair.channel(Recorder(), slow)
        second, _ = pair.channel(Recorder(), fast)
        first.send(BULK[:BASE])
        pair.pump()
        there.pause()
        first.send(BULK)
        second.send(BULK)
        pair.pump()
        self.assertTrue(fast.got == BULK)
        self.assertLessEqual(there.bytes_in - len(slow.got), ALONE)
        there.resume()
        pair.pump()
        self.assertTrue(slow.got == BULK[:BASE] + BULK)

    def test_peer_does_not_read(self) -> None:
        """A peer that requests answers without reading them is disconnected; none of them is kept."""
        pair = TunnelPair()
        pair.agent.pipe.paused = True
        pair.proxy.pipe.room = 100_000
        sealer, writer = pair.agent.ssh.sealer, FrameWriter(to_server=True)
        rounds = 0
        while pair.proxy.lost is None:
            opening = b"\x5a\0\0\0\6stream\0\0\0\0\0\1\0\0\0\1\0\0"
            pair.agent.pipe.waiting += writer.wrap(sealer.seal(opening))
            pair.agent.pipe.carry(1 << 20)
            for incoming in pair.proxy.incoming:
                incoming.refuse("not-allowed", "x" * 900)
            pair.proxy.incoming.clear()
            pair.clock.advance(0)
            rounds += 1
        self.assertIn("does not read", str(pair.proxy.lost))
        self.assertLess(rounds * 900, LONGEST_QUEUE + 500_000)
        self.assertTrue(pair.proxy.pipe.gone)

    def test_pings_are_answers_too(self) -> None:
        """A flood of pings whose pongs are not read ends as well."""
        pair = TunnelPair()
        pair.agent.pipe.paused = True
        ping = FrameWriter(to_server=True).wrap(b"x" * 125, PING) * 1000
        for _ in range(100):
            pair.agent.pipe.waiting += ping
            while pair.agent.pipe.carry(1 << 20):
                pair.clock.advance(0)
        self.assertIn("does not read", str(pair.proxy.lost))

    def test_small_pieces_in_small_portions(self) -> None:
        """A peer that sends many tiny pieces is read a little at a time, so that others get their turn."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        _, channel = pair.channel(near, far)

        def portion() -> int:
            size = len(pair.proxy.tunnel.inlet.buffer())
            pair.proxy.tunnel.inlet.filled(0)
            return size

        wrap = FrameWriter(to_server=True).wrap
        floods: list[Callable[[], bytes]] = [
            lambda: wrap(b"") * 10_000,
            lambda: wrap(b"", PONG) * 10_000,
            lambda: wrap(b"".join(pair.agent.ssh.sealer.seal(b"\x02" + bytes(20)) for _ in range(1000))),
        ]
        for flood in floods:
            channel.send(BULK)
            pair.pump()
            self.assertGreater(portion(), SMALL_PORTION)
            pair.agent.pipe.waiting += flood()
            pair.pump()
            self.assertEqual(portion(), SMALL_PORTION)
        self.assertEqual(near.got, BULK * 3)
        self.assertIsNone(pair.proxy.lost)

    def test_little_before_the_hello(self) -> None:
        """Bytes that are not payload count as well before the peer is authenticated."""
        for frame in (FrameWriter(to_server=True).wrap(b""), FrameWriter(to_server=True).wrap(b"", PING)):
            pair = TunnelPair(start=False)
            pair.proxy.tunnel.start()
            pair.agent.pipe.waiting += frame * (EARLY_BYTES // len(frame) + 5000)
            while pair.agent.pipe.carry(1 << 20):
                pair.clock.advance(0)
            pair.agent.pipe.receiver = Recorder()
            pair.proxy.pipe.lose()
            self.assertIn("too much before the hello", str(pair.proxy.lost))


class MemoryTests(SynchronousTestCase):
    """Keeps little."""

    def test_idle(self) -> None:
        """A tunnel keeps a buffer only while it holds part of a large packet."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        tunnel = pair.agent.tunnel
        channel.send(BULK[:60_000])
        pair.clock.advance(0)
        size = len(pair.proxy.pipe.waiting)
        pair.proxy.pipe.carry(SMALL_REST // 2)
        self.assertIsNone(tunnel.inlet._buffer)
        self.assertLessEqual(len(tunnel.inlet._rest), SMALL_REST)
        pair.proxy.pipe.carry(size - SMALL_REST)
        self.assertIsNotNone(tunnel.inlet._buffer)
        pair.pump()
        self.assertEqual(far.got, BULK[:60_000])
        for end in pair.ends:
            self.assertEqual(
                (end.tunnel.inlet._buffer, end.tunnel.inlet._rest, end.tunnel.outlet._out), (None, b"", [])
            )

    def test_nothing_came(self) -> None:
        """An unused buffer is given back."""
        pair = TunnelPair()
        pair.proxy.tunnel.inlet.buffer()
        pair.proxy.tunnel.inlet.filled(0)
        self.assertIsNone(pair.proxy.tunnel.inlet._buffer)

    def test_freed(self) -> None:
        """A closed tunnel is freed without the garbage collector."""
        gc.disable()
        self.addCleanup(gc.enable)
        pair = TunnelPair()
        pair.channel(Recorder(), Recorder())[0].send(BULK[:60_000])
        for end in pair.ends:
            end.tunnel.on_change = partial(print, end.tunnel)
        pair.proxy.pipe.lose()
        tunnels = []
        for end in pair.ends:
            del end.pipe.receiver  # a real pipe lets go of it
            tunnels.append(weakref.ref(end.tunnel))
        del pair, end
        self.assertEqual([tunnel() for tunnel in tunnels], [None, None])

    def test_gone(self) -> None:
        """A closed tunnel does not keep a buffer, from any state."""
        pair = TunnelPair()
        channel, _ = pair.channel(Recorder(), Recorder())
        channel.send(BULK[:60_000])
        pair.clock.advance(0)
        pair.proxy.pipe.carry(50_000)
        pair.proxy.pipe.lose()
        for end in pair.ends:
            self.assertIsNone(end.tunnel.inlet._buffer)
            self.assertIsInstance(end.lost, ConnectionError)
            self.assertEqual(end.tunnel.streams, 0)
        self.assertEqual(pair.clock.getDelayedCalls(), [])


class EndTests(SynchronousTestCase):
    """Ends, in good order or not."""

    def test_close(self) -> None:
        """Closing sends the reason to the peer and ends every stream, on both sides."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, _ = pair.channel(near, far)
        waiting = pair.proxy.tunnel.open("other")
        channel.send(b"last words")
        pair.proxy.tunnel.close("because")
        self.failureResultOf(pair.proxy.tunnel.open("kubernetes"), TunnelLost)
        pair.pump()
        self.assertEqual(far.got, b"last words")
        self.assertIsInstance(pair.proxy.lost, Closed)
        self.assertIsInstance(pair.agent.lost, Disconnected)
        self.assertIn("because", str(pair.agent.lost))
        self.assertEqual((near.log, far.log), (["closed"], ["received", "closed"]))
        self.failureResultOf(waiting, TunnelLost)
        self.failureResultOf(pair.agent.tunnel.open("kubernetes"), TunnelLost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])
        self.assertFalse(channel.send(b"x"))

    def test_before_it_is_open(self) -> None:
        """A tunnel that is not open yet has no streams."""
        pair = TunnelPair(start=False)
        self.failureResultOf(pair.proxy.tunnel.open("kubernetes"), TunnelLost)
        self.assertEqual(pair.proxy.tunnel.streams, 0)

    def test_drain(self) -> None:
        """The peer is notified that we will close, and so is its observer, once."""
        pair = TunnelPair()
        heard: list[bool] = []
        pair.proxy.tunnel.on_change = lambda: heard.append(pair.proxy.tunnel.draining)
        for _ in range(3):
            pair.agent.tunnel.drain()
            pair.pump()
        self.assertEqual(heard, [True])

    def test_websocket_close(self) -> None:
        """A close frame is answered with one, and that is the end."""
        pair = TunnelPair()
        channel, _ = pair.channel(Recorder(), Recorder())
        pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(b"\x03\xe8", CLOSE)
        pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(b"rubbish behind it")
        pair.agent.pipe.carry(1 << 20)
        self.assertEqual(bytes(pair.proxy.pipe.waiting), b"\x88\x02\x03\xe8")
        pair.pump()
        self.assertIsNotNone(pair.proxy.lost)
        self.assertTrue(channel.is_closed)

    def test_ping(self) -> None:
        """Pings are answered, pongs ignored."""
        pair = TunnelPair()
        writer = FrameWriter(to_server=True)
        pair.agent.pipe.waiting += writer.wrap(b"?", PING) + writer.wrap(b"!", PONG)
        pair.agent.pipe.carry(3)
        pair.agent.pipe.carry(1 << 20)
        self.assertEqual(bytes(pair.proxy.pipe.waiting), b"\x8a\x01?")

    def test_peers_end(self) -> None:
        """A half-closed connection closes the tunnel."""
        pair = TunnelPair()
        pair.proxy.tunnel.inlet.ended()
        pair.pump()
        self.assertIsNotNone(pair.proxy.lost)

    def test_abort(self) -> None:
        """Abort is now."""
        pair = TunnelPair()
        pair.proxy.tunnel.abort()
        self.assertIsNotNone(pair.proxy.lost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_late_start(self) -> None:
        """A tunnel on a connection that broke just before the start is lost, not stuck."""
        pair = TunnelPair(start=False)
        reactor = SocketReactor()
        near, far = socket_pair()
        connection = Connection(reactor, near)
        connection.abort()
        far.close()
        ssh: Any = pair.proxy.ssh
        tunnel = SSHTunnel(reactor, connection, ssh, UNFRAMED, UNFRAMED)
        tunnel.start()
        reactor.run()
        self.assertIsInstance(self.successResultOf(tunnel.lost), ConnectionEnded)


class HostileTests(SynchronousTestCase):
    """Drops peers that break a protocol; the others notice nothing."""

    def assert_dropped(self, pair: TunnelPair, kind: type[Exception]) -> None:
        """The proxy closed the connection to the agent, with this reason."""
        pair.pump()
        self.assertIsInstance(pair.proxy.lost, kind)
        self.assertIsInstance(pair.agent.lost, Disconnected)
        for end in pair.ends:
            self.assertIsNone(end.tunnel.inlet._buffer)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_bad_frame(self) -> None:
        """Frames must be masked towards a server."""
        pair = TunnelPair()
        pair.agent.pipe.waiting += FrameWriter(to_server=False).wrap(b"x")
        self.assert_dropped(pair, BadFrame)

    def test_tampered_packet(self) -> None:
        """A packet that is not authentic ends the tunnel, with all ciphers."""
        for cipher in CIPHERS:
            pair = TunnelPair(cipher=cipher)
            wire = bytearray(pair.agent.ssh.sealer.seal(b"\x5aabcd" * 100))
            wire[-1] ^= 1
            pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(bytes(wire))
            self.assert_dropped(pair, BadPacket)

    def test_huge_packet(self) -> None:
        """A packet too long to be one is refused on its length."""
        for cipher in CIPHERS[:2]:
            pair = TunnelPair(cipher=cipher)
            pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(b"\x7f\xff\xff\xf0")
            self.assert_dropped(pair, PeerError)
            self.assertIn("exceeds", str(pair.proxy.lost))

    def test_nothing_after_the_end(self) -> None:
        """Messages in one piece after the message that ended it are ignored."""
        for fatal in (b"\x5eabcdefgh", b"\x01\0\0\0\2\0\0\0\0\0\0\0\0"):
            pair = TunnelPair()
            sealer = pair.agent.ssh.sealer
            opening = b"\x5a\0\0\0\6stream\0\0\0\0\0\1\0\0\0\1\0\0"
            wire = sealer.seal(opening) + sealer.seal(fatal) + sealer.seal(opening)
            pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(wire)
            pair.agent.pipe.carry(1 << 20)
            self.assertEqual(len(pair.proxy.incoming), 1)
            pair.pump()
            self.assertIsNotNone(pair.proxy.lost)

    def test_unknown_message(self) -> None:
        """Unknown messages are answered as RFC 4253 requires, not taken for channel data."""
        pair = TunnelPair()
        sealer = pair.agent.ssh.sealer
        pair.agent.pipe.waiting += FrameWriter(to_server=True).wrap(sealer.seal(b"\xc8hello"))
        pair.pump()
        self.assertEqual((pair.proxy.lost, pair.agent.lost), (None, None))

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5), st.integers(1, 50))
    def test_any_messages(self, payloads: list[bytes], cut: int) -> None:
        """No authenticated message can do worse than end its tunnel."""
        pair = TunnelPair()
        pair.cut = (cut,)
        sealer, writer = pair.agent.ssh.sealer, FrameWriter(to_server=True)
        for payload in payloads:
            pair.agent.pipe.waiting += writer.wrap(sealer.seal(payload))
        pair.pump()
        for end in pair.ends:
            end.pipe.lose()
            self.assertEqual((end.tunnel.inlet._buffer, end.tunnel.streams), (None, 0))


class RekeyTests(SynchronousTestCase):
    """Changes keys in the middle of everything."""

    @settings(max_examples=20, deadline=None)
    @given(
        st.sampled_from(CIPHERS),
        st.lists(st.integers(1500, 300_000), min_size=1, max_size=4),
        st.sampled_from((30_000, 100_000, 190_000)),
        st.integers(100, 300_000),
    )
    def test_in_bulk(self, cipher: bytes, cuts: list[int], every: int, room: int) -> None:
        """Keys change repeatedly under bulk both ways, by either side or both; no byte is lost."""
        pair = TunnelPair(cipher=cipher, limits=TransportLimits(rekey_bytes=every))
        recorders = Recorder(), Recorder()
        ends = pair.channel(*recorders)
        pair.cut = tuple(cuts)
        sealers = {end: {id(end.ssh.sealer): end.ssh.sealer} for end in pair.ends}
        for end in pair.ends:
            end.pipe.room = room

            def note(end: Any = end, before: Any = end.ssh.on_keys) -> None:
                sealers[end][id(end.ssh.sealer)] = end.ssh.sealer
                before()

            end.ssh.on_keys = note
        for channel in ends:
            channel.send(BULK[:400_000])
            channel.finish()
        pair.pump()
        for end, recorder in zip(pair.ends, recorders, strict=True):
            self.assertTrue(recorder.got == BULK[:400_000])
            self.assertEqual(recorder.log[-2:], ["ended", "closed"])
            self.assertGreaterEqual(len(sealers[end]), 2)
            self.assertIsNone(end.lost)

    def test_waits_for_keys(self) -> None:
        """During the exchange data waits, and what is small is held back; both go on after it."""
        pair = TunnelPair()
        near, far = Recorder(), Recorder()
        channel, other = pair.channel(near, far)
        pair.proxy.ssh.start_rekey()
        self.assertTrue(pair.proxy.tunnel.outlet.congested)
        self.assertIsNone(channel.lease())
        self.assertFalse(channel.send(b"data"))
        opening = pair.proxy.tunnel.open("other")
        channel.finish()
        pair.pump()
        self.assertFalse(pair.proxy.tunnel.outlet.congested)
        self.assertEqual((far.got, far.log), (b"data", ["received", "ended"]))
        pair.agent.incoming.pop().accept()
        pair.pump()
        self.successResultOf(opening)
        other.send(b"answer")
        pair.pump()
        self.assertEqual(near.got, b"answer")

    def test_channels_wait_for_the_peers_keys(self) -> None:
        """Between a peer's KEXINIT and its NEWKEYS nothing about channels may come (RFC 4253 section 7.1)."""
        for kind in (90, 94, 97):
            pair = TunnelPair()
            near, far = Recorder(), Recorder()
            channel, _ = pair.channel(near, far)
            forbidden = bytes((kind,)) + channel.local.to_bytes(4, "big") + b"\0\0\0\1x"
            pair.agent.ssh.start_rekey()
            pair.agent.tunnel.outlet.write(pair.agent.ssh.sealer.seal(forbidden))
            pair.pump()
            self.assertIsInstance(pair.proxy.lost, OutOfOrder)
            self.assertEqual((near.got, near.log), (b"", ["closed"]))

    def test_full_while_keys_change(self) -> None:
        """Room and keys, in either order, wake waiting channels."""
        for room_first in (True, False):
            pair = TunnelPair()
            near, far = Recorder(), Recorder()
            channel, _ = pair.channel(near, far)
            pair.proxy.pipe.room = 10
            channel.send(b"x" * 9000)  # and the pipe is full
            pair.proxy.ssh.start_rekey()
            self.assertFalse(channel.send(b"y"))
            if room_first:
                pair.proxy.pipe.room = 1 << 20
                pair.pump()
            else:
                pair.pump()
                pair.proxy.pipe.room = 1 << 20
                pair.pump()
            self.assertEqual(far.got, b"x" * 9000 + b"y")
            self.assertEqual(near.log, ["drained"])


class TunnelMachine(RuleBasedStateMachine):
    """Two channels in one tunnel; anything in any order, with bytes in transit at any time."""

    @initialize(cipher=st.sampled_from(CIPHERS), frames=st.booleans())
    def open(self, cipher: bytes, frames: bool) -> None:
        """Open tunnel and channels."""
        self.pair = TunnelPair(cipher=cipher, frames=frames)
        self.sent: dict[Channel, bytearray] = {}
        self.recorders: dict[Channel, Recorder] = {}
        self.far: dict[Channel, Channel] = {}
        self.owed: set[Channel] = set()
        self.finished: set[Channel] = set()
        for _ in range(2):
            near, far = Recorder(), Recorder()
            ends = self.pair.channel(near, far)
            for channel, other, recorder in ((*ends, near), (*ends[::-1], far)):
                self.sent[channel] = bytearray()
                self.recorders[channel] = recorder
                self.far[channel] = other
                recorder.on["drained"] = partial(self.owed.discard, channel)
        self.channels = list(self.sent)

    @rule(which=st.integers(0, 3), size=st.sampled_from((1, 500, 8000, 40_000, BASE, 200_000)))
    def send(self, which: int, size: int) -> None:
        """Send something."""
        channel = self.channels[which]
        if channel not in self.finished:
            at = len(self.sent[channel]) % 1000
            self.sent[channel] += BULK[at : at + size]
            if not channel.send(BULK[at : at + size]):
                self.owed.add(channel)

    @rule(which=st.integers(0, 3), size=st.integers(1, 70_000))
    def lease(self, which: int, size: int) -> None:
        """Send something from where it is sealed."""
        channel = self.channels[which]
        if channel in self.finished:
            return
        room = channel.lease()
        if room is None:
            self.owed.add(channel)
            return
        size = min(size, len(room))
        room[:size] = BULK[:size]
        self.sent[channel] += BULK[:size]
        channel.commit(size)

    @rule(which=st.integers(0, 3), what=st.sampled_from(("pause", "resume", "resume")))
    def act(self, which: int, what: str) -> None:
        """Stop or go on."""
        getattr(self.channels[which], what)()

    @rule(which=st.integers(0, 3), really=st.integers(0, 4))
    def finish(self, which: int, really: int) -> None:
        """End a direction, now and then."""
        if not really:
            self.channels[which].finish()
            self.finished.add(self.channels[which])

    @rule(who=st.booleans())
    def rekey(self, who: bool) -> None:
        """Begin to change keys."""
        self.pair.ends[who].ssh.start_rekey()

    @rule(who=st.booleans(), room=st.sampled_from((0, 5000, 300_000)))
    def make_room(self, who: bool, room: int) -> None:
        """Change how much a connection takes."""
        self.pair.ends[who].pipe.room = room

    @rule(who=st.booleans(), size=st.sampled_from((1, 50, 3000, 60_000, 1 << 20)), times=st.integers(1, 5))
    def carry(self, who: bool, size: int, times: int) -> None:
        """Take bytes from one end to the other."""
        for _ in range(times):
            self.pair.ends[who].pipe.carry(size)

    @rule(seconds=st.sampled_from((0.0, 0.001, 1.5)))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.pair.clock.advance(seconds)

    def teardown(self) -> None:
        """Let everything flow: all bytes arrive, and no channel waits for ever."""
        if not hasattr(self, "channels"):
            return
        for channel in self.channels:
            channel.resume()
        for end in self.pair.ends:
            end.pipe.room = 1 << 20
        self.pair.pump()
        assert [end.lost for end in self.pair.ends] == [None, None]
        for channel in self.channels:
            far = self.far[channel]
            assert self.recorders[far].got == self.sent[channel]
            assert ("ended" in self.recorders[far].log) == (channel in self.finished)
            assert channel not in self.owed or channel in self.finished
            assert not channel.is_waiting
            closed = {channel, far} <= self.finished
            assert (self.recorders[channel].log[-1:] == ["closed"]) == closed
        for end in self.pair.ends:
            assert end.tunnel.inlet._buffer is None
            assert not end.tunnel.outlet.congested
        self.pair.proxy.pipe.lose()
        assert self.pair.clock.getDelayedCalls() == []


class AnyOrderTests(SynchronousTestCase):
    """Loses no byte and leaves no channel waiting."""

    def test_machine(self) -> None:
        """In any order of events no byte is lost or doubled and no channel waits for ever."""
        run_state_machine_as_test(
            TunnelMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
        )
