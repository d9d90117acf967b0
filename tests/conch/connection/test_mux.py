"""Tests of `tower.conch.connection.mux`: opening, refusing, and peers that break the rules."""

from __future__ import annotations

import gc

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.living import living
from tests.fakes.muxes import KIND, MuxEnd, MuxPair
from tests.fakes.receivers import Recorder
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import KNOWN_CODES, BadMessage, Incoming, parse_string
from tower.conch.connection.messages import (
    ADJUST,
    CLOSE,
    CONFIRM,
    DATA,
    END,
    EXTENDED,
    FAILURE,
    LONGEST_DATA,
    OPEN,
    REFUSE,
    REQUEST,
    SHORTEST_PACKET,
    SUCCESS,
)
from tower.conch.connection.window import BASE
from tower.errors import PeerError, StreamRefused, TunnelLost


def numbers(*values: int) -> bytes:
    """Return them as SSH has them."""
    return b"".join(value.to_bytes(4, "big") for value in values)


def text(value: bytes) -> bytes:
    """Return an SSH string."""
    return numbers(len(value)) + value


def opening(remote: int = 7, window: int = BASE, longest: int = LONGEST_DATA, kind: bytes = KIND) -> bytes:
    """Return an OPEN."""
    return bytes((OPEN,)) + text(kind) + numbers(remote, window, longest) + text(b"kubernetes")


