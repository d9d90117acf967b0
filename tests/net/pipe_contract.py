"""Promises of every kind of pipe to its sender; see `tower.net.pipes`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import Recorder
from tower.net.pipes import Pipe

#: More sends than any pipe here takes before it is full.
MANY = 20_000
PIECE = b"p" * 100


class PipeContract(SynchronousTestCase):
    """The tests; a subclass makes the pipe and controls its far end."""

    pipe: Any
    recorder: Recorder

    def connect(self) -> Pipe:
        """Return a pipe whose far end takes nothing yet, with `recorder` as its receiver, resumed."""
        raise NotImplementedError

    def carry(self) -> None:
        """Accept everything at the far end, and run all due events."""
        raise NotImplementedError

    def part(self) -> None:
        """Break the far end, without an event on the pipe yet."""
        raise NotImplementedError

    def rest(self) -> None:
        """Report the break on the pipe."""
        raise NotImplementedError

    def begin(self) -> None:
        """Make a pipe."""
        self.recorder = Recorder()
        self.pipe = self.connect()

    def send_on(self) -> int:
        """Send while `send` returns True, as many senders do; return the number of calls."""
        for count in range(MANY):
            if not self.pipe.send(PIECE):
                return count
        raise AssertionError("a sender that continues while send returns True never stops")

    def assert_ended(self) -> None:
        """The last event is the end, without drained before; nothing is accepted after it."""
        self.assertEqual((self.recorder.log.count("closed"), self.recorder.log[-1]), (1, "closed"))
        self.assertNotIn("drained", self.recorder.log)
        self.assertEqual(self.send_on(), 0)

    def test_goes_on(self) -> None:
        """A full pipe stops its sender, and calls it once when there is room."""
        self.begin()
        self.send_on()
        self.assertEqual(self.recorder.log, [])
        self.carry()
        self.assertEqual(self.recorder.log, ["drained"])
        self.assertTrue(self.pipe.send(PIECE))

    def test_finished(self) -> None:
        """After the half close nothing is taken, and what was queued before makes no room."""
        for is_full in (False, True):
            self.begin()
            if is_full:
                self.send_on()
            self.pipe.finish()
            self.assertEqual(self.send_on(), 0)
            self.carry()
            self.assertEqual((self.recorder.log, self.send_on()), ([], 0))
            self.part()
            self.assertEqual(self.send_on(), 0)
            self.rest()
            self.assert_ended()

    def test_closed(self) -> None:
        """Nor after the close, whether it was through at once or had to wait."""
        for is_full in (False, True):
            self.begin()
            if is_full:
                self.send_on()
            self.pipe.close()
            self.assertEqual(self.send_on(), 0)
            self.carry()
            self.assert_ended()

    def test_aborted(self) -> None:
        """Nor after it was aborted."""
        for is_full in (False, True):
            self.begin()
            if is_full:
                self.send_on()
            self.pipe.abort()
            self.assert_ended()
            self.carry()
            self.assert_ended()

    def test_broken(self) -> None:
        """A sender in a loop, whose peer disconnects, is stopped and gets the end."""
        self.begin()
        self.carry()
        self.recorder.log.clear()
        for _ in range(3):
            self.assertTrue(self.pipe.send(PIECE))
        self.part()
        self.send_on()
        self.assertEqual(self.send_on(), 0)
        self.rest()
        self.assert_ended()

    def test_full_and_broken(self) -> None:
        """A sender that waits for room gets the end instead."""
        self.begin()
        self.send_on()
        self.part()
        self.assertEqual(self.send_on(), 0)
        self.rest()
        self.assert_ended()

    def test_in_the_last_call(self) -> None:
        """A sender that sends once more at the end gets False."""
        self.begin()
        sent: list[int] = []
        self.recorder.on["closed"] = lambda: sent.append(self.send_on())
        self.part()
        self.rest()
        self.assertEqual(sent, [0])
