"""Tests of `tower.net.connection`, on socket pairs."""

from __future__ import annotations

import random
import socket
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import BufferRecorder, Recorder
from tests.fakes.sockets import SocketReactor, socket_pair, take
from tower.net.connection import STALLED, Connection, ConnectionEnded
from tower.net.connection_slots import Slot, Slots

BULK = random.Random(1).randbytes(1 << 20)


class ConnectionTestCase(SynchronousTestCase):
    """A connection whose far end the test controls."""

    def setUp(self) -> None:
        """Connect."""
        self.connect(Recorder())

    def connect(self, recorder: Recorder, send_buffer: int | None = None) -> None:
        """Make a connection."""
        self.reactor = SocketReactor()
        self.read = bytearray()
        self.far_end = False
        near, self.far = socket_pair(send_buffer)
        self.addCleanup(self.far.close)
        self.connection = Connection(self.reactor, near)
        self.addCleanup(self.connection.abort)
        self.recorder = recorder
        self.connection.receiver = recorder
        self.connection.resume()

    def take(self) -> bool:
        """Read at the far end; return whether there was something."""
        data = None if self.far_end else take(self.far)
        if data is None:
            return False
        self.far_end = not data
        self.read += data
        return True

    def assert_over(self) -> None:
        """Nothing is left behind."""
        self.assertEqual(self.reactor.readers, [])
        self.assertEqual(self.reactor.writers, [])
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(self.recorder.log.count("closed"), 1)
        self.assertEqual(self.recorder.log[-1], "closed")
        self.assertEqual(self.connection.fileno(), -1)


class ReadingTests(ConnectionTestCase):
    """Delivers bytes."""

    def test_starts_paused(self) -> None:
        """Nothing is read before the connection is resumed."""
        near, far = socket_pair()
        self.addCleanup(far.close)
        connection = Connection(self.reactor, near)
        self.addCleanup(connection.abort)
        self.assertNotIn(connection, self.reactor.readers)
        connection.resume()
        connection.resume()
        self.assertIn(connection, self.reactor.readers)

    def test_received(self) -> None:
        """Bytes come as they were sent, and are counted."""
        self.far.sendall(b"hello")
        self.reactor.run()
        self.assertEqual(self.recorder.got, b"hello")
        self.assertEqual(self.connection.bytes_in, 5)

    def test_paused(self) -> None:
        """A paused connection does not read; nothing gets lost."""
        self.recorder.on["received"] = self.connection.pause
        self.far.sendall(b"one")
        self.reactor.run()
        self.far.sendall(b"two")
        self.reactor.run()
        self.assertEqual(self.recorder.got, b"one")
        self.assertNotIn(self.connection, self.reactor.readers)
        self.connection.resume()
        self.assertEqual(self.recorder.got, b"one")  # never from within resume
        self.reactor.run()
        self.assertEqual(self.recorder.got, b"onetwo")

    def test_paused_in_this_turn(self) -> None:
        """A connection that another call paused in the same iteration delivers nothing."""
        self.far.sendall(b"one")
        self.connection.pause()
        self.connection.doRead()
        self.assertEqual(self.recorder.got, b"")

    def test_end(self) -> None:
        """The peer's end is reported once, and our direction continues."""
        self.far.sendall(b"last")
        self.far.shutdown(socket.SHUT_WR)
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["received", "ended"])
        self.assertEqual(self.reactor.readers, [])
        self.connection.pause()
        self.connection.resume()
        self.assertTrue(self.connection.send(b"answer"))
        self.reactor.run(self.take)
        self.assertEqual(self.read, b"answer")
        self.assertEqual(self.recorder.log, ["received", "ended"])

    def test_end_while_paused(self) -> None:
        """The end comes after the bytes before it, however often it was paused in between."""
        self.far.sendall(b"last")
        self.far.shutdown(socket.SHUT_WR)
        self.recorder.on["received"] = self.connection.pause
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["received"])
        self.connection.resume()
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["received", "ended"])

    def test_reset(self) -> None:
        """A reset is not an end of the stream."""
        self.connection.send(b"unread")
        self.far.close()  # with bytes unread
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["closed"])
        self.assertIsInstance(self.recorder.reason, ConnectionResetError)
        self.assert_over()

    def test_replaced_receiver(self) -> None:
        """The receiver can be replaced while it is called."""
        second = Recorder()

        def replace() -> None:
            self.connection.receiver = second

        self.recorder.on["received"] = replace
        self.far.sendall(b"one")
        self.reactor.run()
        self.far.sendall(b"two")
        self.reactor.run()
        self.assertEqual((bytes(self.recorder.got), bytes(second.got)), (b"one", b"two"))

    def test_nothing_there(self) -> None:
        """The reactor may be wrong about bytes being there."""
        self.connection.doRead()
        self.assertEqual(self.recorder.log, [])
        for room in (10, None):
            self.connect(recorder := BufferRecorder(room))
            self.connection.doRead()
            self.assertEqual((recorder.log, recorder.lent), ([], 0))

    def test_addresses(self) -> None:
        """A socket without ports has the address 0.0.0.0."""
        nobody = IPv4Address("TCP", "0.0.0.0", 0)
        self.assertEqual((self.connection.getPeer(), self.connection.getHost()), (nobody, nobody))
        self.connection.abort()
        self.assertEqual(self.connection.getPeer(), nobody)

    def test_plain(self) -> None:
        """There is no TLS in it."""
        self.assertIsNone(self.connection.tls)
        self.assertIsNone(self.connection.peer_certificate())
        self.assertEqual(self.connection.logPrefix(), "connection")