class OpeningTests(SynchronousTestCase):
    """Opens channels, or reports why not."""

    def setUp(self) -> None:
        """Create two muxes."""
        self.pair = MuxPair()
        self.near, self.far = self.pair.near, self.pair.far

    def test_open(self) -> None:
        """The peer sees type and data; both ends know each other's numbers."""
        first = self.near.mux.open(KIND, b"data")
        second = self.near.mux.open(b"other", b"")
        self.pair.pump()
        self.assertNoResult(first)
        incoming, other = self.far.incoming
        self.assertEqual((incoming.kind, incoming.data, other.kind), (KIND, b"data", b"other"))
        there = other.accept()
        self.pair.pump()
        self.assertNoResult(first)
        here = self.successResultOf(second)
        self.assertEqual((here.remote, there.remote), (there.local, here.local))
        self.near.draining = True
        self.assertTrue(here.is_leaving)
        self.assertFalse(there.is_leaving)

    def test_starts_paused(self) -> None:
        """Bytes that come right behind the confirmation wait for the receiver."""
        result = self.near.mux.open(KIND, b"")
        self.pair.pump()
        there = self.far.incoming[0].accept()
        there.send(b"welcome")
        there.finish()
        self.pair.pump()
        channel = self.successResultOf(result)
        channel.receiver = recorder = Recorder()
        self.assertEqual(recorder.log, [])
        channel.resume()
        self.assertEqual((recorder.got, recorder.log), (b"welcome", ["received", "ended"]))

    def test_refused(self) -> None:
        """The code and the text travel."""
        for code in sorted(KNOWN_CODES):
            result = self.near.mux.open(KIND, b"")
            self.pair.pump()
            self.far.incoming.pop().refuse(code, "words: héé")
            self.pair.pump()
            error = self.failureResultOf(result, StreamRefused).value
            self.assertEqual((error.code, error.peer_text), (code, "words: héé"))
            self.assertEqual(str(error), 'the far end reports: "words: héé"')
            self.assertEqual(error.reported_by("the agent of x"), 'the agent of x reports: "words: héé"')
        self.assertEqual((self.near.mux.channels, self.far.mux.channels), ({}, {}))

    def test_refused_by_a_stranger(self) -> None:
        """The text of another program is not parsed as one of our codes."""
        for said, heard in (
            (b"no thanks", "no thanks"),
            (b"sorry: full", "sorry: full"),
            (b"\xff", "�"),
            (b"", ""),
        ):
            result = self.near.mux.open(KIND, b"")
            number = max(self.near.mux.channels)
            self.near.hear(bytes((REFUSE,)) + numbers(number, 1) + text(said) + text(b"en"))
            error = self.failureResultOf(result, StreamRefused).value
            self.assertEqual((error.code, error.peer_text), ("failed", heard))

    def test_long_reason(self) -> None:
        """A reason is cut, wherever that is."""
        self.far.hear(opening())
        self.far.incoming[0].refuse("failed", "é" * 2000)
        (message,) = self.far.wire.take()
        self.assertEqual(len(message), 1 + 8 + 4 + 1024 + 4)

    def test_numbers(self) -> None:
        """A refusal carries RFC 4254's number for its kind."""
        for code, number in (("not-allowed", 1), ("refused", 2), ("no-such-target", 3), ("busy", 4)):
            self.far.hear(opening())
            self.far.incoming.pop().refuse(code, "x")
            self.assertEqual(self.far.wire.take()[0][:9], bytes((REFUSE,)) + numbers(7, number))

    def test_accepts_none(self) -> None:
        """A side that opens channels refuses those of the other."""
        end = MuxEnd(Clock(), accept=False)
        end.hear(opening())
        self.assertEqual(end.wire.take()[0][:9], bytes((REFUSE,)) + numbers(7, 1))
        self.assertEqual(end.mux.channels, {})

    def test_answered_once(self) -> None:
        """A second answer is an error of the caller."""
        self.far.hear(opening())
        self.far.incoming[0].accept()
        self.assertRaises(RuntimeError, self.far.incoming[0].accept)
        self.assertRaises(RuntimeError, self.far.incoming[0].refuse, "busy", "")

    def test_cancelled(self) -> None:
        """A cancelled channel is closed when it is confirmed, or forgotten when refused."""
        for accept in (True, False):
            result = self.near.mux.open(KIND, b"")
            self.pair.pump()
            result.cancel()
            self.failureResultOf(result, CancelledError)
            if accept:
                self.far.incoming.pop().accept()
            else:
                self.far.incoming.pop().refuse("busy", "")
            self.pair.pump()
            self.assertEqual((self.near.mux.channels, self.far.mux.channels), ({}, {}))

    def test_lost(self) -> None:
        """When the tunnel goes, all that is open or opening ends, and nothing begins."""
        waiting = self.near.mux.open(KIND, b"")
        given_up = self.near.mux.open(KIND, b"")
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        near, far = Recorder(), Recorder()
        self.pair.open(near, far)
        later: list[object] = []
        near.on["closed"] = lambda: later.append(self.near.mux.open(KIND, b""))
        self.near.mux.lost(ConnectionError("cut"))
        self.assertEqual(str(self.failureResultOf(waiting, TunnelLost).value), "cut")
        self.assertEqual(near.log, ["closed"])
        self.failureResultOf(later[0], TunnelLost)
        self.assertEqual(self.near.mux.channels, {})

    def test_freed(self) -> None:
        """A channel that was lost with its tunnel is freed."""
        channel, _ = self.pair.open(Recorder(), Recorder())
        channel.send(b"the last_active there is")
        self.pair.pump()
        before = living(Channel)
        gc.disable()
        self.addCleanup(gc.enable)
        self.near.mux.lost(ConnectionError("cut"))
        del channel
        self.assertEqual(living(Channel), before - 1)

    def test_answer_after_the_tunnel(self) -> None:
        """An answer after the tunnel was lost raises TunnelLost, or is ignored."""
        self.far.hear(opening())
        self.far.hear(opening(8))
        self.far.mux.lost(ConnectionError("cut"))
        self.far.wire.take()
        self.assertRaises(TunnelLost, self.far.incoming[0].accept)
        self.far.incoming[1].refuse("busy", "")
        self.assertEqual(self.far.wire.take(), [])

    def test_limit(self) -> None:
        """No more channels than the limit, counting those that are being opened from either side."""
        end = MuxEnd(Clock(), limit=3)
        end.hear(opening(1))
        first = end.mux.open(KIND, b"")
        end.hear(opening(2))
        self.assertEqual(len(end.incoming), 2)
        end.wire.take()
        end.hear(opening(3))
        self.assertEqual(end.wire.take()[0][:9], bytes((REFUSE,)) + numbers(3, 4))
        error = self.failureResultOf(end.mux.open(KIND, b""), StreamRefused).value
        self.assertEqual(error.code, "busy")
        end.incoming[0].accept()
        end.incoming[1].accept()
        self.assertEqual(len(end.mux.channels), 3)
        end.hear(bytes((REFUSE,)) + numbers(0, 1) + text(b"no") + text(b""))
        self.failureResultOf(first, StreamRefused)
        self.assertNoResult(end.mux.open(KIND, b""))

    def test_flood(self) -> None:
        """A peer that opens without end is refused without anything being kept."""
        end = MuxEnd(Clock(), limit=5)
        for number in range(1000):
            end.hear(opening(number))
        self.assertEqual((len(end.incoming), len(end.wire.take())), (5, 995))
        for incoming in end.incoming:
            incoming.refuse("busy", "")
        end.hear(opening(1))
        self.assertEqual(len(end.incoming), 6)

    def test_numbers_in_use(self) -> None:
        """Numbers of open channels are not given again, even after all were used once."""
        channel, _ = self.pair.open(Recorder(), Recorder())
        self.near.mux._number = 0x7FFFFFFF
        first, second = (self.pair.open(Recorder(), Recorder())[0] for _ in range(2))
        self.assertEqual((channel.local, first.local, second.local), (0, 0x7FFFFFFF, 1))

    def test_short_packets(self) -> None:
        """A peer that takes only tiny packets is refused, or dropped when it is asked."""
        self.far.hear(opening(longest=SHORTEST_PACKET - 1))
        self.assertEqual(self.far.wire.take()[0][:9], bytes((REFUSE,)) + numbers(7, 1))
        self.far.hear(opening(longest=SHORTEST_PACKET))
        self.assertEqual(len(self.far.incoming), 1)
        result = self.near.mux.open(KIND, b"")
        with self.assertRaises(BadMessage):
            self.near.hear(bytes((CONFIRM,)) + numbers(0, 0, BASE, SHORTEST_PACKET - 1))
        self.near.mux.lost(ConnectionError("dropped"))
        self.failureResultOf(result, TunnelLost)


