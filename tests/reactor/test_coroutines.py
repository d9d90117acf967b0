"""Tests of `tower.reactor.coroutines`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.coroutines import deferred


class DeferredTests(SynchronousTestCase):
    """deferred."""

    def test_result(self) -> None:
        """It runs up to its first wait at once, and fires with the result."""
        waiting: Deferred[int] = Deferred()
        started: list[int] = []

        @deferred
        async def add(number: int, *, more: int) -> int:
            started.append(number)
            return number + more + await waiting

        answer = add(1, more=2)
        self.assertEqual(started, [1])
        self.assertNoResult(answer)
        waiting.callback(3)
        self.assertEqual(self.successResultOf(answer), 6)

    def test_error(self) -> None:
        """It fails with the error."""

        @deferred
        async def fail() -> None:
            raise KeyError("x")

        self.failureResultOf(fail(), KeyError)