class BufferTests(ConnectionTestCase):
    """Puts bytes where the receiver wants them."""

    def test_into(self) -> None:
        """Every buffer is filled, or given back."""
        self.connect(recorder := BufferRecorder(7))
        self.far.sendall(BULK[:1000])
        self.far.shutdown(socket.SHUT_WR)
        self.reactor.run()
        self.assertEqual(recorder.got, BULK[:1000])
        self.assertEqual((recorder.log, recorder.lent), (["received", "ended"], 0))

    def test_no_room(self) -> None:
        """None pauses until the receiver resumes."""
        self.connect(recorder := BufferRecorder(None))
        self.far.sendall(b"bytes")
        self.reactor.run()
        self.assertEqual((self.reactor.readers, recorder.log), ([], []))
        recorder.room = 100
        self.connection.resume()
        self.reactor.run()
        self.assertEqual((recorder.got, recorder.lent), (b"bytes", 0))


class SendingTests(ConnectionTestCase):
    """Sends at once what the kernel accepts, queues the rest, and returns False then."""

    def fill(self) -> int:
        """Send until the connection has enough; return how many bytes."""
        size = 0
        while self.connection.send(BULK[size : size + 1000]):
            size += 1000
        return size + 1000

    def test_at_once(self) -> None:
        """Bytes that the kernel accepts are sent when send returns."""
        for data in (b"abc", bytearray(b"def"), memoryview(b"xghix")[1:4], b""):
            self.assertTrue(self.connection.send(data))
        self.assertEqual(take(self.far), b"abcdefghi")
        self.assertEqual((self.connection.bytes_out, self.connection.queued), (9, 0))
        self.assertEqual(self.reactor.writers, [])

    def test_copied(self) -> None:
        """Queued bytes are copies."""
        self.connect(Recorder(), send_buffer=1)
        data = bytearray(BULK[:200_000])
        self.assertFalse(self.connection.send(data))
        data[:] = bytes(len(data))
        self.reactor.run(self.take)
        self.assertEqual(self.read, BULK[:200_000])

    def test_drained_once(self) -> None:
        """After any number of sends that returned False, drained comes once, when everything is sent."""
        self.connect(Recorder(), send_buffer=1)
        size = self.fill()
        for _ in range(3):
            self.assertFalse(self.connection.send(BULK[size : size + 100]))
            size += 100
        self.assertFalse(self.connection.send(b""))
        self.reactor.run()
        self.assertEqual(self.recorder.log, [])
        self.assertGreater(self.connection.queued, 0)
        self.reactor.run(self.take)
        self.assertEqual(self.recorder.log, ["drained"])
        self.assertEqual((self.connection.queued, self.reactor.writers), (0, []))
        self.assertEqual(self.read, BULK[:size])
        self.assertTrue(self.connection.send(b"x"))

    def test_send_in_drained(self) -> None:
        """A receiver that sends in drained gets another drained."""
        self.connect(Recorder(), send_buffer=1)
        sent = self.fill()
        rounds = 0

        def again() -> None:
            nonlocal sent, rounds
            rounds += 1
            if sent < 200_000:
                self.connection.send(BULK[sent : sent + 30_000])
                sent += 30_000

        self.recorder.on["drained"] = again
        self.reactor.run(self.take)
        self.assertEqual(self.read, BULK[:sent])
        self.assertGreaterEqual(sent, 200_000)
        self.assertEqual(self.recorder.log.count("drained"), rounds)

    def test_abort_in_drained(self) -> None:
        """Any callback may abort."""
        self.connect(Recorder(), send_buffer=1)
        self.recorder.on["drained"] = self.connection.abort
        self.fill()
        self.reactor.run(self.take)
        self.assertEqual(self.recorder.log, ["drained", "closed"])
        self.assert_over()

    def test_broken_while_sending(self) -> None:
        """The last bytes of a peer that disconnected while we sent are read: they may have the reason."""
        self.far.sendall(b"too large")
        self.far.close()
        self.assertFalse(self.connection.send(b"x"))
        self.assertFalse(self.connection.send(b"x"))
        self.assertEqual(self.recorder.log, [])
        self.reactor.run()
        self.assertEqual(self.recorder.got, b"too large")
        self.assertEqual(self.recorder.log, ["received", "closed"])
        self.assertIsInstance(self.recorder.reason, BrokenPipeError)
        self.assert_over()

    def test_broken_while_flushing_to_a_talker(self) -> None:
        """The same when it turns out only while the rest is flushed."""
        self.connect(Recorder(), send_buffer=1)
        self.fill()
        self.far.shutdown(socket.SHUT_RD)
        self.reactor.run(self.take)
        self.assertEqual((self.recorder.log, self.reactor.writers, self.connection.queued), ([], [], 0))
        self.far.sendall(b"enough")
        self.far.close()
        self.reactor.run()
        self.assertEqual((self.recorder.got, self.recorder.log), (b"enough", ["received", "closed"]))
        self.assert_over()

    def test_broken_while_paused(self) -> None:
        """Nothing is read for a paused receiver."""
        self.connection.pause()
        self.far.close()
        self.assertFalse(self.connection.send(b"x"))
        self.assertEqual(self.recorder.log, ["closed"])
        self.assertIsInstance(self.recorder.reason, BrokenPipeError)
        self.assert_over()

    def test_broken_and_never_heard_out(self) -> None:
        """A receiver that pauses a broken connection and leaves it gets its end nevertheless."""
        self.far.sendall(b"wait")
        self.far.close()
        self.connection.send(b"x")
        self.connection.pause()
        self.reactor.run()
        self.reactor.advance(STALLED - 1)
        self.assertEqual(self.recorder.log, [])
        self.reactor.advance(1)
        self.assertEqual(self.recorder.log, ["closed"])
        self.assertIsInstance(self.recorder.reason, BrokenPipeError)
        self.assert_over()

    def test_broken_while_flushing(self) -> None:
        """The queue for a peer that disconnects is dropped."""
        self.connect(Recorder(), send_buffer=1)
        self.fill()
        self.far.close()
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["closed"])
        self.assertEqual(self.connection.queued, 0)
        self.assert_over()