class MessageTests(SynchronousTestCase):
    """Reads messages strictly."""

    def setUp(self) -> None:
        """Open one channel (0), and start to open another (1)."""
        self.end = MuxEnd(Clock())
        opened = self.end.mux.open(KIND, b"")
        self.end.hear(bytes((CONFIRM,)) + numbers(0, 40, BASE, LONGEST_DATA))
        self.channel: Channel = self.successResultOf(opened)
        self.channel.receiver = self.recorder = Recorder()
        self.channel.resume()
        self.opening = self.end.mux.open(KIND, b"")
        self.opening.addErrback(lambda failure: failure.trap(TunnelLost, StreamRefused))
        self.end.wire.take()

    def test_unknown_channels(self) -> None:
        """No message is allowed about a channel that is not open, or not yet."""
        bodies = {
            DATA: text(b"x"),
            ADJUST: numbers(1),
            END: b"",
            CLOSE: b"",
            REQUEST: text(b"exec") + b"\0",
            SUCCESS: b"",
            FAILURE: b"",
            EXTENDED: numbers(1) + text(b"x"),
        }
        for kind, body in bodies.items():
            for number in (1, 2, 0xFFFFFFFF):
                with self.assertRaises(BadMessage):
                    self.end.hear(bytes((kind,)) + numbers(number) + body)

    def test_answers_nobody_waits_for(self) -> None:
        """A second confirmation, a refusal after it, and answers about nothing are refused."""
        confirmed = bytes((CONFIRM,)) + numbers(1, 41, BASE, LONGEST_DATA)
        refused = bytes((REFUSE,)) + numbers(1, 1) + text(b"no") + text(b"")
        self.end.hear(confirmed)
        for message in (confirmed, refused, bytes((CONFIRM,)) + numbers(9, 1, BASE, LONGEST_DATA)):
            with self.assertRaises(BadMessage):
                self.end.hear(message)

    def test_broken_answers(self) -> None:
        """After a malformed answer the opener still gets a result."""
        for message in (
            bytes((CONFIRM,)) + numbers(1, 41, BASE),
            bytes((CONFIRM,)) + numbers(1, 41, BASE, 0),
            bytes((REFUSE,)) + numbers(1),
            bytes((REFUSE,)) + numbers(1, 1) + numbers(5) + b"no",
        ):
            self.setUp()
            with self.assertRaises(BadMessage):
                self.end.hear(message)
            self.end.mux.lost(ConnectionError("dropped"))
            self.assertIs(self.successResultOf(self.opening), TunnelLost)

    def test_data_of_another_length(self) -> None:
        """The length inside has to fit."""
        for size, body in ((3, b"ab"), (1, b"ab"), (0xFFFFFFFF, b"ab"), (0, b"a")):
            with self.assertRaises(BadMessage):
                self.end.hear(bytes((DATA,)) + numbers(0, size) + body)

    def test_extended(self) -> None:
        """No channel of ours has extended data."""
        with self.assertRaises(BadMessage):
            self.end.hear(bytes((EXTENDED,)) + numbers(0, 1) + text(b"x"))

    def test_requests(self) -> None:
        """Channel requests are not supported; one with want-reply is refused."""
        self.end.hear(bytes((REQUEST,)) + numbers(0) + text(b"exec") + b"\0" + text(b"ls"))
        self.assertEqual(self.end.wire.take(), [])
        self.end.hear(bytes((REQUEST,)) + numbers(0) + text(b"exec") + b"\1" + text(b"ls"))
        self.assertEqual(self.end.wire.take(), [bytes((FAILURE,)) + numbers(40)])
        for kind in (SUCCESS, FAILURE):
            with self.assertRaises(BadMessage):
                self.end.hear(bytes((kind,)) + numbers(0))

    def test_every_length(self) -> None:
        """A message that is truncated anywhere is rejected with a PeerError."""
        whole = {
            OPEN: opening(),
            CONFIRM: bytes((CONFIRM,)) + numbers(1, 41, BASE, LONGEST_DATA),
            REFUSE: bytes((REFUSE,)) + numbers(1, 1) + text(b"no") + text(b"en"),
            ADJUST: bytes((ADJUST,)) + numbers(0, 5),
            DATA: bytes((DATA,)) + numbers(0) + text(b"data"),
            EXTENDED: bytes((EXTENDED,)) + numbers(0, 1) + text(b"x"),
            END: bytes((END,)) + numbers(0),
            CLOSE: bytes((CLOSE,)) + numbers(0),
            REQUEST: bytes((REQUEST,)) + numbers(0) + text(b"exec") + b"\1",
            SUCCESS: bytes((SUCCESS,)) + numbers(0),
            FAILURE: bytes((FAILURE,)) + numbers(0),
        }
        enough = {OPEN: 1 + 4 + len(KIND) + 12, REFUSE: 9 + 6}  # the rest may be missing
        for kind, message in whole.items():
            for size in range(1, min(len(message), enough.get(kind, 1 << 20))):
                self.setUp()
                with self.assertRaises(PeerError):
                    self.end.hear(message[:size])
                self.assertEqual(self.recorder.log, [])

    @settings(max_examples=400, deadline=None)
    @given(
        st.lists(
            st.builds(
                lambda kind, number, rest: bytes((kind,)) + number + rest,
                st.integers(90, 100),
                st.sampled_from([numbers(0), numbers(1), numbers(2), b"", text(KIND)]),
                st.binary(max_size=30)
                | st.builds(text, st.binary(max_size=20))
                | st.just(numbers(5, 65536, 32768)),
            ),
            max_size=8,
        )
    )
    def test_any_message(self, messages: list[bytes]) -> None:
        """No message can raise any error but a PeerError."""
        self.setUp()
        try:
            for message in messages:
                self.end.hear(message)
                for incoming in self.end.incoming:
                    incoming.accept()
                self.end.incoming.clear()
        except PeerError:
            pass
        self.end.mux.lost(ConnectionError("over"))
        self.assertEqual((self.end.mux.channels, self.end.budget.lent), ({}, 0))
        self.assertLessEqual(self.recorder.log.count("closed"), 1)

    def test_unknown_kind(self) -> None:
        """Only the eleven messages of RFC 4254 are taken."""
        with self.assertRaises(BadMessage):
            self.end.hear(bytes((101,)) + numbers(0))


