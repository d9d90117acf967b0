"""Tests of `tower.kube.rest.reflector_group`."""

from __future__ import annotations

from typing import cast

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.kube.rest.host_api import Object, WatchEvent
from tower.kube.rest.reflector import LONGEST_DELAY, SHORT, SOON, Reflector
from tower.kube.rest.reflector_group import COLLECT, ReflectorGroup
from tower.kube.rest.well_known import CONFIG_MAPS, PODS, SECRETS, SERVICES

RESOURCES = (SECRETS, SERVICES, PODS, CONFIG_MAPS)
HOUR = 3600.0


class Ignoring:
    """A follower of nothing."""

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """Ignore a list."""

    def changed(self, event: WatchEvent) -> None:
        """Ignore a change."""


class ReflectorGroupTests(SynchronousTestCase):
    """Four reflectors of one host."""

    def setUp(self) -> None:
        """Start them."""
        self.clock = Clock()
        self.host = FakeHost(self.clock)
        self.group = ReflectorGroup(self.clock)
        self.reflectors = [
            Reflector(self.host, each, "default", Ignoring(), self.clock, lambda: 0.5, group=self.group)
            for each in RESOURCES
        ]
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self._events = events
        for each in self.reflectors:
            each.start()
            self.addCleanup(each.stop)

    def lines(self) -> list[str]:
        """Return the new lines of the log."""
        found = [
            formatEvent(event) for event in self._events if "reflector" in str(event.get("log_namespace"))
        ]
        self._events.clear()
        return found

    def turn(self, seconds: float) -> None:
        """Let time pass in small steps."""
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def test_outage(self) -> None:
        """An outage that stops all is one line, and its end another one."""
        self.host.freeze()
        self.host.end_watches(0)
        self.turn(COLLECT)
        (line,) = self.lines()
        self.assertRegex(line, "^not following secrets and 3 other types: GET /watch.*check that the API")
        self.turn(600.0)
        self.assertEqual(self.lines(), [])
        self.host.thaw()
        self.turn(3 * LONGEST_DELAY)
        (line,) = self.lines()
        self.assertRegex(line, "^following secrets and 3 other types again, after 6.. s$")
        self.assertTrue(all(not each.failure for each in self.reflectors))

    def test_short(self) -> None:
        """An outage that is over before it is logged is not logged."""
        self.host.end_watches(0)
        self.turn(HOUR / 60)
        self.assertEqual((self.lines(), [each.counts.failures for each in self.reflectors]), ([], [1] * 4))

    def test_end(self) -> None:
        """When the API server answers one, the others do not wait until their own time."""
        self.host.fail_next(0, count=4 * 8, verbs=["watch"])
        self.host.end_watches(0)
        while sum(each.failure == "" for each in self.reflectors) == 0:
            self.turn(0.1)
        self.turn(SOON)
        self.assertEqual([each.failure for each in self.reflectors], [""] * 4)

    def test_single(self) -> None:
        """A failure of one type does not hurry others, and names its type alone."""
        self.host.fail_next(403, count=3, verbs=["watch"], plural="secrets")
        self.turn(SHORT)
        self.host.end_watches()
        self.turn(COLLECT)
        (line,) = self.lines()
        self.assertRegex(line, "^not following secrets: .*403")
        self.turn(60.0)
        (line,) = self.lines()
        self.assertRegex(line, "^following secrets again, after")

    def test_other_cause(self) -> None:
        """A type that fails for another cause at the end of an outage has another line."""
        self.host.fail_next(0, count=4, verbs=["watch"])
        self.host.end_watches(0)
        self.turn(COLLECT)
        self.assertEqual(len(self.lines()), 1)
        self.host.fail_next(404, count=50, verbs=["watch"], plural="pods")
        self.turn(60.0)
        (line,) = self.lines()
        self.assertRegex(line, "^not following pods: .*404")
        self.turn(HOUR)
        (line,) = self.lines()
        self.assertRegex(line, "^following pods again, after")

    def test_stop(self) -> None:
        """Nothing is left when all have stopped."""
        self.host.end_watches(0)
        for each in self.reflectors:
            each.stop()
        self.assertEqual((self.clock.getDelayedCalls(), self.group.members), ([], []))