class EndTests(ConnectionTestCase):
    """Ends one side or both."""

    def test_finish(self) -> None:
        """Half a close: the peer sees our end and may go on."""
        self.connection.finish()
        self.connection.finish()
        self.assertEqual(take(self.far), b"")
        self.assertFalse(self.connection.send(b"dropped"))
        self.far.sendall(b"more")
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["received"])
        self.far.close()
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["received", "ended", "closed"])
        self.assert_over()

    def test_finish_second(self) -> None:
        """Our end after the peer's is the end of the connection."""
        self.far.shutdown(socket.SHUT_WR)
        self.reactor.run()
        self.connection.finish()
        self.assertEqual(self.recorder.log, ["ended", "closed"])
        self.assertEqual(take(self.far), b"")
        self.assert_over()

    def test_finish_in_ended(self) -> None:
        """Ending in answer to the end closes once."""
        self.recorder.on["ended"] = self.connection.finish
        self.far.shutdown(socket.SHUT_WR)
        self.reactor.run()
        self.assertEqual(self.recorder.log, ["ended", "closed"])
        self.assert_over()

    def test_finish_after_queue(self) -> None:
        """The end is sent after the queue, in both orders of the two ends."""
        for peer_first in (True, False):
            self.connect(Recorder(), send_buffer=1)
            if peer_first:
                self.far.shutdown(socket.SHUT_WR)
                self.reactor.run()
            self.assertFalse(self.connection.send(BULK))
            self.connection.finish()
            self.reactor.run(self.take)
            self.assertEqual(self.read, BULK)
            self.assertTrue(self.far_end)
            if not peer_first:
                self.far.close()
                self.reactor.run()
            self.assertEqual(self.recorder.log, ["ended", "closed"])
            self.assert_over()

    def test_close(self) -> None:
        """The connection closes at once; the socket stays until the peer has seen it, and is not reset."""
        self.far.sendall(b"unread")
        self.connection.send(b"bye")
        self.connection.close()
        self.connection.close()
        self.assertEqual(self.recorder.log, ["closed"])
        self.assertIsInstance(self.recorder.reason, ConnectionEnded)
        self.reactor.run()
        self.far.sendall(b"still talking")
        self.reactor.run(self.take)
        self.assertEqual((self.read, self.far_end), (b"bye", True))
        self.far.close()
        self.reactor.run()
        self.assert_over()
        self.assertEqual(self.recorder.got, b"")

    def test_slot(self) -> None:
        """The slot is given back with the socket: after it lingered, when it is cut, when it is given up."""
        slots = Slots(self.reactor)

        def begin() -> Slot:
            self.connect(Recorder())
            self.connection.slot = slot = slots.take(None)
            assert slot is not None
            slot.owner = self.connection
            return slot

        slot = begin()
        self.connection.close()
        self.assertEqual((slots.unproven, slot.retired, slot.owner is None), (0, True, False))
        self.far.close()
        self.reactor.run()
        self.assertIsNone(slot.owner)
        begin()
        self.far.close()
        self.reactor.run()
        self.connection.abort()
        self.assertEqual(slots.unproven, 0)
        begin()
        self.connection.detach().close()
        self.assertEqual(slots.unproven, 0)
        begin()
        self.assertTrue(slots.evict())
        self.assertEqual((self.recorder.log, slots.ended), (["closed"], 1))

    def test_closed_in_between(self) -> None:
        """A receiver that is set after the close gets the end, although the socket lingers."""
        self.connection.close()
        late = Recorder()
        self.connection.receiver = late
        self.connection.resume()
        self.far.close()
        self.reactor.run()
        self.assertEqual((late.log, self.reactor.getDelayedCalls()), (["closed"], []))

    def test_close_flushes(self) -> None:
        """Close sends what is queued, to a peer that wants to be read first, and does not spin meanwhile."""
        self.connect(Recorder(), send_buffer=1)
        self.assertFalse(self.connection.send(BULK))
        self.connection.close()
        self.assertEqual(self.recorder.log, [])
        rest, turns = BULK, self.reactor.turns
        while rest:
            try:
                rest = rest[self.far.send(rest[:1000]) :]
            except BlockingIOError:
                self.reactor.run()
        self.assertLess(self.reactor.turns - turns, 3000)
        self.reactor.run(self.take)
        self.assertEqual((self.read == BULK, self.far_end), (True, True))
        self.assertEqual((self.recorder.got, self.recorder.log), (b"", ["closed"]))
        self.far.close()
        self.reactor.run()
        self.assert_over()

    def test_close_after_peers_end(self) -> None:
        """The peer's end while we flush does not cut the rest off."""
        self.connect(Recorder(), send_buffer=1)
        self.connection.send(BULK)
        self.connection.close()
        self.far.shutdown(socket.SHUT_WR)
        self.reactor.run()
        self.assertEqual(self.recorder.log, [])
        self.reactor.run(self.take)
        self.assertEqual((self.read == BULK, self.far_end), (True, True))
        self.assert_over()

    def test_close_stalled(self) -> None:
        """A peer that takes nothing for long is cut off; one that takes little is not."""
        self.connect(Recorder(), send_buffer=1)
        self.connection.send(BULK)
        self.connection.close()
        for _ in range(5):
            self.take()
            self.reactor.run()
            self.reactor.advance(STALLED)
            self.assertEqual(self.recorder.log, [])
        self.reactor.advance(STALLED)
        self.assert_over()

    def test_close_in_received(self) -> None:
        """Nothing is delivered after close, by resume or pause."""
        self.recorder.on["received"] = self.connection.close
        self.far.sendall(b"one")
        self.reactor.run()
        self.connection.pause()
        self.connection.resume()
        self.far.sendall(b"two")
        self.reactor.run()
        self.assertEqual((self.recorder.got, self.recorder.log), (b"one", ["received", "closed"]))
        self.assertEqual(len(self.reactor.readers), 1)

    def test_abort(self) -> None:
        """Abort is now, and closed comes from within it."""
        self.connect(Recorder(), send_buffer=1)
        self.connection.send(BULK)
        self.connection.abort()
        self.connection.abort()
        self.assertEqual(self.recorder.log, ["closed"])
        self.assert_over()
        self.connection.close()
        self.connection.finish()
        self.assert_over()

    def test_abort_in_callbacks(self) -> None:
        """Every callback may abort, and no other follows."""
        for event in ("received", "ended"):
            self.connect(Recorder())
            self.recorder.on[event] = self.connection.abort
            self.far.sendall(b"one")
            self.far.shutdown(socket.SHUT_WR)
            self.reactor.run()
            self.assertEqual(self.recorder.log[-2:], [event, "closed"])
            self.assert_over()

    def test_close_then_abort(self) -> None:
        """A connection that still flushes can be aborted."""
        self.connect(Recorder(), send_buffer=1)
        self.connection.send(BULK)
        self.connection.close()
        self.assertEqual(self.recorder.log, [])
        self.connection.abort()
        self.assert_over()

    def test_finish_then_close(self) -> None:
        """A half-closed connection can be closed."""
        self.connection.finish()
        self.connection.close()
        self.far.close()
        self.reactor.run()
        self.assert_over()

    def test_reactor_stops(self) -> None:
        """The reactor can drop the descriptor."""
        self.connection.connectionLost(Failure(ConnectionLost()))
        self.assertIsInstance(self.recorder.reason, ConnectionLost)
        self.assert_over()

    def test_detach(self) -> None:
        """The socket can be detached: no event follows, and it stays open."""
        self.connection.send(b"before ")
        sock = self.connection.detach()
        self.addCleanup(sock.close)
        self.assertEqual((self.reactor.readers, self.reactor.writers, self.recorder.log), ([], [], []))
        self.connection.abort()
        self.connection.close()
        sock.sendall(b"after")
        self.assertEqual(take(self.far), b"before after")
        self.assertEqual(self.recorder.log, [])

    def test_too_late(self) -> None:
        """A receiver that is set on a closed connection gets the end, once, when it resumes."""
        self.connection.abort()
        late = Recorder()
        self.connection.receiver = late
        self.assertFalse(self.connection.send(b"x"))
        self.connection.resume()
        self.connection.resume()
        self.assertEqual(late.log, [])
        self.reactor.run()
        self.assertEqual(late.log, ["closed"])
        self.connection.resume()
        self.reactor.run()
        self.assertEqual(late.log, ["closed"])


