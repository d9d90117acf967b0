"""Tests of the live tunnels of every cluster."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.errors import ClusterUnreachable
from tower.tunnels import RECONNECTING, Tunnels


class TunnelsTests(SynchronousTestCase):
    """Adding, picking, waiting, cutting."""

    def setUp(self) -> None:
        """Start with none."""
        self.clock = Clock()
        self.clock.advance(1e9)
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        self.changes: list[str] = []
        self.tunnels.watch(self.changes.append)

    def test_round_robin(self) -> None:
        """Each tunnel of a cluster is picked in its turn, and no other cluster's."""
        one, two, other = FakeTunnel("alpha"), FakeTunnel("alpha"), FakeTunnel("beta")
        for tunnel in (one, two, other):
            self.tunnels.add(tunnel)
        self.assertEqual([self.tunnels.pick("alpha") for _ in range(4)], [one, two, one, two])
        self.assertEqual(list(self.tunnels), [one, two, other])
        self.assertIs(self.tunnels.pick("gamma"), None)

    def test_draining(self) -> None:
        """One that drains is picked only when there is no other."""
        one, two = FakeTunnel("alpha"), FakeTunnel("alpha")
        for tunnel in (one, two):
            self.tunnels.add(tunnel)
        one.draining = True
        one.on_change()
        self.assertEqual([self.tunnels.pick("alpha") for _ in range(2)], [two, two])
        self.tunnels.remove(two)
        self.assertIs(self.tunnels.pick("alpha"), one)
        self.assertEqual(self.changes, ["alpha"] * 4)

    def test_wait(self) -> None:
        """A waiting request gets the next tunnel of its cluster, not of another."""
        waiting = self.tunnels.wait("alpha", 5)
        self.tunnels.add(FakeTunnel("beta"))
        self.assertNoResult(waiting)
        tunnel = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        self.assertIs(self.successResultOf(waiting), tunnel)
        self.assertIs(self.successResultOf(self.tunnels.wait("alpha", 5)), tunnel)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_clock_set(self) -> None:
        """Whether an agent is waited for does not depend on how the time of day was set meanwhile."""
        day = Clock()
        tunnels = Tunnels(self.clock, day.seconds)
        tunnel = FakeTunnel("alpha")
        tunnels.add(tunnel)
        tunnels.remove(tunnel)
        day.rightNow += 86400
        waiting = tunnels.wait("alpha", 5)
        self.assertNoResult(waiting)
        tunnels.add(tunnel)
        self.assertIs(self.successResultOf(waiting), tunnel)
        tunnels.remove(tunnel)
        day.rightNow -= 2 * 86400
        self.clock.advance(RECONNECTING + 1)
        self.failureResultOf(tunnels.wait("alpha", 5), ClusterUnreachable)

    def test_in_vain(self) -> None:
        """After the timeout the error has the time when the agent was lost; nothing is left behind."""
        tunnel = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        self.tunnels.remove(tunnel)
        self.clock.advance(37)
        waiting = self.tunnels.wait("alpha", 5)
        self.clock.advance(5)
        error = self.failureResultOf(waiting, ClusterUnreachable).value
        self.assertEqual(
            str(error),
            "no agent of cluster alpha is connected; one was last seen at 2001-09-09T01:46:40Z: "
            "check whether an agent runs, and read its log",
        )
        self.tunnels.add(FakeTunnel("alpha"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_long_gone(self) -> None:
        """An agent that was away for long is not waited for."""
        tunnel = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        self.tunnels.remove(tunnel)
        self.clock.advance(RECONNECTING + 1)
        self.failureResultOf(self.tunnels.wait("alpha", 5), ClusterUnreachable)

    def test_never_seen(self) -> None:
        """One that never came is waited for only while the proxy is young."""
        early = self.tunnels.wait("alpha", 5)
        self.assertNoResult(early)
        self.clock.advance(RECONNECTING + 1)
        self.failureResultOf(early, ClusterUnreachable)
        error = self.failureResultOf(self.tunnels.wait("alpha", 5), ClusterUnreachable).value
        self.assertEqual(
            str(error),
            "no agent of cluster alpha has connected since this proxy started: check the agent's log",
        )

    def test_cancelled(self) -> None:
        """A cancelled wait is forgotten."""
        waiting = self.tunnels.wait("alpha", 5)
        waiting.addErrback(lambda _: None)
        waiting.cancel()
        self.tunnels.add(FakeTunnel("alpha"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cut(self) -> None:
        """Cutting closes the tunnels of a cluster, or those of one key, and they are picked no more."""
        one, two = FakeTunnel("alpha", "SHA256:a"), FakeTunnel("alpha", "SHA256:b")
        for tunnel in (one, two):
            self.tunnels.add(tunnel)
        self.assertEqual(self.tunnels.cut("alpha", "revoked", "SHA256:a"), 1)
        self.assertEqual((one.closings, two.closings), (["revoked"], []))
        self.assertEqual(self.tunnels.live("alpha"), [two])
        self.assertEqual(self.tunnels.cut("alpha", "removed"), 1)
        self.assertEqual(self.tunnels.live("alpha"), [])
        self.tunnels.remove(one)  # as it does when it is really gone
        self.assertEqual(self.tunnels.cut("alpha", "again"), 0)

    def test_last_seen(self) -> None:
        """It is now while there is a tunnel, then when the last one went, until forgotten."""
        self.assertIs(self.tunnels.last_seen("alpha"), None)
        tunnel = FakeTunnel("alpha")
        self.tunnels.add(tunnel)
        self.clock.advance(5)
        self.assertEqual(self.tunnels.last_seen("alpha"), 1e9 + 5)
        self.tunnels.remove(tunnel)
        self.clock.advance(5)
        self.assertEqual(self.tunnels.last_seen("alpha"), 1e9 + 5)
        self.tunnels.forget("alpha")
        self.assertIs(self.tunnels.last_seen("alpha"), None)

    def test_silent(self) -> None:
        """A tunnel that does not answer is not picked; the cluster was last seen at its last byte."""
        one, two = FakeTunnel("alpha"), FakeTunnel("alpha")
        checks: list[str] = []
        one.request_check = lambda: checks.append("the agent")
        self.tunnels.on_doubt = checks.append
        for tunnel in (one, two):
            self.tunnels.add(tunnel)
        self.tunnels.note_silence(one, None)
        self.assertEqual(len(self.changes), 2)
        self.tunnels.note_silence(one, 15.0)
        self.tunnels.note_silence(one, 16.0)
        self.assertEqual(len(self.changes), 3)
        self.assertTrue(self.tunnels.is_silent(one))
        self.assertEqual([self.tunnels.pick("alpha") for _ in range(2)], [two, two])
        self.assertIs(self.tunnels.silent_since("alpha"), None)
        self.assertEqual(self.tunnels.last_seen("alpha"), 1e9)
        self.tunnels.note_silence(two, 10.0)
        self.assertEqual(self.tunnels.silent_since("alpha"), 1e9 - 10)
        self.assertEqual(self.tunnels.last_seen("alpha"), 1e9 - 10)
        self.assertEqual({self.tunnels.pick("alpha") for _ in range(2)}, {one, two})
        self.assertEqual(checks, [])
        self.tunnels.note_silence(one, None)
        self.assertEqual((self.tunnels.last_seen("alpha"), checks), (1e9, ["the agent", "alpha"]))
        self.tunnels.note_silence(one, 15.0)
        self.tunnels.remove(two)
        self.tunnels.remove(one)
        self.assertIs(self.tunnels.silent_since("alpha"), None)
        self.assertEqual(self.tunnels.last_seen("alpha"), 1e9 - 10)