class GrantTests(SynchronousTestCase):
    """Grants credit to a peer."""

    def test_not_alone(self) -> None:
        """A window does not grow beyond its share while others are active."""
        pair = MuxPair()
        one, two = Recorder(), Recorder()
        first, _ = pair.open(Recorder(), one)
        second, _ = pair.open(Recorder(), two)
        for _ in range(100):
            first.send(bytes(100_000))
            second.send(bytes(100_000))
            pair.pump()
        shared = max(each._window.size for each in pair.far.mux.channels.values())
        self.assertLessEqual(shared, 512 * 1024)
        second.abort()
        pair.pump()
        pair.clock.advance(0.5)
        for _ in range(100):
            first.send(bytes(1_000_000))
            pair.pump()
        (alone,) = (each._window.size for each in pair.far.mux.channels.values())
        self.assertGreater(alone, 512 * 1024)

    def test_forgotten(self) -> None:
        """A tunnel keeps nothing of a closed channel."""
        pair = MuxPair()
        for _ in range(3):
            channel, _ = pair.open(Recorder(), Recorder())
            channel.send(bytes(300_000))
            channel.close()
            pair.pump()
        for end in (pair.near, pair.far):
            self.assertEqual(
                (end.mux.channels, end.mux.waiting, end.mux.fairness.last_active), ({}, None, None)
            )


class StringTests(SynchronousTestCase):
    """Reads SSH strings."""

    def test_parse(self) -> None:
        """A string is parsed by its length, if it is complete."""
        wire = memoryview(b"_" + text(b"abc") + b"rest")
        self.assertEqual(parse_string(wire, 1), (b"abc", 8))
        for size in range(1, 8):
            self.assertRaises(BadMessage, parse_string, wire[:size], 1)
        self.assertRaises(BadMessage, parse_string, memoryview(b"\xff\xff\xff\xffabc"), 0)


class IncomingTests(SynchronousTestCase):
    """Describes the requested channel."""

    def test_fields(self) -> None:
        """Kind and data are copies."""
        end = MuxEnd(Clock())
        end.hear(opening())
        incoming: Incoming = end.incoming[0]
        self.assertEqual((incoming.kind, incoming.data), (KIND, text(b"kubernetes")))
