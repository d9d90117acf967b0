"""Tests of `tower.reactor.repeating`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.repeating import RepeatingTask


class UntilTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Have a timer whose work is in the test's hands."""
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
        """What the work raises, at once or later, is logged, and it is done again."""

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
        """Work that does not heed being cancelled is not done twice at once, but anew when it is over."""
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

    def test_hurry(self) -> None:
        """It is done at once, and the period begins anew."""
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
        """The first is served at once; who comes then waits for the next, all of them together."""
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
        """What is done because its time has come serves those, too, who would have had to wait longer."""
        self.timer.startService()
        self.done()
        self.clock.advance(1)
        self.timer.run_soon_at_most_every(100)
        self.done()
        self.timer.run_soon_at_most_every(100)
        self.clock.advance(15)
        self.assertEqual(self.times, [0.0, 1.0, 16.0])

    def test_hurry_while_it_works(self) -> None:
        """What is being done may be too late for what is new, so it is done once more."""
        self.timer.startService()
        self.timer.run_soon()
        self.timer.run_soon()
        self.done()
        self.clock.advance(0)
        self.assertEqual(len(self.times), 2)
        self.done()
        self.clock.advance(14.9)
        self.assertEqual(len(self.times), 2)

    def test_hurry_when_stopped(self) -> None:
        """A timer that does not run has nothing to hurry for."""
        self.timer.run_soon()
        self.timer.startService()
        self.done()
        self.timer.stopService()
        self.timer.run_soon()
        self.assertEqual((self.times, self.clock.getDelayedCalls()), ([0.0], []))
