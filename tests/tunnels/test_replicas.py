"""Tests of `tower.tunnels.replicas`, and of the registry's use of it."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.kube.member_status import Check, MemberStatus
from tower.tunnels import Tunnels
from tower.tunnels.replicas import best, preferred, problem

GOOD = Check("True", "Fine")
BAD = Check("False", "Broken", "cure it")
WORKS = MemberStatus(GOOD, GOOD, GOOD, version="v1.31.2")
DOWN = MemberStatus(api_server=BAD)
REFUSED = MemberStatus(GOOD, BAD)
WITHOUT_RIGHTS = MemberStatus(GOOD, GOOD, BAD)


def tunnels(*states: MemberStatus | None) -> list[FakeTunnel]:
    """Return a tunnel for each state."""
    return [FakeTunnel(member_status=state) for state in states]


class ReplicasTests(SynchronousTestCase):
    """The sum of several agents."""

    def test_problem(self) -> None:
        """The problem is the first failed check."""
        for state, found in (
            (None, None),
            (MemberStatus(), None),
            (WORKS, None),
            (DOWN, BAD),
            (WITHOUT_RIGHTS, BAD),
            (MemberStatus(GOOD, Check("False", "Token"), BAD), Check("False", "Token")),
        ):
            self.assertEqual(problem(state), found)

    def test_best(self) -> None:
        """The best state is one without a failed check, preferably checked."""
        self.assertIsNone(best(tunnels(None)))
        self.assertIsNone(best([]))
        for states in ((DOWN, WORKS), (WORKS, None), (MemberStatus(), WORKS), (WORKS, WITHOUT_RIGHTS)):
            self.assertEqual(best(tunnels(*states)), WORKS)
        self.assertEqual(best(tunnels(DOWN, WITHOUT_RIGHTS, REFUSED)), WITHOUT_RIGHTS)

    def test_preferred(self) -> None:
        """Streams go through the agents with the least problem; those that report nothing count as good."""
        for states, wanted in (
            ((WORKS, None, MemberStatus()), [0, 1, 2]),
            ((WORKS, DOWN, None), [0, 2]),
            ((DOWN, DOWN), [0, 1]),
            ((DOWN, REFUSED, WITHOUT_RIGHTS), [2]),
            ((DOWN,), [0]),
            ((), []),
        ):
            found = tunnels(*states)
            self.assertEqual(preferred(found), [found[index] for index in wanted])

    def test_draining(self) -> None:
        """A draining tunnel is used only if there is no other, even if the other has a problem."""
        one, two = tunnels(WORKS, DOWN)
        one.draining = True
        self.assertEqual(preferred([one, two]), [two])
        self.assertEqual(preferred([one]), [one])

    def test_registry(self) -> None:
        """The registry follows reports: it picks working agents, and has the best state and its version."""
        clock = Clock()
        live = Tunnels(clock, clock.seconds)
        changes: list[str] = []
        live.watch(changes.append)
        one, two = tunnels(None, WORKS)
        live.add(one)
        self.assertIsNone(live.member_status("alpha"))
        live.add(two)
        self.assertEqual({live.pick("alpha"), live.pick("alpha")}, {one, two})
        two.member_status = DOWN
        two.on_change()
        self.assertEqual([live.pick("alpha") for _ in range(3)], [one] * 3)
        self.assertEqual(live.member_status("alpha"), DOWN)
        self.assertEqual(live.kubernetes_version("alpha"), "v1.31.2")
        self.assertEqual(changes, ["alpha"] * 3)
        live.remove(one)
        self.assertIs(live.pick("alpha"), two)
        live.remove(two)
        self.assertIsNone(live.pick("alpha"))
        self.assertEqual(live.kubernetes_version("alpha"), "v1.31.2")
        live.forget("alpha")
        self.assertEqual(live.kubernetes_version("alpha"), "")

    def test_outcomes(self) -> None:
        """An outcome that contradicts the last check is a doubt."""
        clock = Clock()
        live = Tunnels(clock, clock.seconds)
        doubts: list[str] = []
        live.on_doubt = doubts.append
        for state, reached, count in (
            (None, True, 0),
            (None, False, 1),
            (WORKS, True, 0),
            (WORKS, False, 1),
            (DOWN, True, 1),
            (DOWN, False, 0),
        ):
            tunnel = tunnels(state)[0]
            tunnel.request_check = lambda: doubts.append("the agent")
            live.note_outcome(tunnel, reached=reached)
            self.assertEqual(doubts, ["the agent", "alpha"] * count)
            doubts.clear()

    def test_report(self) -> None:
        """A state that is known without a tunnel counts while there is none."""
        clock = Clock()
        live = Tunnels(clock, clock.seconds)
        changes: list[str] = []
        live.watch(changes.append)
        for state in (REFUSED, REFUSED):
            live.report("alpha", state)
        self.assertEqual((live.member_status("alpha"), changes), (REFUSED, ["alpha"]))
        live.add(tunnels(None)[0])
        self.assertIsNone(live.member_status("alpha"))
        live.report("alpha", None)
        live.report("alpha", None)
        self.assertEqual(changes, ["alpha"] * 3)

    def test_remember(self) -> None:
        """A sight by an earlier run counts until this one sees the cluster."""
        clock = Clock()
        live = Tunnels(clock, clock.seconds)
        live.remember("alpha", -60.0, "v1.30.0")
        self.assertEqual((live.last_seen("alpha"), live.kubernetes_version("alpha")), (-60.0, "v1.30.0"))
        self.assertIn("last seen at 1969-12-31T23:59:00Z", live.why_not("alpha"))
        (tunnel,) = tunnels(WORKS)
        live.remember("alpha", -70.0, "v1.29.0")  # older
        live.remember("alpha", None, "v1.29.0")
        self.assertEqual((live.last_seen("alpha"), live.kubernetes_version("alpha")), (-60.0, "v1.30.0"))
        live.remember("alpha", -50.0, "v1.30.1")
        self.assertEqual((live.last_seen("alpha"), live.kubernetes_version("alpha")), (-50.0, "v1.30.1"))
        live.add(tunnel)
        live.remember("alpha", 60.0, "v1.30.0")
        clock.advance(5)
        live.remove(tunnel)
        live.remember("alpha", -60.0, "")
        self.assertEqual((live.last_seen("alpha"), live.kubernetes_version("alpha")), (5.0, "v1.31.2"))
