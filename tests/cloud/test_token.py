"""Tests of `tower.cloud.token`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs as captured_logs
from twisted.trial.unittest import SynchronousTestCase

from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.token import PAUSE, RefreshedToken


class TokenTests(SynchronousTestCase):
    """A token whose fetches the test answers."""

    def setUp(self) -> None:
        """Make one with a margin of 300 s."""
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.fetches: list[Deferred[tuple[str, float]]] = []
        self.token: RefreshedToken[str] = RefreshedToken(self.clock, self.fetch)

    def fetch(self) -> Deferred[tuple[str, float]]:
        """Begin a fetch."""
        self.fetches.append(Deferred())
        return self.fetches[-1]

    def get(self) -> Deferred[str]:
        """Request the token."""
        return Deferred.fromCoroutine(self.token.get())

    def answer(self, secret: str, lifetime: float = 3600.0) -> None:
        """Answer the last fetch."""
        self.fetches[-1].callback((secret, lifetime))

    def have(self, secret: str = "one", lifetime: float = 3600.0) -> None:
        """Fetch a token."""
        got = self.get()
        self.answer(secret, lifetime)
        self.assertEqual(self.successResultOf(got), secret)

    def test_kept(self) -> None:
        """It is fetched once and kept."""
        self.assertEqual(self.fetches, [])
        self.have()
        self.clock.advance(3299)
        self.assertEqual(self.successResultOf(self.get()), "one")
        self.assertEqual(len(self.fetches), 1)

    def test_shared(self) -> None:
        """Concurrent calls wait for one fetch."""
        waiting = [self.get() for _ in range(5)]
        self.assertEqual(len(self.fetches), 1)
        self.answer("one")
        self.assertEqual([self.successResultOf(each) for each in waiting], ["one"] * 5)

    def test_renewed_before_the_end(self) -> None:
        """Near its expiry one fetch runs, and the old token is returned until the new one arrives."""
        self.have()
        self.clock.advance(3300)
        self.assertEqual(self.successResultOf(self.get()), "one")
        self.assertEqual(self.successResultOf(self.get()), "one")
        self.assertEqual(len(self.fetches), 2)
        self.answer("two")
        self.assertEqual(self.successResultOf(self.get()), "two")
        self.clock.advance(3299)
        self.assertEqual(self.successResultOf(self.get()), "two")
        self.assertEqual(len(self.fetches), 2)

    def test_short_life(self) -> None:
        """One that lives no longer than the margin is kept for half of its life."""
        self.have(lifetime=200)
        self.clock.advance(99)
        self.successResultOf(self.get())
        self.assertEqual(len(self.fetches), 1)
        self.clock.advance(1)
        self.successResultOf(self.get())
        self.assertEqual(len(self.fetches), 2)

    def test_ended(self) -> None:
        """After its end it is not used any more."""
        self.have()
        self.clock.advance(3600)
        got = self.get()
        self.assertNoResult(got)
        self.answer("two")
        self.assertEqual(self.successResultOf(got), "two")

    def test_renewal_fails(self) -> None:
        """When the renewal fails the old one serves, and the cloud is left alone for a while."""
        self.have("hunter2")
        self.clock.advance(3300)
        self.successResultOf(self.get())
        with captured_logs() as logs:
            self.fetches[-1].errback(CloudError("cloud is down"))
        (event,) = logs
        said = event["log_format"].format(**event)
        self.assertIn("cloud is down; the old one is valid for 300 s more", said)
        self.assertNotIn("hunter2", str(event))
        self.assertEqual(self.successResultOf(self.get()), "hunter2")
        self.clock.advance(PAUSE - 1)
        self.successResultOf(self.get())
        self.assertEqual(len(self.fetches), 2)
        self.clock.advance(1)
        self.successResultOf(self.get())
        self.assertEqual(len(self.fetches), 3)

    def test_fetch_fails(self) -> None:
        """Without an old token all calls get the error, and the next call fetches again."""
        waiting = [self.get(), self.get()]
        self.fetches[-1].errback(CloudError("cloud is down"))
        for each in waiting:
            self.failureResultOf(each, CloudError)
        again = self.get()
        self.assertEqual(len(self.fetches), 2)
        self.answer("one")
        self.assertEqual(self.successResultOf(again), "one")

    def test_fetch_raises(self) -> None:
        """A fetch that raises at once is the same."""

        async def fetch() -> tuple[str, float]:
            raise CloudError("no")

        token = RefreshedToken(self.clock, fetch)
        self.failureResultOf(Deferred.fromCoroutine(token.get()), CloudError)
        self.failureResultOf(Deferred.fromCoroutine(token.get()), CloudError)

    def test_wrong_clocks(self) -> None:
        """Only the lifetime since its arrival counts, not the time of day."""
        got = self.get()
        self.clock.advance(100)
        self.answer("one", 1000)
        self.successResultOf(got)
        self.clock.advance(699)
        self.successResultOf(self.get())
        self.assertEqual(len(self.fetches), 1)
        self.clock.advance(300)
        self.assertEqual(self.successResultOf(self.get()), "one")
        self.clock.advance(1)
        self.assertNoResult(self.get())

    def test_ended_already(self) -> None:
        """An expired token, or an invalid lifetime, is an error."""
        for lifetime in (0.0, -1.0, float("nan")):
            got = self.get()
            self.answer("one", lifetime)
            self.failureResultOf(got, CloudError)

    def test_one_gives_up(self) -> None:
        """A cancelled call leaves the fetch to others."""
        first, second = self.get(), self.get()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.answer("one")
        self.assertEqual(self.successResultOf(second), "one")

    def test_give_up_together(self) -> None:
        """A callback may cancel another call."""
        first, second = self.get(), self.get()
        first.addCallback(lambda _: second.cancel())
        self.answer("one")
        self.successResultOf(first)
        self.failureResultOf(second, CancelledError)

    def test_forget(self) -> None:
        """A forgotten token is fetched again."""
        self.have()
        self.token.forget()
        self.assertNoResult(self.get())
        self.assertEqual(len(self.fetches), 2)

    def test_forget_another(self) -> None:
        """Only the given token is forgotten, not a newer one."""
        self.have("two")
        self.token.forget("one")
        self.assertEqual(self.successResultOf(self.get()), "two")
        self.token.forget("two")
        self.assertNoResult(self.get())

    def used(self, *answers: Any) -> tuple[Deferred[Any], list[str]]:
        """Use the token for something that answers so; return the result and the tokens it was asked with."""
        left = list(answers)
        asked: list[str] = []

        async def ask(secret: str) -> Any:
            asked.append(secret)
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return Deferred.fromCoroutine(self.token.used_for(ask)), asked

    def test_unauthorized(self) -> None:
        """After a 401 it is asked once more, with a new one."""
        self.have("one")
        result, asked = self.used(CloudAnswerError(401, "no"), "fine")
        self.assertNoResult(result)
        self.answer("two")
        self.assertEqual(self.successResultOf(result), "fine")
        self.assertEqual(asked, ["one", "two"])
        self.assertEqual(self.successResultOf(self.get()), "two")

    def test_unauthorized_again(self) -> None:
        """A second 401 is the answer."""
        self.have("one")
        result, asked = self.used(CloudAnswerError(401, "no"), CloudAnswerError(401, "still no"))
        self.answer("two")
        self.assertEqual(str(self.failureResultOf(result, CloudAnswerError).value), "still no")
        self.assertEqual(len(asked), 2)

    def test_other_answers(self) -> None:
        """Any other answer is passed on, and the token kept."""
        self.have("one")
        result, asked = self.used(CloudAnswerError(403, "forbidden"))
        self.failureResultOf(result, CloudAnswerError)
        self.assertEqual(asked, ["one"])
        self.assertEqual(self.successResultOf(self.get()), "one")

    def test_hidden(self) -> None:
        """It is not in a repr."""
        self.have("hunter2")
        self.assertNotIn("hunter2", repr(self.token))
