"""Tests of `tower.conch.connection.channel`: both ends of a channel in memory."""

from __future__ import annotations

import random
import sys
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.muxes import MuxEnd, MuxPair
from tests.fakes.receivers import Recorder
from tower.conch.connection.channel import Channel, ChannelEnded
from tower.conch.connection.fairness import MIXED, SHARED_FOR, SHARED_PACKET
from tower.conch.connection.messages import (
    ADJUST,
    ALWAYS_FITS,
    CLOSE,
    DATA,
    END,
    LONGEST_DATA,
    OPEN,
    BadSequence,
)
from tower.conch.connection.window import ALONE, BASE, SHARED, Window, WindowOverrun
from tower.errors import PeerError, TunnelLost

BULK = random.Random(4).randbytes(2 << 20)


def kinds(messages: list[bytes]) -> list[int]:
    """Return the types of *messages*."""
    return [message[0] for message in messages]


def data(channel: int, payload: bytes) -> bytes:
    """Return a DATA message for our channel of that number."""
    return bytes((DATA,)) + channel.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


def number(kind: int, channel: int, *more: int) -> bytes:
    """Return a message of numbers only."""
    return bytes((kind,)) + b"".join(each.to_bytes(4, "big") for each in (channel, *more))


class Asked(Window):
    """A fake window that records its limits.

    :ivar near: the limit of each call.
    """

    def __init__(self) -> None:
        self.counted = 0.0
        self.near: list[int] = []

    def renew(self, now: float, round_trip: float, near: int) -> int:
        """Record the limit, and grant nothing."""
        self.near.append(near)
        return 0


class ChannelTestCase(SynchronousTestCase):
    """Provides a channel between two muxes."""

    def setUp(self) -> None:
        """Open it."""
        self.pair = MuxPair()
        self.near, self.far = Recorder(), Recorder()
        self.channel, self.other = self.pair.open(self.near, self.far)

    def assert_free(self) -> None:
        """Nothing is left of the channel."""
        for end in (self.pair.near, self.pair.far):
            self.assertEqual((end.mux.channels, end.budget.lent), ({}, 0))
        for recorder in (self.near, self.far):
            self.assertEqual((recorder.log.count("closed"), recorder.log[-1]), (1, "closed"))


