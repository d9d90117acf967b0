"""Tests of `tower.control.member_checks`."""

from __future__ import annotations

from itertools import pairwise

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.control.member_checks import PAUSE, PERIOD, STEP, MemberChecks
from tower.kube.member_status import Check, MemberStatus
from tower.tunnels import Tunnels

GOOD = MemberStatus(Check("True", "Reachable"))
BAD = MemberStatus(Check("False", "ConnectionRefused"))


class CheckedTunnel(FakeTunnel):
    """A tunnel without a Tower agent.

    :ivar checks: the checks that have begun and not ended; the test ends them.
    :ivar count: number of checks that have begun.
    """

    def __init__(self, name: str = "alpha") -> None:
        super().__init__(name)
        self.checks: list[Deferred[MemberStatus]] = []
        self.count = 0
        self.check_member = self.begin

    async def begin(self) -> MemberStatus:
        """Begin a check."""
        self.count += 1
        check: Deferred[MemberStatus] = Deferred()
        self.checks.append(check)
        return await check

    def end(self, status: MemberStatus) -> None:
        """End the oldest check."""
        self.checks.pop(0).callback(status)


class MemberChecksTests(SynchronousTestCase):
    """When tunnels are checked."""

    def setUp(self) -> None:
        """Start without tunnels."""
        self.clock = Clock()
        self.clock.advance(100)
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        self.changes: list[str] = []
        self.service = MemberChecks(self.clock, self.tunnels)
        self.service.startService()
        self.tunnels.watch(self.changes.append)
        self.addCleanup(lambda: self.assertEqual(self.clock.getDelayedCalls(), []))
        self.addCleanup(self.service.stopService)

    def test_periodic(self) -> None:
        """A tunnel is checked when it opens and every period; only a change is announced."""
        tunnel = CheckedTunnel()
        self.tunnels.add(tunnel)
        self.assertEqual(tunnel.count, 1)
        self.changes.clear()
        for status, count in ((GOOD, 1), (GOOD, 1), (BAD, 2), (GOOD, 3)):
            tunnel.end(status)
            self.assertEqual((tunnel.member_status, len(self.changes)), (status, count))
            self.clock.advance(PERIOD)
        self.assertEqual(tunnel.count, 5)
        tunnel.end(GOOD)

    def test_agents_that_report(self) -> None:
        """A tunnel of a Tower agent is not checked."""
        self.tunnels.add(FakeTunnel())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slow_check(self) -> None:
        """A tunnel has one check at a time."""
        tunnel = CheckedTunnel()
        self.tunnels.add(tunnel)
        self.clock.advance(PERIOD)
        self.service.check_soon("alpha")
        self.assertEqual(tunnel.count, 1)
        tunnel.end(GOOD)
        self.clock.advance(0)
        self.assertEqual(tunnel.count, 2)
        tunnel.end(GOOD)

    def test_gone(self) -> None:
        """A lost tunnel is not checked any more, and its check ends."""
        tunnel = CheckedTunnel()
        self.tunnels.add(tunnel)
        self.tunnels.remove(tunnel)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertIsNone(tunnel.member_status)

    def test_unexpected_outcomes(self) -> None:
        """A request with an unexpected outcome causes a check at once, many of them one in each pause."""
        tunnel, other = CheckedTunnel(), CheckedTunnel("beta")
        self.tunnels.add(tunnel)
        self.tunnels.add(other)
        self.clock.advance(STEP)
        tunnel.end(GOOD)
        other.end(GOOD)
        self.clock.advance(1)
        for _ in range(100):
            self.tunnels.on_doubt("alpha")
            self.tunnels.on_doubt("unknown")
            if tunnel.checks:
                tunnel.end(GOOD)
        self.assertEqual((tunnel.count, other.count), (2, 1))
        self.clock.advance(PAUSE)
        self.assertEqual((tunnel.count, other.count), (3, 1))
        tunnel.end(GOOD)

    def test_forgotten(self) -> None:
        """A tunnel whose state was forgotten is checked at once."""
        tunnel = CheckedTunnel()
        self.tunnels.add(tunnel)
        tunnel.end(BAD)
        tunnel.member_status = None
        self.clock.advance(1)
        tunnel.on_change()
        self.assertEqual(tunnel.count, 2)
        tunnel.end(GOOD)

    def test_spread(self) -> None:
        """The checks of many tunnels that open at once begin one after another."""
        tunnels = [CheckedTunnel(f"c{number}") for number in range(300)]
        for tunnel in tunnels:
            self.tunnels.add(tunnel)
        begun: list[int] = []
        for _ in range(10):
            begun.append(sum(tunnel.count for tunnel in tunnels))
            self.clock.pump([STEP] * 40)
        self.assertEqual(begun[0], 1)
        self.assertEqual(begun[-1], 300)
        steps = [after - before for before, after in pairwise(begun)]
        self.assertLessEqual(max(steps), 41)
        for tunnel in tunnels:
            tunnel.end(GOOD)

    def test_restart(self) -> None:
        """A stop ends everything; tunnels that are open at a start are checked."""
        tunnel = CheckedTunnel()
        self.tunnels.add(tunnel)
        self.service.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.service.startService()
        self.clock.advance(STEP)
        self.assertEqual(tunnel.count, 2)
