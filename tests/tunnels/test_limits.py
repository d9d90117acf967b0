"""Tests of `tower.tunnels.limits`."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.connection.liveness import LivenessTransport
from tower.conch.transport.limits import TooManyTunnels
from tower.tunnels.limits import ANSWER_TIMEOUT, RECHECK_AFTER, TunnelSlot, TunnelSlots


class FakeSSH:
    """The proxy's end of a tunnel's SSH connection.

    :ivar lives: whether its peer answers.
    :ivar failed: why it was closed.
    """

    def __init__(self, *, lives: bool = True) -> None:
        self.lives = lives
        self.lost: Deferred[Exception] = Deferred()
        self.failed: Exception | None = None
        self.asked = 0

    def received(self) -> object:
        """Return a new value after each answer."""
        return self.asked if self.lives else None

    def nudge(self) -> None:
        """Answer, if alive."""
        self.asked += 1

    def fail(self, reason: Exception) -> None:
        """Record the reason."""
        self.failed = reason


class TunnelPlacesTests(SynchronousTestCase):
    """Limits of two tunnels per key and three per cluster."""

    def setUp(self) -> None:
        """Create empty slots."""
        self.clock = Clock()
        self.slots = TunnelSlots(self.clock, per_key=2, per_cluster=3)

    def tearDown(self) -> None:
        """Check that released holders leave nothing behind."""
        for holder in [*self.slots._held, *self.slots._waiting]:
            self.slots.release(holder)
        kept = (self.slots._counts, self.slots._keys, self.slots._held, self.slots._waiting)
        self.assertEqual(kept, ({}, {}, {}, {}))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def acquire(self, cluster: str, key: str, holder: FakeSSH) -> Deferred[None] | None:
        """Acquire a slot for *holder*."""
        return self.slots.acquire(cluster, key, cast(LivenessTransport, holder))

    def release(self, holder: FakeSSH) -> None:
        """Release the slot of *holder*."""
        self.slots.release(cast(LivenessTransport, holder))

    def entered(self, key: str, cluster: str = "alpha", *, lives: bool = True) -> FakeSSH:
        """Return a holder that got its slot at once."""
        holder = FakeSSH(lives=lives)
        self.assertIs(self.acquire(cluster, key, holder), None)
        return holder

    def judge(self) -> None:
        """Advance the clock to the end of the check."""
        self.clock.advance(ANSWER_TIMEOUT)
        self.clock.advance(0)

    def test_key(self) -> None:
        """The limit per key applies in each cluster; the error names key, limit and cure."""
        held = [self.entered("k"), self.entered("k")]
        self.entered("k", "beta")
        self.entered("l")
        waiting = self.acquire("alpha", "k", FakeSSH())
        assert waiting is not None
        self.assertNoResult(waiting)
        self.judge()
        error = self.failureResultOf(waiting, TooManyTunnels)
        self.assertIn("key k has 2 tunnels into cluster alpha", str(error.value))
        self.assertIn("--max-tunnels-per-key", str(error.value))
        self.assertIn("state directory", str(error.value))
        self.assertEqual([each.failed for each in held], [None, None])
        self.release(held[0])
        self.entered("k")

    def test_cluster(self) -> None:
        """The limit per cluster applies to all keys; tunnels of other keys are not checked."""
        held = [self.entered(key) for key in ("k", "l", "m")]
        error = self.assertRaises(TooManyTunnels, self.acquire, "alpha", "n", FakeSSH())
        self.assertIn("cluster alpha has 3 tunnels", str(error))
        self.assertIn("--max-tunnels-per-cluster", str(error))
        self.assertEqual([each.asked for each in held], [0, 0, 0])
        self.entered("n", "beta")
        self.release(held[1])
        self.entered("n")

    def test_without_key(self) -> None:
        """Without a key only the cluster's limit applies, and no tunnel is checked."""
        held = [self.entered("") for _ in range(3)]
        self.assertRaises(TooManyTunnels, self.acquire, "alpha", "", FakeSSH())
        self.assertEqual([each.asked for each in held], [0, 0, 0])
        self.release(held[0])
        self.entered("")

    def test_unlimited(self) -> None:
        """0 is unlimited."""
        self.slots = TunnelSlots(self.clock)
        for _ in range(100):
            self.entered("k")

    def test_dead_one_goes(self) -> None:
        """A silent tunnel of the same key is closed for a new one; a live tunnel stays."""
        alive, dead = self.entered("k"), self.entered("k", lives=False)
        newcomer = FakeSSH()
        waiting = self.acquire("alpha", "k", newcomer)
        assert waiting is not None
        self.clock.advance(ANSWER_TIMEOUT - 0.01)
        self.assertNoResult(waiting)
        self.clock.advance(0.01)
        self.clock.advance(0)
        self.assertIs(self.successResultOf(waiting), None)
        self.assertEqual(alive.failed, None)
        self.assertIn("did not answer", str(dead.failed))
        self.release(dead)  # its slot was released before
        self.assertEqual(self.slots._counts, {"alpha": 2})

    def test_dead_one_in_a_full_cluster(self) -> None:
        """A silent tunnel is also replaced if the cluster's limit is reached."""
        dead = self.entered("k", lives=False)
        for key in ("l", "m"):
            self.entered(key)
        waiting = self.acquire("alpha", "k", FakeSSH())
        assert waiting is not None
        self.judge()
        self.assertIs(self.successResultOf(waiting), None)
        self.assertIsNot(dead.failed, None)

    def test_many_wait(self) -> None:
        """Each silent tunnel makes room for one connection; the others are rejected after one check."""
        dead, alive = self.entered("k", lives=False), self.entered("k")
        waiting = [self.acquire("alpha", "k", FakeSSH()) for _ in range(3)]
        self.judge()
        first, *others = waiting
        assert first is not None
        self.assertIs(self.successResultOf(first), None)
        for other in others:
            assert other is not None
            self.failureResultOf(other, TooManyTunnels)
        self.assertEqual((dead.asked, alive.asked), (1, 1))

    def test_recheck(self) -> None:
        """For a while after all answered, new tunnels are rejected at once, without another check."""
        held = [self.entered("k"), self.entered("k")]
        waiting = self.acquire("alpha", "k", FakeSSH())
        assert waiting is not None
        self.judge()
        self.failureResultOf(waiting, TooManyTunnels)
        self.clock.advance(RECHECK_AFTER - 0.01)
        self.assertRaises(TooManyTunnels, self.acquire, "alpha", "k", FakeSSH())
        self.assertEqual([each.asked for each in held], [1, 1])
        self.clock.advance(0.01)
        waiting = self.acquire("alpha", "k", FakeSSH())
        assert waiting is not None
        self.judge()
        self.failureResultOf(waiting, TooManyTunnels)
        self.assertEqual([each.asked for each in held], [2, 2])

    def test_lost_while_waiting(self) -> None:
        """A connection lost during the check is rejected; without any, the check is cancelled."""
        dead = self.entered("k", lives=False)
        self.entered("k")
        newcomers = [FakeSSH(), FakeSSH()]
        waiting = [self.acquire("alpha", "k", newcomer) for newcomer in newcomers]
        for newcomer, each in zip(newcomers, waiting, strict=True):
            assert each is not None
            self.release(newcomer)
            self.failureResultOf(each, TooManyTunnels)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.judge()
        self.assertEqual(dead.failed, None)

    def test_room_meanwhile(self) -> None:
        """A slot that becomes free during the check is used, and no silent tunnel is closed."""
        gone, silent = self.entered("k"), self.entered("k", lives=False)
        waiting = self.acquire("alpha", "k", FakeSSH())
        assert waiting is not None
        self.release(gone)
        self.judge()
        self.assertIs(self.successResultOf(waiting), None)
        self.assertEqual(silent.failed, None)

    def test_all_go_meanwhile(self) -> None:
        """All checked tunnels may be lost during the check."""
        held = [self.entered("k", lives=False) for _ in range(2)]
        waiting = self.acquire("alpha", "k", FakeSSH())
        assert waiting is not None
        for each in held:
            self.release(each)
        self.judge()
        self.assertIs(self.successResultOf(waiting), None)
        self.assertEqual([each.failed for each in held], [None, None])

    def test_slot(self) -> None:
        """A lost connection releases its slot, and acquires none."""
        ssh = FakeSSH()
        slot = TunnelSlot(self.slots)
        slot.attach(cast(LivenessTransport, ssh))
        self.assertIs(slot.acquire("alpha", "k"), None)
        self.assertEqual(self.slots._counts, {"alpha": 1})
        reason = ConnectionError("cut")
        ssh.lost.callback(reason)
        self.assertIs(self.successResultOf(ssh.lost), reason)
        self.assertEqual(self.slots._counts, {})
        self.assertIs(slot.acquire("alpha", "k"), None)
        self.assertEqual(self.slots._counts, {})