class SendingTests(ChannelTestCase):
    """Sends within window, packet size and what the tunnel takes."""

    def test_small(self) -> None:
        """Anything like bytes is sent at once."""
        for payload in (b"abc", bytearray(b"def"), memoryview(b"xghix")[1:4]):
            self.assertTrue(self.channel.send(payload))
        self.pair.pump()
        self.assertEqual(self.far.got, b"abcdefghi")
        self.assertEqual((self.channel.bytes_out, self.other.bytes_in), (9, 9))

    def test_nothing(self) -> None:
        """An empty send makes no packet, and returns whether there is room."""
        self.assertTrue(self.channel.send(b""))
        self.assertEqual(self.pair.near.wire.take(), [])
        self.channel.send(bytes(BASE + 1))
        self.assertFalse(self.channel.send(b""))

    def test_bulk(self) -> None:
        """Data beyond the window is sent as the peer consumes; drained is called once, after all of it."""
        self.assertFalse(self.channel.send(BULK))
        self.assertFalse(self.channel.send(b"tail"))
        self.assertEqual(self.channel.queued, len(BULK) + 4 - BASE)
        self.assertEqual(self.near.log, [])
        self.pair.pump()
        self.assertTrue(self.far.got == BULK + b"tail")
        self.assertEqual((self.near.log, self.channel.queued), (["drained"], 0))

    def sent_packets(self) -> list[int]:
        """Return how much data each packet had that was sent since the last call."""
        return [len(message) - 9 for message in self.pair.near.wire.take()]

    def test_packets(self) -> None:
        """Packets are long, but shorter while small ones of another channel would wait behind them."""
        self.channel.window_adjusted(len(BULK))
        self.channel.send(BULK[:LONGEST_DATA])
        self.assertEqual(self.sent_packets(), [LONGEST_DATA])
        second, _ = self.pair.open(Recorder(), Recorder())
        second.send(b"x")
        self.pair.near.wire.take()
        self.channel.send(BULK[: SHARED_PACKET * 2])
        self.assertEqual(self.sent_packets(), [SHARED_PACKET] * 2)
        self.pair.clock.advance(SHARED_FOR + 0.1)
        self.channel.send(BULK[: SHARED_PACKET + LONGEST_DATA])
        self.assertEqual(self.sent_packets(), [SHARED_PACKET, LONGEST_DATA])

    def test_packets_heard(self) -> None:
        """Small packets that come on another channel are answered soon, so they count, too."""
        self.channel.window_adjusted(len(BULK))
        _, far = self.pair.open(Recorder(), Recorder())
        self.channel.send(b"x")
        far.send(b"y")
        self.pair.pump()
        self.pair.near.wire.take()
        self.channel.send(BULK[: SHARED_PACKET * 2])
        self.assertEqual(self.sent_packets(), [SHARED_PACKET] * 2)

    def test_packets_of_bulk(self) -> None:
        """Packets stay long while other channels move bulk, too."""
        second, _ = self.pair.open(Recorder(), Recorder())
        for channel in (self.channel, second):
            channel.window_adjusted(len(BULK))
        self.pair.near.wire.take()
        for channel in (self.channel, second, self.channel):
            channel.send(BULK[:LONGEST_DATA])
        self.assertEqual(self.sent_packets(), [LONGEST_DATA] * 3)

    def test_packets_leased(self) -> None:
        """Data written into leased packets is sent in packets of the same length."""
        self.channel.window_adjusted(len(BULK))
        second, _ = self.pair.open(Recorder(), Recorder())
        self.channel.send(b"x")
        second.send(b"y")
        for expected in (SHARED_PACKET, SHARED_PACKET, LONGEST_DATA):
            room = self.channel.lease()
            assert room is not None
            self.assertEqual(len(room), expected)
            if expected == SHARED_PACKET:
                self.channel.commit(expected)
                self.pair.clock.advance(SHARED_FOR + 0.1)

    def test_peers_longest(self) -> None:
        """No packet is longer than the peer takes."""
        self.pair.near.hear(number(OPEN, 1) + b"x" + number(0, 9, 1 << 20, 5000)[1:])
        self.pair.near.incoming.pop().accept().send(BULK[:12_000])
        self.assertEqual([len(m) - 9 for m in self.pair.near.wire.take()[1:]], [5000, 5000, 2000])

    def test_congested(self) -> None:
        """While the tunnel is congested a copy of the data is kept; drained is called after it is sent."""
        self.pair.near.wire.room = 0
        payload = bytearray(b"payload")
        self.assertFalse(self.channel.send(payload))
        payload[:] = bytes(7)
        self.assertEqual(self.pair.near.wire.take(), [])
        self.pair.near.relieve()
        self.pair.pump()
        self.assertEqual((self.far.got, self.near.log), (b"payload", ["drained"]))

    def test_last_that_fits(self) -> None:
        """A send that fills the tunnel returns False, and drained follows."""
        self.pair.near.wire.room = 1
        self.assertFalse(self.channel.send(b"x"))
        self.assertEqual(self.channel.queued, 0)
        self.pair.near.relieve()
        self.assertEqual(self.near.log, ["drained"])

    def test_send_in_drained_when_full_again(self) -> None:
        """A send within drained that fills the tunnel again leads to another drained."""
        rounds = 0

        def again() -> None:
            nonlocal rounds
            rounds += 1
            if rounds < 5:
                self.assertFalse(self.channel.send(b"%d" % rounds))

        self.pair.near.wire.room = 1
        self.near.on["drained"] = again
        self.channel.send(b"0")
        for _ in range(9):
            self.pair.near.relieve(1)
        self.assertEqual(rounds, 5)
        self.pair.pump()
        self.assertEqual(self.far.got, b"01234")

    def test_fair(self) -> None:
        """Channels with much to send take turns."""
        others = [Recorder() for _ in range(3)]
        channels = [self.channel, *(self.pair.open(Recorder(), far)[0] for far in others)]
        self.pair.near.wire.room = 0
        for channel in channels:
            channel.window_adjusted(10 * SHARED_PACKET)
            channel.send(BULK[: 10 * SHARED_PACKET])
        self.pair.near.relieve()
        order = [int.from_bytes(message[1:5], "big") for message in self.pair.near.wire.take()]
        self.assertEqual(order[:8], [0, 1, 2, 3] * 2)

    def test_lease(self) -> None:
        """Bytes can be put where they are sealed from; room is what the window allows."""
        lease = self.channel.lease()
        assert lease is not None
        self.assertEqual(len(lease), BASE)
        lease[:5] = b"hello"
        self.channel.commit(5)
        self.channel.commit(0)
        self.pair.pump()
        self.assertEqual(self.far.got, b"hello")
        self.assertEqual(self.channel.bytes_out, 5)

    def test_no_lease(self) -> None:
        """Without room there is no lease; drained follows when there is room."""
        self.pair.near.wire.room = 0
        self.assertIsNone(self.channel.lease())
        self.pair.near.relieve()
        self.assertEqual(self.near.log, ["drained"])
        self.other.pause()
        self.channel.send(bytes(BASE))
        self.assertIsNone(self.channel.lease())
        self.pair.pump()
        self.assertEqual(self.near.log, ["drained"])
        self.other.resume()
        self.pair.pump()
        self.assertEqual(self.near.log, ["drained"] * 2)
        self.assertIsNotNone(self.channel.lease())

    def test_no_lease_after_the_end(self) -> None:
        """After the end there is no lease, and drained is not called repeatedly."""
        self.channel.finish()
        self.assertIsNone(self.channel.lease())
        self.assertFalse(self.pair.near.wire.wants_turn)
        self.assertFalse(self.channel.send(b"dropped"))
        self.pair.pump()
        self.assertEqual((self.far.got, self.far.log), (b"", ["ended"]))