class Scripted:
    """A receiver that does what a script says, for as long as it lasts."""

    def __init__(self, connection: Connection, script: list[str]) -> None:
        self.connection = connection
        self.script = script
        self.recorder = Recorder()
        self.closed_count = 0

    def _act(self) -> None:
        if self.script:
            action = self.script.pop()
            if action == "send":
                self.connection.send(b"s" * 3000)
            else:
                getattr(self.connection, action)()

    def received(self, data: memoryview) -> None:
        """See Receiver."""
        self.recorder.received(data)
        self._act()

    def ended(self) -> None:
        """See Receiver."""
        self.recorder.ended()
        self._act()

    def drained(self) -> None:
        """See Receiver."""
        self.recorder.drained()
        self._act()

    def closed(self, reason: Exception) -> None:
        """See Receiver."""
        self.recorder.closed(reason)
        self._act()


ACTIONS = st.sampled_from(["send", "pause", "resume", "finish", "close", "abort"])


class ReentrancyTests(SynchronousTestCase):
    """Stays consistent, regardless of its receiver's calls in events."""

    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(ACTIONS, max_size=8),
        st.lists(st.sampled_from(["data", "end", "take", "resume"]), max_size=8),
    )
    def test_any_script(self, script: list[str], far_does: list[str]) -> None:
        """At the end the connection is closed once, last, and nothing is left in the reactor."""
        reactor = SocketReactor()
        near, far = socket_pair(1)
        connection = Connection(reactor, near)
        receiver: Any = Scripted(connection, script)
        connection.receiver = receiver
        connection.resume()
        ended = False
        sent = 0
        for action in far_does:
            try:
                if action == "data" and not ended:
                    sent += far.send(b"x" * 10)
                elif action == "end":
                    ended = True
                    far.shutdown(socket.SHUT_WR)
                elif action == "resume":
                    connection.resume()
                else:
                    take(far)
            except OSError:
                pass
            reactor.run()
        far.close()
        reactor.run()
        script.clear()
        connection.close()
        reactor.advance(STALLED)
        reactor.advance(STALLED)
        reactor.run()
        self.assertEqual((reactor.readers, reactor.writers, reactor.getDelayedCalls()), ([], [], []))
        log = receiver.recorder.log
        self.assertEqual((log.count("closed"), log[-1]), (1, "closed"))
        self.assertLessEqual(log.count("ended"), 1)
        self.assertLessEqual(len(receiver.recorder.got), sent)
