"""What every kind of pipe promises to who sends on it; see `tower.net.pipes`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import Recorder
from tower.net.pipes import Pipe

#: More sends than any pipe here takes before it is full.
MANY = 20_000
PIECE = b"p" * 100


class PipeContract(SynchronousTestCase):
    """The tests; a kind of pipe says how one is made and what happens at its far end."""

    pipe: Any
    recorder: Recorder

    def connect(self) -> Pipe:
        """Return a pipe whose far end takes nothing yet, with `recorder` as its receiver, resumed."""
        raise NotImplementedError

    def carry(self) -> None:
        """Have the far end take all, and whatever is due happen."""
        raise NotImplementedError

    def part(self) -> None:
        """Have the far end go, in a way that the pipe does not tell of yet."""
        raise NotImplementedError

    def rest(self) -> None:
        """Have the pipe tell of it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin anew."""
        self.recorder = Recorder()
        self.pipe = self.connect()

    def send_on(self) -> int:
        """Send as long as the pipe says "go on", as many a sender does; return how often it did."""
        for count in range(MANY):
            if not self.pipe.send(PIECE):
                return count
        raise AssertionError("a sender that goes on while it is told to never stops")

    def assert_ended(self) -> None:
        """The last that was heard is the end, with no word of room before; nothing is taken after it."""
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
        """A sender in a loop, whose peer goes in the middle of it, is stopped, and hears the end."""
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
        """One that waits for room hears the end instead."""
        self.begin()
        self.send_on()
        self.part()
        self.assertEqual(self.send_on(), 0)
        self.rest()
        self.assert_ended()

    def test_in_the_last_call(self) -> None:
        """Who sends once more when it hears of the end is told to stop."""
        self.begin()
        sent: list[int] = []
        self.recorder.on["closed"] = lambda: sent.append(self.send_on())
        self.part()
        self.rest()
        self.assertEqual(sent, [0])