class ReceivingTests(ChannelTestCase):
    """Delivers, and grants what was delivered."""

    def test_paused(self) -> None:
        """A paused channel delivers nothing and grants nothing; waiting data fits in the window."""
        self.other.pause()
        self.channel.send(BULK)
        self.pair.pump()
        self.assertEqual((self.far.log, self.pair.far.wire.take()), ([], []))
        self.assertEqual(self.channel.queued, len(BULK) - BASE)
        self.other.resume()
        self.pair.pump()
        self.assertTrue(self.far.got == BULK)

    def test_paused_in_received(self) -> None:
        """Data that led to a pause is credited after it, once."""
        self.far.on["received"] = self.other.pause
        self.channel.send(bytes(BASE // 2))
        self.channel.send(bytes(BASE // 2))
        self.pair.pump()
        self.assertEqual(len(self.far.got), BASE // 2)
        self.assertEqual(self.pair.far.wire.take(), [])
        self.other.resume()
        self.assertEqual(len(self.far.got), BASE)
        self.assertEqual(self.pair.far.wire.take(), [number(ADJUST, 0, BASE // 2)])
        self.other.resume()
        self.assertEqual(len(self.pair.far.wire.take()), 1)

    def test_resumed_in_received(self) -> None:
        """A pause that is over before received returns changes nothing."""

        def blink() -> None:
            self.other.pause()
            self.other.resume()

        self.far.on["received"] = blink
        self.channel.send(BULK)
        self.pair.pump()
        self.assertTrue(self.far.got == BULK)

    def test_slow_receiver(self) -> None:
        """However a slow receiver pauses and resumes, what it holds up stays within the window."""
        self.other.pause()
        most = 0
        self.far.on["received"] = self.other.pause
        self.channel.send(BULK)
        while len(self.far.got) < len(BULK):
            self.pair.clock.advance(0.5)
            self.pair.pump()
            most = max(most, self.other.bytes_in - len(self.far.got))
            self.other.resume()
        self.assertLessEqual(most, BASE)

    def test_many_small(self) -> None:
        """A window full of tiny packets costs a paused channel about as much as one of large ones."""
        self.other.pause()
        before = sys.getallocatedblocks()
        for _ in range(BASE - 1):
            self.pair.far.hear(data(self.other.local, b"x"))
        self.assertLess(sys.getallocatedblocks() - before, 500)
        for _ in range(100):
            self.pair.far.hear(data(self.other.local, b""))
        self.other.resume()
        self.assertEqual(self.far.got, b"x" * (BASE - 1))

    def test_nothing(self) -> None:
        """Empty packets are ignored."""
        self.pair.far.hear(data(self.other.local, b""))
        self.assertEqual(self.far.log, [])

    def test_overrun(self) -> None:
        """More than was granted is the peer's fault, delivered or not."""
        for pause in (False, True):
            self.setUp()
            if pause:
                self.other.pause()
            self.pair.far.hear(data(self.other.local, bytes(BASE // 4)))
            with self.assertRaises(WindowOverrun):
                self.pair.far.hear(data(self.other.local, bytes(BASE)))

    def test_window_grows(self) -> None:
        """A fast stream borrows a larger window, which both sides know, and gives it back when it closes."""
        self.assertFalse(self.channel.is_large or self.other.is_large)
        self.channel.send(BULK)
        self.pair.pump()
        self.assertGreater(self.pair.far.budget.lent, 0)
        self.assertTrue(self.channel.is_large and self.other.is_large)
        self.channel.abort()
        self.pair.pump()
        self.assert_free()

    def test_window_shared(self) -> None:
        """Windows are for one that is not alone until a while and a round trip after another was active."""
        self.pair.near.wire.delay = 1.0
        second, _ = self.pair.open(Recorder(), Recorder())
        asked = Asked()
        window: Any = asked
        for pause in (0.0, 1.0, 0.5):
            self.pair.clock.advance(pause)
            self.pair.near.mux.renew(self.channel, window)
            if not pause:
                for each in (self.channel, second):
                    each.send(bytes(2 * ALWAYS_FITS))
                self.pair.near.mux.renew(self.channel, window)
        self.assertEqual(asked.near, [ALONE, SHARED, SHARED, ALONE])

    def test_window_beside_small_packets(self) -> None:
        """While others have small packets, the busy channels share what is enough for all of them."""
        second, _ = self.pair.open(Recorder(), Recorder())
        asked = [Asked() for _ in range(8)]
        windows: list[Any] = [*asked]
        for _ in range(3):
            self.pair.clock.advance(0.26)
            self.channel.send(bytes(2 * ALWAYS_FITS))
            second.send(b"y")
            for window in windows:
                self.pair.near.mux.renew(self.channel, window)
        self.assertEqual([each.near[-1] for each in asked], [MIXED // 8] * 8)
        self.pair.clock.advance(1.0)
        self.pair.near.mux.renew(self.channel, windows[0])
        self.assertEqual(asked[0].near[-1], ALONE)

    def test_on_loan_after_the_close(self) -> None:
        """Data kept for a paused receiver counts as borrowed after the peer's close, until delivered."""
        self.channel.send(BULK)
        self.pair.pump()
        self.other.pause()
        self.channel.send(BULK)
        self.pair.pump()
        self.channel.abort()
        self.pair.pump()
        waiting = self.other.bytes_in - len(self.far.got)
        self.assertGreater(waiting, BASE)
        self.assertGreaterEqual(self.pair.far.budget.lent, waiting - BASE)
        self.other.resume()
        self.assertEqual(self.pair.far.budget.lent, 0)

    def test_after_the_end(self) -> None:
        """After EOF there may be no data and no EOF."""
        for message in (data(0, b"x"), data(0, b""), number(END, 0)):
            self.setUp()
            self.pair.far.hear(number(END, 0))
            with self.assertRaises(BadSequence):
                self.pair.far.hear(message)
            self.assertEqual(self.far.log, ["ended"])

    def test_after_the_close(self) -> None:
        """After CLOSE no message is allowed, even before the receiver is notified."""
        for message in (data(0, b"x"), number(END, 0), number(CLOSE, 0), number(ADJUST, 0, 1)):
            for pause in (False, True):
                self.setUp()
                if pause:
                    self.other.pause()
                self.pair.far.hear(data(0, b"x"))
                self.pair.far.hear(number(CLOSE, 0))
                with self.assertRaises(PeerError):
                    self.pair.far.hear(message)

    def test_too_much_window(self) -> None:
        """A window cannot be larger than RFC 4254 allows, nor grow beyond it in steps."""
        self.pair.near.hear(number(ADJUST, 0, 2**32 - 1 - BASE))
        with self.assertRaises(BadSequence):
            self.pair.near.hear(number(ADJUST, 0, 1))
        self.channel.send(bytes(10))
        self.pair.near.hear(number(ADJUST, 0, 10))

    def test_no_window(self) -> None:
        """An adjustment by zero does not wake the channel for good."""
        self.channel.send(BULK)
        self.pair.near.wire.take()
        self.pair.near.hear(number(ADJUST, 0, 0))
        self.pair.near.turn()
        self.assertEqual((self.pair.near.wire.take(), self.near.log), ([], []))
        self.pair.near.hear(number(ADJUST, 0, 7))
        self.pair.near.turn()
        self.assertEqual(self.pair.near.wire.take(), [data(0, BULK[BASE : BASE + 7])])


class EndTests(ChannelTestCase):
    """Ends one side or both."""

    def test_half_close(self) -> None:
        """Either side ends first; when both have, the channel is closed."""
        for order in (1, -1):
            self.setUp()
            first, second = (self.channel, self.other)[::order]
            near, far = (self.near, self.far)[::order]
            first.send(BULK)
            first.finish()
            first.finish()
            self.assertFalse(first.send(b"dropped"))
            self.pair.pump()
            self.assertTrue(far.got == BULK)
            self.assertEqual(far.log, ["received", "ended"])
            second.send(BULK[::-1])
            self.pair.pump()
            second.finish()
            self.pair.pump()
            self.assertTrue(near.got == BULK[::-1])
            self.assertEqual(near.log[-2:], ["ended", "closed"])
            self.assert_free()

    def test_close_behind_the_end(self) -> None:
        """A close after finish, with bytes still queued, ends the stream cleanly."""
        self.other.pause()
        self.channel.send(BULK)
        self.channel.finish()
        self.channel.close()
        self.pair.pump()
        self.assertEqual(self.near.log, [])
        self.other.resume()
        self.pair.pump()
        self.assertTrue(self.far.got == BULK)
        self.assertEqual((self.near.log, self.far.log), (["closed"], ["received", "ended", "closed"]))
        self.assert_free()

    def test_end_while_paused(self) -> None:
        """The end waits behind bytes that wait, and for the receiver."""
        self.other.pause()
        self.channel.send(b"last")
        self.channel.finish()
        self.pair.pump()
        self.assertEqual(self.far.log, [])
        self.far.on["received"] = self.other.pause
        self.other.resume()
        self.assertEqual(self.far.log, ["received"])
        self.other.resume()
        self.assertEqual(self.far.log, ["received", "ended"])
        self.other.resume()
        self.assertEqual(self.far.log, ["received", "ended"])

    def test_finish_before_the_end_is_told(self) -> None:
        """Our end is sent at once; the close waits until the receiver knows of the peer's."""
        self.other.pause()
        self.channel.send(b"last")
        self.channel.finish()
        self.pair.pump()
        self.other.finish()
        self.pair.pump()
        self.assertEqual((self.near.log, self.far.log), (["ended", "closed"], []))
        self.other.resume()
        self.assertEqual((self.far.got, self.far.log), (b"last", ["received", "ended", "closed"]))

    def test_close(self) -> None:
        """Close sends what is queued, then CLOSE, which looks like a cut to the peer."""
        self.channel.send(BULK)
        self.channel.close()
        self.channel.close()
        self.assertTrue(self.channel.is_closed)
        self.assertEqual(self.near.log, [])
        self.pair.pump()
        self.assertTrue(self.far.got == BULK)
        self.assertEqual((self.near.log, self.far.log), (["closed"], ["received", "closed"]))
        self.assertIsInstance(self.far.reason, ChannelEnded)
        self.assert_free()

    def test_close_both(self) -> None:
        """Both sides may close at the same time."""
        self.channel.close()
        self.other.close()
        self.pair.pump()
        self.assert_free()

    def test_close_with_bytes_waiting(self) -> None:
        """Undelivered data is dropped at close, and the peer may send until it receives the close."""
        self.channel.pause()
        self.other.send(BULK)
        self.pair.pump()
        self.channel.send(bytes(2 * BASE))  # half of it cannot be sent yet
        self.channel.close()
        self.pair.deliver(self.pair.far, 1)  # the data; nothing of it is granted yet
        self.pair.pump()
        self.assertEqual((self.near.log, self.near.got), (["closed"], b""))
        self.assert_free()

    def test_nothing_after_close(self) -> None:
        """After CLOSE no message about the channel is sent: the peer may have forgotten it."""
        self.other.send(BULK[:100])
        self.near.on["received"] = self.channel.abort
        self.pair.deliver(self.pair.near, 1)
        self.assertEqual(kinds(self.pair.near.wire.take()), [CLOSE])
        self.pair.near.hear(data(0, BULK[: BASE - 100]))
        self.pair.near.hear(number(98, 0) + b"\0\0\0\4exec\1")
        self.pair.near.hear(number(END, 0))
        self.assertEqual(self.pair.near.wire.take(), [])

    def test_abort_in_the_middle(self) -> None:
        """Aborting a transfer at any point harms no other channel."""
        for steps in range(1, 12):
            self.setUp()
            self.other.send(BULK)
            for _ in range(steps):
                self.pair.deliver(self.pair.near, 1)
                self.pair.deliver(self.pair.far, 1)
                self.pair.far.turn()
            self.channel.abort()
            self.assertEqual(self.near.log[-1], "closed")
            self.pair.pump()
            self.assert_free()

    def test_peer_closes_with_bytes_waiting(self) -> None:
        """Data received before CLOSE is delivered before closed is called; the pause still counts."""
        self.other.pause()
        self.channel.send(b"last")
        self.channel.finish()
        self.channel.close()
        self.pair.pump()
        self.assertEqual(self.far.log, [])
        self.assertTrue(self.other.is_closed)
        self.assertFalse(self.other.send(b"dropped"))
        self.other.resume()
        self.assertEqual((self.far.got, self.far.log), (b"last", ["received", "ended", "closed"]))
        self.assert_free()

    def test_close_after_peers(self) -> None:
        """A receiver that drops data waiting after the peer's CLOSE gets closed at once, and no more data."""
        for action in ("close", "abort"):
            for inside in (False, True):
                self.setUp()
                self.other.pause()
                self.channel.send(bytes(20_000))
                self.channel.send(bytes(20_000))
                self.channel.close()
                self.pair.pump()
                if inside:
                    self.far.on["received"] = getattr(self.other, action)
                else:
                    getattr(self.other, action)()
                self.other.resume()
                self.other.resume()
                self.assertEqual(self.far.log, ["received", "closed"] if inside else ["closed"])
                self.assert_free()

    def test_abort_in_callbacks(self) -> None:
        """Every callback may end the channel, and only closed follows."""
        for event in ("received", "ended", "drained"):
            for action in ("close", "abort"):
                self.setUp()
                self.far.on[event] = getattr(self.other, action)
                if event == "drained":
                    self.other.send(BULK)
                else:
                    self.channel.send(b"x")
                    self.channel.finish()
                self.pair.pump()
                self.assertEqual(self.far.log[-2:], [event, "closed"])
                self.channel.abort()
                self.pair.pump()
                self.assert_free()

    def test_closed_is_last(self) -> None:
        """In closed everything may be called, to no effect."""

        def all_of_it() -> None:
            for action in ("pause", "resume", "finish", "close", "abort"):
                getattr(self.other, action)()
            self.assertFalse(self.other.send(b"x"))
            self.assertIsNone(self.other.lease())

        self.far.on["closed"] = all_of_it
        self.channel.send(b"x")
        self.channel.close()
        self.pair.pump()
        self.assertEqual(self.far.log, ["received", "closed"])
        self.assert_free()

    def test_tunnel_lost(self) -> None:
        """Waiting data is dropped on both ends when the tunnel is lost."""
        self.other.pause()
        self.channel.send(BULK)
        self.pair.pump()
        for end in (self.pair.near, self.pair.far):
            end.mux.lost(ConnectionError("cut"))
        self.assertEqual((self.near.log, self.far.log), (["closed"], ["closed"]))
        self.assertIsInstance(self.near.reason, TunnelLost)
        self.assertEqual(self.channel.queued, 0)
        self.other.resume()
        self.assertFalse(self.channel.send(b"x"))
        self.assert_free()

    def test_tunnel_lost_while_sending(self) -> None:
        """The tunnel may break under a send, which then keeps nothing."""
        self.channel.window_adjusted(1 << 20)
        self.pair.near.wire.commit = (  # type: ignore[method-assign]
            lambda size: self.pair.near.mux.lost(ConnectionError("cut"))
        )
        self.assertFalse(self.channel.send(BULK))
        self.assertEqual((self.near.log, self.channel.queued), (["closed"], 0))

    def test_tunnel_lost_in_a_turn(self) -> None:
        """The same while what is queued goes, whole or in part."""
        for grant in (1 << 20, 10_000):
            self.setUp()
            self.channel.send(bytes(2 * BASE))
            self.pair.near.wire.commit = (  # type: ignore[method-assign]
                lambda size: self.pair.near.mux.lost(ConnectionError("cut"))
            )
            self.pair.near.hear(number(ADJUST, 0, grant))
            self.pair.near.turn()
            self.assertEqual((self.near.log, self.channel.queued), (["closed"], 0))

    def test_too_late(self) -> None:
        """A receiver that is set after the channel has closed gets closed when it resumes, once."""
        self.channel.abort()
        self.channel.receiver = late = Recorder()
        self.channel.resume()
        self.channel.resume()
        self.assertEqual(late.log, ["closed"])


class Side:
    """One end of the channel in `ChannelMachine`, with its receiver.

    :ivar moods: what to do in the next callbacks, one each.
    """

    def __init__(self, end: MuxEnd) -> None:
        self.end = end
        self.channel: Channel
        self.moods: list[str] = []
        self.sent = bytearray()
        self.got = bytearray()
        self.owed_drain = False
        self.ended = self.closed_told = self.finished = self.gave_up = False
        self.paused = False
        self.largest_window = BASE

    def send(self, size: int) -> None:
        """Send a piece of the bulk."""
        at = len(self.sent)
        payload = BULK[at : at + size]
        if not (self.finished or self.gave_up or self.closed_told):
            self.sent += payload
        if not self.channel.send(payload):
            self.owed_drain = True

    def do(self, action: str) -> None:
        """Do something to the channel."""
        if action == "send":
            self.send(9000)
            return
        if action == "lease":
            if (room := self.channel.lease()) is None:
                self.owed_drain = self.owed_drain or not (self.finished or self.gave_up or self.closed_told)
            else:
                at = len(self.sent)
                size = min(len(room), 5000)
                room[:size] = BULK[at : at + size]
                self.sent += BULK[at : at + size]
                self.channel.commit(size)
            return
        if action in ("pause", "resume"):
            self.paused = action == "pause"
        self.finished = self.finished or action == "finish"
        self.gave_up = self.gave_up or action in ("close", "abort")
        getattr(self.channel, action)()

    def _mood(self) -> None:
        assert not self.closed_told
        if self.moods:
            self.do(self.moods.pop())

    def received(self, data: memoryview) -> None:
        """See Receiver."""
        assert not self.paused
        assert not self.ended
        self.got += data
        self._mood()

    def drained(self) -> None:
        """See Receiver."""
        self.owed_drain = False
        self._mood()


class _SideReceiver:
    """Passes events on to a `Side`, whose names they would hide."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.received = side.received
        self.drained = side.drained

    def ended(self) -> None:
        """See Receiver."""
        assert not self._side.ended
        self._side.ended = True
        self._side._mood()

    def closed(self, reason: Exception) -> None:
        """See Receiver."""
        assert not self._side.closed_told
        self._side.closed_told = True
        for action in ("resume", "pause", "finish", "close", "abort"):
            getattr(self._side.channel, action)()


ACTIONS = ("send", "send", "lease", "pause", "pause", "resume", "finish", "close", "abort")
CALM = ("send", "lease", "pause", "resume")


class ChannelMachine(RuleBasedStateMachine):
    """Does anything to both ends of a channel, in any order, with messages in transit at any time."""

    @initialize()
    def open(self) -> None:
        """Open the channel."""
        self.pair = MuxPair()
        ends = self.pair.open(Recorder(), Recorder())
        self.sides = [Side(self.pair.near), Side(self.pair.far)]
        for side, channel in zip(self.sides, ends, strict=True):
            side.channel = channel
            channel.receiver = _SideReceiver(side)

    @rule(who=st.booleans(), what=st.sampled_from(CALM))
    def act(self, who: bool, what: str) -> None:
        """Do something harmless."""
        self.sides[who].do(what)

    @rule(who=st.booleans(), size=st.sampled_from((0, 10, 5000, 40_000, BASE, 300_000)))
    def send(self, who: bool, size: int) -> None:
        """Send something."""
        self.sides[who].send(size)

    @rule(who=st.booleans(), what=st.sampled_from((*("",) * 8, "finish", "finish", "close", "abort")))
    def end(self, who: bool, what: str) -> None:
        """End it, one way or another, but not too soon."""
        if what:
            self.sides[who].do(what)

    @rule(who=st.booleans(), mood=st.sampled_from(ACTIONS), times=st.sampled_from((1, 2, 30)))
    def plan(self, who: bool, mood: str, times: int) -> None:
        """Let a side act within its next callbacks."""
        self.sides[who].moods = [mood] * times

    @rule(who=st.booleans(), count=st.integers(1, 4), gap=st.sampled_from((0.0, 0.001, 2.0)))
    def deliver(self, who: bool, count: int, gap: float) -> None:
        """Let time pass and some messages arrive."""
        self.pair.clock.advance(gap)
        self.pair.deliver(self.sides[who].end, count)

    @rule(who=st.booleans(), room=st.sampled_from((0, 1, 4000, 50_000, 1 << 40)))
    def make_room(self, who: bool, room: int) -> None:
        """Make a tunnel congested or not."""
        end = self.sides[who].end
        if room and end.wire.congested:
            end.relieve(room)
        else:
            end.wire.room = room

    @rule(who=st.booleans())
    def turn(self, who: bool) -> None:
        """End a turn of the reactor."""
        self.sides[who].end.turn()

    @invariant()
    def nothing_wrong(self) -> None:
        """Bytes arrive in order, once; waiting data is within the granted window."""
        for side, other in (self.sides, self.sides[::-1]) if hasattr(self, "sides") else ():
            assert other.sent.startswith(side.got)
            side.largest_window = max(side.largest_window, side.channel._window.size)
            assert side.channel.bytes_in - len(side.got) <= side.largest_window or side.gave_up

    def teardown(self) -> None:
        """Finally let everything flow: no side waits for ever."""
        if not hasattr(self, "sides"):
            return
        for side in self.sides:
            side.moods = []
            side.paused = False
            side.channel.resume()
            side.end.relieve()
        self.pair.pump()
        near, far = self.sides
        if not (near.gave_up or far.gave_up):
            for side, other in ((near, far), (far, near)):
                assert side.got == other.sent, (len(side.got), len(other.sent))
                assert side.ended == other.finished
                assert side.finished or side.closed_told or not side.owed_drain
                assert side.closed_told == (near.finished and far.finished)
        else:
            assert near.closed_told
            assert far.closed_told
        for side in self.sides:
            assert not side.channel.is_waiting
            if near.closed_told:
                assert side.end.mux.channels == {}
                assert side.end.budget.lent == 0


class AnyOrderTests(SynchronousTestCase):
    """Loses no byte and leaves no side waiting."""

    def test_machine(self) -> None:
        """In any order of events no byte is lost or doubled and no side waits for ever."""
        run_state_machine_as_test(
            ChannelMachine, settings=settings(max_examples=200, stateful_step_count=50, deadline=None)
        )
