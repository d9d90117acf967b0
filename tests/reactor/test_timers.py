"""Tests of tower.reactor.timers."""

from __future__ import annotations

import gc
import random
import weakref

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.timers import STEP, Deadline, Timers, Wheel, within


class TimersTests(SynchronousTestCase):
    """Timers."""

    def test_life(self) -> None:
        """A call comes once, is replaced by one of its name, and can set itself again."""
        clock = Clock()
        timers = Timers(clock)
        called: list[str] = []

        def again() -> None:
            called.append("again")
            timers.set("a", 1.0, lambda: called.append("last"))

        timers.set("a", 1.0, lambda: called.append("never"))
        timers.set("a", 2.0, again)
        timers.set("b", 5.0, lambda: called.append("never"))
        clock.pump([1.0] * 3)
        self.assertEqual(called, ["again", "last"])
        timers.cancel("a")
        timers.cancel_all()
        timers.cancel_all()
        self.assertEqual((clock.getDelayedCalls(), called), ([], ["again", "last"]))


class Owner:
    """An object that its deadline calls."""

    def __init__(self, clock: Clock) -> None:
        self.deadline = Deadline(clock, 2.0, self.late)

    def late(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Cancel the deadline."""
        self.deadline.cancel()


class DeadlineTests(SynchronousTestCase):
    """Deadline."""

    def setUp(self) -> None:
        """Wait for two seconds."""
        self.clock = Clock()
        self.called: list[str] = []
        self.deadline = Deadline(self.clock, 2.0, lambda: self.called.append("late"))

    def test_late(self) -> None:
        """It calls once, behind everything that was due at its time."""
        self.clock.callLater(2.0, self.called.append, "read")
        self.clock.advance(1.9)
        self.assertEqual(self.called, [])
        self.clock.advance(0.1)
        self.assertEqual(self.called, ["read", "late"])
        self.deadline.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """Cancelled it calls nothing, not even in the turn in which its time has come."""
        self.clock.callLater(2.0, self.deadline.cancel)
        self.clock.advance(5.0)
        self.deadline.cancel()
        self.assertEqual((self.called, self.clock.getDelayedCalls()), ([], []))

    def test_garbage(self) -> None:
        """An owner that it would call is freed at once when the call is cancelled or made."""
        gc.disable()
        self.addCleanup(gc.enable)
        for end in (Owner.stop, lambda _: self.clock.advance(2.0)):
            owner = Owner(self.clock)
            freed = weakref.ref(owner)
            end(owner)
            del owner
            self.assertIsNone(freed())


class WithinTests(SynchronousTestCase):
    """within."""

    def setUp(self) -> None:
        """Do something for two seconds at the most."""
        self.clock = Clock()
        self.doing: Deferred[int] = Deferred()
        self.result = within(self.clock, 2.0, self.doing, lambda: TimeoutError("too late"))

    def test_in_time(self) -> None:
        """Work that ends in time, or fails, keeps its result; no timer is left."""
        self.doing.callback(7)
        self.assertEqual(self.successResultOf(self.result), 7)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_failed(self) -> None:
        """So is a failure, and a cancellation."""
        self.result.cancel()
        self.failureResultOf(self.result, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_late(self) -> None:
        """Work that is late is cancelled."""
        self.clock.advance(1.9)
        self.assertNoResult(self.result)
        self.clock.advance(0.1)
        self.failureResultOf(self.result, TimeoutError)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class WheelTests(SynchronousTestCase):
    """Wheel."""

    def setUp(self) -> None:
        """Start at a time that is a multiple of nothing."""
        self.clock = Clock()
        self.clock.advance(1000.3)
        self.wheel = Wheel(self.clock)
        self.called: list[float] = []

    def note(self) -> None:
        """Record the time of this call."""
        self.called.append(self.wheel.seconds())

    def test_when(self) -> None:
        """A call is never early and hardly late, in any order of calls."""
        rng = random.Random(1)
        due = [(rng.uniform(0.0, 20.0), number) for number in range(200)]
        made: dict[int, float] = {}
        for delay, number in due:
            self.wheel.callLater(delay, lambda number: made.setdefault(number, self.clock.seconds()), number)
        start = self.clock.seconds()
        self.clock.pump([0.01] * 2100)
        for delay, number in due:
            self.assertGreaterEqual(made[number], start + delay)
            self.assertLess(made[number], start + delay + STEP + 0.02)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancel(self) -> None:
        """A cancelled call is not made, cancelling twice is harmless, and the last one leaves nothing."""
        calls = [self.wheel.callLater(delay, self.note) for delay in (1.0, 1.0, 5.0)]
        calls[0].cancel()
        self.clock.advance(2.0)
        self.assertEqual(len(self.called), 1)
        for call in calls:
            call.cancel()
            call.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_call(self) -> None:
        """The reactor knows of one call, for the first that is due."""
        for delay in (9.0, 3.0, 6.0):
            self.wheel.callLater(delay, self.note)
        (call,) = self.clock.getDelayedCalls()
        self.assertLess(call.getTime(), self.clock.seconds() + 3.0 + STEP)

    def test_from_within(self) -> None:
        """A call may make another, one without a delay too, and cancel one that is due with it."""
        later: list[object] = []

        def first() -> None:
            other.cancel()
            self.wheel.callLater(0.0, self.note)
            later.append(self.wheel.callLater(1.0, self.note))

        self.wheel.callLater(1.0, first)
        other = self.wheel.callLater(1.0, self.note)
        self.clock.advance(1.0 + STEP)
        self.assertEqual(self.called, [])
        self.clock.pump([STEP] * 20)
        self.assertEqual(len(self.called), 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_errors(self) -> None:
        """An error is logged and costs the others nothing."""

        def broken() -> None:
            raise ValueError("ours")

        self.wheel.callLater(1.0, broken)
        self.wheel.callLater(1.0, self.note)
        self.clock.advance(2.0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(len(self.called), 1)
