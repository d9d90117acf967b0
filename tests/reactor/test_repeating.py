"""Tests of `tower.reactor.repeating`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.repeating import RepeatingTask, periodic


class UntilTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Make a timer whose work the test controls."""
        self.clock = Clock()
        self.work: list[Deferred[None]] = []
        self.times: list[float] = []
        self.timer = RepeatingTask(self.clock, 15.0, self.do, timeout=30.0)

    async def do(self) -> None:
        """Wait for the test."""
        self.times.append(self.clock.seconds())
        self.work.append(Deferred())
        await self.work[-1]

    def done(self) -> None:
        """Be done with the last."""
        self.work[-1].callback(None)

    def test_it_waits_after_its_work(self) -> None:
        """The next time comes a period after the last one was over."""
        self.timer.startService()
        self.clock.advance(7)
        self.done()
        self.clock.advance(14.9)
        self.assertEqual(self.times, [0.0])
        self.clock.advance(0.1)
        self.assertEqual(self.times, [0.0, 22.0])

    def test_failures(self) -> None:
        """An error of the work, immediate or later, is logged, and the work is repeated."""

        def fail() -> Deferred[None]:
            self.times.append(self.clock.seconds())
            raise RuntimeError("at once")

        self.timer.startService()
        self.work[0].errback(RuntimeError("later"))
        self.timer._work = fail
        self.clock.advance(15)
        self.clock.advance(15)
        self.assertEqual(self.times, [0.0, 15.0, 30.0])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 3)

    def test_it_takes_too_long(self) -> None:
        """It is cancelled, logged, and done again a period later."""
        self.timer.startService()
        self.clock.advance(30)
        self.clock.advance(15)
        self.assertEqual(self.times, [0.0, 45.0])
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_stop_while_it_waits(self) -> None:
        """Nothing is left."""
        self.timer.startService()
        self.done()
        self.successResultOf(self.timer.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_it_works(self) -> None:
        """The work is cancelled, without a word in the log, and nothing is left."""
        cancelled: list[object] = []
        self.timer.startService()
        self.work[0]._canceller = cancelled.append
        self.successResultOf(self.timer.stopService())
        self.assertEqual((len(cancelled), self.clock.getDelayedCalls()), (1, []))
        self.assertEqual(self.flushLoggedErrors(CancelledError), [])

    def test_stop_while_it_works_once_more(self) -> None:
        """The same when it has waited before."""
        self.timer.startService()
        self.done()
        self.clock.advance(15)
        self.timer.stopService()
        self.assertEqual((len(self.work), self.clock.getDelayedCalls()), (2, []))

    def test_start_again(self) -> None:
        """It begins at once, as the first time."""
        for _ in range(2):
            self.timer.startService()
            self.timer.startService()
            self.done()
            self.clock.advance(1)
            self.timer.stopService()
        self.assertEqual(self.times, [0.0, 1.0])

    def test_start_again_while_the_old_work_lingers(self) -> None:
        """Work that ignores its cancellation is not done twice at once, but again when it is over."""
        lingering: Deferred[None] = Deferred()

        async def linger() -> None:
            self.times.append(self.clock.seconds())
            try:
                await Deferred()
            except CancelledError:
                await lingering

        self.timer._work = linger
        self.timer.startService()
        self.timer.stopService()
        self.timer.startService()
        self.assertEqual(self.times, [0.0])
        self.timer._work = self.do
        lingering.callback(None)
        self.clock.advance(0)
        self.assertEqual(self.times, [0.0, 0.0])

    def test_run_soon(self) -> None:
        """The work is done at once, and the period starts again."""
        self.timer.startService()
        self.done()
        self.clock.advance(5)
        self.timer.run_soon()
        self.done()
        self.clock.advance(14.9)
        self.assertEqual(self.times, [0.0, 5.0])
        self.clock.advance(0.1)
        self.assertEqual(self.times, [0.0, 5.0, 20.0])

    def test_run_soon_at_most_every(self) -> None:
        """The first request is served at once; later ones wait together for the next time."""
        self.timer.startService()
        self.done()
        for _ in range(14):
            self.clock.advance(1)
            self.timer.run_soon_at_most_every(10)
            if not self.work[-1].called:
                self.done()
        self.assertEqual(self.times, [0.0, 1.0, 11.0])
        self.clock.advance(7)
        self.done()
        self.assertEqual(self.times, [0.0, 1.0, 11.0, 21.0])
        self.clock.advance(15)
        self.assertEqual(self.times, [0.0, 1.0, 11.0, 21.0, 36.0])

    def test_run_soon_at_most_every_while_it_works(self) -> None:
        """It is done once more, when the time for that has come; which may be as soon as it is done."""
        self.timer.startService()
        self.timer.run_soon_at_most_every(10)
        self.clock.advance(2)
        self.done()
        self.clock.advance(0)
        self.assertEqual(self.times, [0.0, 2.0])
        self.timer.run_soon_at_most_every(10)
        self.done()
        self.clock.advance(8)
        self.assertEqual(self.times, [0.0, 2.0, 10.0])

    def test_run_soon_at_most_every_before_its_time(self) -> None:
        """Work done because the period ended also serves the requests that had to wait."""
        self.timer.startService()
        self.done()
        self.clock.advance(1)
        self.timer.run_soon_at_most_every(100)
        self.done()
        self.timer.run_soon_at_most_every(100)
        self.clock.advance(15)
        self.assertEqual(self.times, [0.0, 1.0, 16.0])

    def test_run_soon_while_it_works(self) -> None:
        """Work that is being done may be too late for a request, so it is repeated once."""
        self.timer.startService()
        self.timer.run_soon()
        self.timer.run_soon()
        self.done()
        self.clock.advance(0)
        self.assertEqual(len(self.times), 2)
        self.done()
        self.clock.advance(14.9)
        self.assertEqual(len(self.times), 2)

    def test_run_soon_when_stopped(self) -> None:
        """A stopped timer does nothing."""
        self.timer.run_soon()
        self.timer.startService()
        self.done()
        self.timer.stopService()
        self.timer.run_soon()
        self.assertEqual((self.times, self.clock.getDelayedCalls()), ([0.0], []))


class PeriodicTests(SynchronousTestCase):
    """Timers that survive errors of their bodies."""

    def test_survives(self) -> None:
        """A body that raises, at once or later, is called again, and its failure is logged."""
        clock, calls = Clock(), []

        def body() -> Deferred[None] | None:
            calls.append(clock.seconds())
            if len(calls) == 1:
                raise ZeroDivisionError
            if len(calls) == 2:
                return fail(ZeroDivisionError())
            return None

        timer = periodic(clock, 2.0, body)
        timer.startService()
        clock.pump([2.0, 2.0])
        timer.stopService()
        self.assertEqual(calls, [0.0, 2.0, 4.0])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
