"""Tests for `tower.server.profiling`."""

from __future__ import annotations

import cProfile
import marshal
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.status import StatusError
from tower.server.profiling import Profiling


def busy() -> int:
    """Use some time."""
    return sum(range(1000))


class ProfilingTests(SynchronousTestCase):
    """The pages."""

    def setUp(self) -> None:
        """Make the pages."""
        self.clock = Clock()
        self.profiling = Profiling(self.clock)

    def ask(self, page: bytes, query: bytes = b"") -> Any:
        """Return the answer of a page."""
        make = self.profiling.page(b"/debug/pprof" + page, query)
        assert make is not None
        return make()

    def test_pages(self) -> None:
        """Threads, objects, command line and a list of the pages."""
        for page in (b"", b"/"):
            self.assertIn(b"profile?seconds=N", self.ask(page).body)
        self.assertIn(b"test_pages", self.ask(b"/threads").body)
        self.assertIn(b"builtins.function\n", self.ask(b"/objects").body)
        self.assertIn(b"python", self.ask(b"/cmdline").body)
        for page in (b"/heap", b"x", b"/profile/"):
            self.assertIsNone(self.profiling.page(b"/debug/pprof" + page, b""))

    def test_profile(self) -> None:
        """A profile has the functions that ran; the next one can follow."""
        for _ in range(2):
            waiting = self.ask(b"/profile", b"seconds=2")
            busy()
            with self.assertRaises(StatusError) as caught:
                self.ask(b"/profile")
            self.assertIn("cpu profiling already in use", str(caught.exception))
            self.clock.advance(1)
            self.assertNoResult(waiting)
            self.clock.advance(1)
            self.assertIn(b"(busy)", self.successResultOf(waiting).body)

    def test_other_profiler(self) -> None:
        """Another profiler of the process is an error, and the next profile works once it has ended."""

        def busy_tool(_: object) -> None:
            raise ValueError("Another profiling tool is already active")

        patch = self.patch(cProfile.Profile, "enable", busy_tool)
        with self.assertRaises(StatusError) as caught:
            self.ask(b"/profile", b"seconds=1")
        self.assertIn("in use: end the other profiler", str(caught.exception))
        patch.restore()
        waiting = self.ask(b"/profile", b"seconds=1")
        self.clock.advance(1)
        self.assertIn(b"function calls", self.successResultOf(waiting).body)

    def test_binary(self) -> None:
        """Python's own form can be loaded by `pstats`."""
        waiting = self.ask(b"/profile", b"seconds=1&format=pstats")
        busy()
        self.clock.advance(1)
        stats = marshal.loads(self.successResultOf(waiting).body)
        self.assertIn("busy", [name for _, _, name in stats])

    def test_disconnected(self) -> None:
        """A client that disconnects ends its profile."""
        waiting: Deferred[Any] = self.ask(b"/profile")
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        again = self.ask(b"/profile", b"seconds=1")
        self.clock.advance(1)
        self.successResultOf(again)

    def test_wrong_duration(self) -> None:
        """The duration is a number of seconds up to the limit."""
        for text in (b"0", b"-1", b"nan", b"51", b"x", b"inf"):
            with self.assertRaises(StatusError) as caught:
                self.ask(b"/profile", b"seconds=" + text)
            self.assertEqual(caught.exception.code, 400)
