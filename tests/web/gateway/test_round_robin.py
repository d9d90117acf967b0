"""Tests of `tower.web.gateway.round_robin`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.interfaces import IReactorTime
from twisted.trial.unittest import SynchronousTestCase

from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.round_robin import SLICE, RoundRobin


class Reactor:
    """A clock that makes calls as a reactor does: those scheduled in one turn run in the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Callable[[], Any]] = []

    def seconds(self) -> float:
        """Return the time."""
        return self.now

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> None:  # noqa: A002
        """Call in the next turn."""
        assert not delay
        self.calls.append(lambda: callable(*args))

    def turn(self) -> None:
        """Make the calls."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Worker:
    """A worker with several pieces, each of which takes time."""

    def __init__(self, name: str, kit: RoundRobinTests, pieces: int, takes: float = 0.0) -> None:
        self.name = name
        self.kit = kit
        self.pieces = pieces
        self.takes = takes

    def take_turn(self) -> None:
        """Do one piece."""
        self.kit.done.append(self.name)
        self.kit.reactor.now += self.takes
        self.pieces -= 1
        if self.pieces:
            self.kit.join(self)


class RoundRobinTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Start with an empty queue."""
        self.reactor = Reactor()
        self.turns = RoundRobin(cast(IReactorTime, self.reactor))
        self.done: list[str] = []

    def join(self, worker: Any) -> None:
        """Queue a worker in place of a connection."""
        self.turns.join(cast(HTTPChannel, worker))

    def test_one_after_the_other(self) -> None:
        """Each waiting one has one turn, then the reactor runs."""
        for name, pieces in (("a", 3), ("b", 1), ("c", 2)):
            self.join(Worker(name, self, pieces))
        self.assertEqual(self.done, [])
        said = []
        while len(self.turns):
            self.reactor.turn()
            said.append("".join(self.done))
            self.done.clear()
        self.assertEqual(said, ["abc", "ac", "a"])
        self.assertEqual(self.reactor.calls, [])

    def test_slice(self) -> None:
        """Long turns are spread over several of the reactor's, in the same order."""
        for name in "abc":
            self.join(Worker(name, self, 2, takes=SLICE))
        for expected in ("a", "ab", "abc", "abca", "abcab", "abcabc"):
            self.reactor.turn()
            self.assertEqual("".join(self.done), expected)
        self.assertEqual(len(self.turns), 0)

    def test_failure(self) -> None:
        """A failure does not affect the turns of others."""

        class Failing(Worker):
            def take_turn(self) -> None:
                raise ZeroDivisionError

        self.join(Failing("a", self, 1))
        self.join(Worker("b", self, 1))
        self.assertRaises(ZeroDivisionError, self.reactor.turn)
        self.reactor.turn()
        self.assertEqual(self.done, ["b"])
