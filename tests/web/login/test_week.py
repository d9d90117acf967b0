"""A week of work with `tower login`: providers, users and the proxy share one clock, which runs fast."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.clocked_provider import ClockedProvider
from tests.fakes.id_tokens import CLIENT, NOW, URL
from tests.fakes.login_week import Laptop, MemoryDoor, pass_time
from tests.fakes.logins import SERVER, LoginKit
from tower.cli.login import signing
from tower.web.access.authentication.login.confirmer import AGE, JITTER, PERIOD
from tower.web.access.authentication.login.token_endpoint import TokenEndpoint
from tower.web.login.login_settings import LoginSettings

#: The promise for removed users, s.
OUT = 600.0

HOUR, DAY = 3600, 86400
MORNING, EVENING = 8 * HOUR + 1800, 18 * HOUR


class WeekTests(SynchronousTestCase):
    """One provider, one proxy, and laptops.  Times are in s since Monday, 0:00.

    :ivar period: of the proxy's work, s; longer in whole weeks.
    """

    period = PERIOD

    def begin(self, *users: str, **provider: Any) -> None:
        """Prepare all of them."""
        clock: Any = Clock()
        clock.advance(NOW)
        self.clock, self.random = clock, Random(7)
        self.provider = ClockedProvider(clock, **provider)
        self.kit = LoginKit(
            self,
            LoginSettings({URL: CLIENT}),
            self.provider,
            lambda reactor: TokenEndpoint(reactor, self.provider),
            clock,
        )
        door = MemoryDoor(self.kit)
        self.patch(signing, "reachable", door.reachable)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.laptops = {}
        for name in users:
            self.provider.users[name] = ["dev"]
            self.laptops[name] = Laptop(name, door, self.provider, Path(folder.name))
        self.events: list[tuple[float, Callable[[], object]]] = []

    @property
    def now(self) -> float:
        """The time."""
        return float(self.clock.seconds()) - NOW

    def at(self, day: int, hour: float, event: Callable[[], object]) -> None:
        """Plan an event; days begin with 0."""
        self.events.append((day * DAY + hour * HOUR, event))

    def until(self, time: float) -> None:
        """Let time pass."""
        pass_time(self.kit, self.laptops.values(), time - self.now, self.period)

    def plan_work(self, *users: str, watch: str = "", days: int = 5) -> None:
        """Plan days of work of some users, with a command every few minutes and a lunch break.

        :param watch: runs one more command all day, until the lid is closed.
        """
        for day in range(days):
            for name in users:
                laptop, time = self.laptops[name], MORNING
                if name == watch:
                    self.at(day, MORNING / HOUR, laptop.begin_watch)
                    self.at(day, EVENING / HOUR, laptop.sleep)
                while time < EVENING:
                    self.at(day, time / HOUR, laptop.work)
                    pause = 75 * 60 if 12 * HOUR <= time < 13 * HOUR else self.random.uniform(20, 900)
                    time += int(pause)

    def play(self) -> None:
        """Let the planned events happen."""
        for time, event in sorted(self.events, key=lambda each: each[0]):
            self.until(time)
            event()
        self.until(7 * DAY)

    def visits(self, user: str) -> int:
        """Return how often a user logged in by browser."""
        return Counter(self.provider.visits)[user]

    def restart(self) -> None:
        """Restart the proxy, which ends all connections."""
        for each in self.laptops.values():
            each.sleep()
        self.kit.stop()
        self.kit.start()

    def test_week(self) -> None:
        """One login a day, with tokens that change, a restart, an outage, and a lost answer."""
        self.begin("alice", "bob", grace=3.0)
        self.period = 60.0
        self.plan_work("alice", "bob", watch="alice")
        self.at(3, 11, self.restart)
        self.at(3, 11.001, self.laptops["alice"].begin_watch)
        self.at(3, 15, lambda: setattr(self.provider, "is_down", True))
        self.at(3, 15.5, lambda: setattr(self.provider, "is_down", False))
        self.at(4, 10, lambda: setattr(self.provider, "loses_next", True))
        self.play()
        self.assertFalse(self.provider.loses_next)
        for name, laptop in self.laptops.items():
            self.assertEqual(self.visits(name), 5, name)
            outage = [text for time, text in laptop.errors if "does not answer" in text]
            others = [text for _, text in laptop.errors if "does not answer" not in text]
            self.assertEqual(len(others), 5, others)
            self.assertIn(f"run 'tower login {SERVER}'", others[0])
            self.assertTrue(all("has expired" in text for text in others[1:]), others)
            self.assertLess(len(outage), 20)
            times = self.provider.refreshes[name]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            self.assertGreaterEqual(sorted(gaps)[1], AGE - JITTER, "one is the repeated question")
        self.assertGreater(len(self.provider.refreshes["alice"]), 5 * 60)
        self.assertEqual(len(self.kit.sessions.list()), 0)

    def test_without_refresh_tokens(self) -> None:
        """A provider without refresh tokens costs one login a day, too, and is not asked meanwhile."""
        self.begin("alice", has_refresh=False)
        self.period = 60.0
        self.plan_work("alice", watch="alice")
        self.at(2, 11, self.restart)
        self.play()
        self.assertEqual(self.visits("alice"), 5)
        self.assertEqual(self.provider.refreshes, {})

    def test_removed_user(self) -> None:
        """Users who were removed at the provider are out within ten minutes, busy or not."""
        self.begin("alice", "carol", "dave")
        busy, idle = self.laptops["carol"], self.laptops["dave"]
        self.plan_work("alice", days=1)
        self.until(MORNING)
        busy.begin_watch()
        idle.work()
        removed = 10 * HOUR + 7 * 60
        self.until(removed)
        for name in ("carol", "dave"):
            del self.provider.users[name]
        while busy.watch is not None:
            self.assertLess(self.now - removed, OUT)
            busy.command()
            self.until(self.now + 20)
        self.assertIn("has ended", busy.watch_ended[1])
        self.until(removed + OUT)
        for laptop in (busy, idle):
            self.assertIsNone(laptop.command())
            self.assertIn("this login session has ended", laptop.errors[-1][1])
            self.assertIn(f"(tower login {SERVER})", laptop.errors[-1][1])
            self.assertRaises(LookupError, laptop.log_in)
        self.play()
        self.assertEqual(self.visits("alice"), 1)

    def test_administrator(self) -> None:
        """An administrator ends a session at once; the user logs in again if the account still exists."""
        self.begin("alice", "bob")
        self.period = 60.0
        alice = self.laptops["alice"]
        self.plan_work("alice", "bob", watch="alice", days=2)

        def end() -> None:
            assert alice.watch is not None
            ended = Deferred.fromCoroutine(self.kit.sessions.end(alice.watch.key))
            self.successResultOf(ended)
            alice.sweep()
            self.assertEqual(alice.watch_ended[0] - NOW, self.now)
            self.assertIsNone(alice.command())
            self.assertIn("this login session has ended", alice.errors[-1][1])

        self.at(1, 14, end)
        self.play()
        self.assertEqual((self.visits("alice"), self.visits("bob")), (3, 2))

    def test_lost_answer(self) -> None:
        """A provider that accepts each refresh token once costs one more login when its answer is lost."""
        self.begin("alice")
        self.plan_work("alice", days=2)
        self.at(1, 10, lambda: setattr(self.provider, "loses_next", True))
        self.play()
        self.assertEqual(self.visits("alice"), 3)
        self.assertIn("(tower login", [text for _, text in self.laptops["alice"].errors][2])

    def test_asleep(self) -> None:
        """A laptop that sleeps all night needs one login in the morning, and one that slept at lunch none."""
        self.begin("erin")
        erin = self.laptops["erin"]
        self.until(MORNING)
        erin.begin_watch()
        self.until(12 * HOUR)
        erin.sleep()
        self.until(15 * HOUR)
        self.assertIsNotNone(erin.work())
        self.assertEqual(self.visits("erin"), 1)
        erin.begin_watch()
        self.until(DAY + MORNING)
        self.assertIsNone(erin.watch, "its session has expired")
        self.assertAlmostEqual(erin.watch_ended[0] - NOW, MORNING + 12 * HOUR, delta=20)
        self.assertIsNotNone(erin.work())
        self.assertEqual(self.visits("erin"), 2)
