"""`tower.cloud.gce.polling`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish, started_clock
from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.gce.key_installer import NotInTimeError, poll


class PollTests(SynchronousTestCase):
    """When it tries, and what it ends with."""

    def setUp(self) -> None:
        """Start a clock."""
        self.clock = started_clock()
        self.start = self.clock.seconds()
        self.tries: list[float] = []

    async def attempt(self) -> None:
        """Fail."""
        self.tries.append(self.clock.seconds() - self.start)
        raise CloudError("no luck")

    def test_pace(self) -> None:
        """It tries each two seconds, not at once, and gives up within thirty."""
        with self.assertRaisesRegex(NotInTimeError, "^timed out waiting for the condition: no luck$"):
            finish(self.clock, poll(self.clock, self.attempt))
        self.assertEqual([float(second) for second in range(2, 30, 2)], self.tries)

    def test_hanging(self) -> None:
        """An attempt that hangs is cancelled when the time is over."""
        hanging: list[Deferred[None]] = []
        cancelled: list[float] = []

        async def attempt() -> None:
            hanging.append(Deferred(lambda _: cancelled.append(self.clock.seconds() - self.start)))
            await hanging[0]

        with self.assertRaisesRegex(NotInTimeError, "^timed out waiting for the condition$"):
            finish(self.clock, poll(self.clock, attempt))
        self.assertEqual([30.0], cancelled)

    def test_retry_after(self) -> None:
        """A cloud that wants to be left alone is."""

        async def attempt() -> None:
            self.tries.append(self.clock.seconds() - self.start)
            raise CloudAnswerError(429, "too often", retry_after=9.0)

        with self.assertRaises(NotInTimeError):
            finish(self.clock, poll(self.clock, attempt))
        self.assertEqual([2.0, 11.0, 20.0, 29.0], self.tries)

    def test_other_errors(self) -> None:
        """An exception other than a cloud's error ends it."""

        async def attempt() -> None:
            self.tries.append(0)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            finish(self.clock, poll(self.clock, attempt))
        self.assertEqual([0], self.tries)

    def test_cancel(self) -> None:
        """It can be cancelled."""
        polling = Deferred.fromCoroutine(poll(self.clock, self.attempt))
        polling.addErrback(lambda _: None)
        polling.cancel()
        self.clock.advance(60)
        self.assertEqual([], self.tries)
        self.assertEqual([], self.clock.getDelayedCalls())
