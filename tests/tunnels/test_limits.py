"""Tests of `tower.tunnels.limits`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.limits import TooManyTunnels
from tower.tunnels.limits import ANSWER_TIMEOUT, RECHECK_AFTER, TunnelSlot, TunnelSlots


class FakeSSH:
    """A tunnel's end of SSH.

    :ivar lives: whether its peer answers.
    :ivar failed: why it was closed.
    """

    def __init__(self, *, lives: bool = True) -> None:
        self.lives = lives
        self.lost: Deferred[Exception] = Deferred()
        self.failed: Exception | None = None
        self.asked = 0

    def received(self) -> object:
        """Return what has come."""
        return self.asked if self.lives else None

    def nudge(self) -> None:
        """Answer, if alive."""
        self.asked += 1

    def fail(self, reason: Exception) -> None:
        """Note it; it is gone later."""
        self.failed = reason


class TunnelPlacesTests(SynchronousTestCase):
    """Two for a key, three for a cluster."""

    def setUp(self) -> None:
        """Make an empty one."""
        self.clock = Clock()
        self.places = TunnelSlots(self.clock, per_key=2, per_cluster=3)

    def tearDown(self) -> None:
        """Nothing may be left of anybody who went."""
        for holder in [*self.places._held, *self.places._waiting]:
            self.places.leave(holder)
        kept = (self.places._counts, self.places._keys, self.places._held, self.places._waiting)
        self.assertEqual(kept, ({}, {}, {}, {}))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def entered(self, key: str, cluster: str = "alpha", *, lives: bool = True) -> FakeSSH:
        """Give one its place, at once."""
        holder = FakeSSH(lives=lives)
        self.assertIs(self.places.enter(cluster, key, holder), None)
        return holder

    def judge(self) -> None:
        """Let the time pass that tunnels have for their answers."""
        self.clock.advance(ANSWER_TIMEOUT)
        self.clock.advance(0)

    def test_key(self) -> None:
        """A key has so many places in each cluster; the text says which key, which limit, and the cure."""
        held = [self.entered("k"), self.entered("k")]
        self.entered("k", "beta")
        self.entered("l")
        waiting = self.places.enter("alpha", "k", FakeSSH())
        assert waiting is not None
        self.assertNoResult(waiting)
        self.judge()
        error = self.failureResultOf(waiting, TooManyTunnels)
        self.assertIn("key k has 2 tunnels into cluster alpha", str(error.value))
        self.assertIn("--max-tunnels-per-key", str(error.value))
        self.assertIn("state directory", str(error.value))
        self.assertEqual([each.failed for each in held], [None, None])
        self.places.leave(held[0])
        self.entered("k")

    def test_cluster(self) -> None:
        """A cluster has so many places, for whatever keys; those of others do not answer for a stranger."""
        held = [self.entered(key) for key in ("k", "l", "m")]
        error = self.assertRaises(TooManyTunnels, self.places.enter, "alpha", "n", FakeSSH())
        self.assertIn("cluster alpha has 3 tunnels", str(error))
        self.assertIn("--max-tunnels-per-cluster", str(error))
        self.assertEqual([each.asked for each in held], [0, 0, 0])
        self.entered("n", "beta")
        self.places.leave(held[1])
        self.entered("n")

    def test_without_key(self) -> None:
        """Where there is no key the cluster's limit alone counts, and nobody is asked."""
        held = [self.entered("") for _ in range(3)]
        self.assertRaises(TooManyTunnels, self.places.enter, "alpha", "", FakeSSH())
        self.assertEqual([each.asked for each in held], [0, 0, 0])
        self.places.leave(held[0])
        self.entered("")

    def test_unlimited(self) -> None:
        """0 is any number."""
        self.places = TunnelSlots(self.clock)
        for _ in range(100):
            self.entered("k")

    def test_dead_one_goes(self) -> None:
        """A tunnel of the key that does not answer goes for the newcomer; one that does stays."""
        alive, dead = self.entered("k"), self.entered("k", lives=False)
        newcomer = FakeSSH()
        waiting = self.places.enter("alpha", "k", newcomer)
        assert waiting is not None
        self.clock.advance(ANSWER_TIMEOUT - 0.01)
        self.assertNoResult(waiting)
        self.clock.advance(0.01)
        self.clock.advance(0)
        self.assertIs(self.successResultOf(waiting), None)
        self.assertEqual(alive.failed, None)
        self.assertIn("did not answer", str(dead.failed))
        self.places.leave(dead)  # it is gone at last, and had no place any more
        self.assertEqual(self.places._counts, {"alpha": 2})

    def test_dead_one_in_a_full_cluster(self) -> None:
        """It also goes where it is the cluster that is full."""
        dead = self.entered("k", lives=False)
        for key in ("l", "m"):
            self.entered(key)
        waiting = self.places.enter("alpha", "k", FakeSSH())
        assert waiting is not None
        self.judge()
        self.assertIs(self.successResultOf(waiting), None)
        self.assertIsNot(dead.failed, None)

    def test_many_wait(self) -> None:
        """One silent tunnel goes for each who waits; who finds none is refused; all are asked once."""
        dead, alive = self.entered("k", lives=False), self.entered("k")
        waiting = [self.places.enter("alpha", "k", FakeSSH()) for _ in range(3)]
        self.judge()
        first, *others = waiting
        assert first is not None
        self.assertIs(self.successResultOf(first), None)
        for other in others:
            assert other is not None
            self.failureResultOf(other, TooManyTunnels)
        self.assertEqual((dead.asked, alive.asked), (1, 1))

    def test_assured(self) -> None:
        """For a while after all have answered one more is refused at once, and nobody is asked again."""
        held = [self.entered("k"), self.entered("k")]
        waiting = self.places.enter("alpha", "k", FakeSSH())
        assert waiting is not None
        self.judge()
        self.failureResultOf(waiting, TooManyTunnels)
        self.clock.advance(RECHECK_AFTER - 0.01)
        self.assertRaises(TooManyTunnels, self.places.enter, "alpha", "k", FakeSSH())
        self.assertEqual([each.asked for each in held], [1, 1])
        self.clock.advance(0.01)
        waiting = self.places.enter("alpha", "k", FakeSSH())
        assert waiting is not None
        self.judge()
        self.failureResultOf(waiting, TooManyTunnels)
        self.assertEqual([each.asked for each in held], [2, 2])

    def test_leaves_while_waiting(self) -> None:
        """One that is gone before the outcome gets no place, and with the last of them the round is over."""
        dead = self.entered("k", lives=False)
        self.entered("k")
        newcomers = [FakeSSH(), FakeSSH()]
        waiting = [self.places.enter("alpha", "k", newcomer) for newcomer in newcomers]
        for newcomer, each in zip(newcomers, waiting, strict=True):
            assert each is not None
            self.places.leave(newcomer)
            self.failureResultOf(each, TooManyTunnels)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.judge()
        self.assertEqual(dead.failed, None)

    def test_room_meanwhile(self) -> None:
        """A place that becomes free meanwhile is taken, and no silent one goes for it."""
        gone, silent = self.entered("k"), self.entered("k", lives=False)
        waiting = self.places.enter("alpha", "k", FakeSSH())
        assert waiting is not None
        self.places.leave(gone)
        self.judge()
        self.assertIs(self.successResultOf(waiting), None)
        self.assertEqual(silent.failed, None)

    def test_all_go_meanwhile(self) -> None:
        """All that were asked may go before the outcome."""
        held = [self.entered("k", lives=False) for _ in range(2)]
        waiting = self.places.enter("alpha", "k", FakeSSH())
        assert waiting is not None
        for each in held:
            self.places.leave(each)
        self.judge()
        self.assertIs(self.successResultOf(waiting), None)
        self.assertEqual([each.failed for each in held], [None, None])

    def test_entrance(self) -> None:
        """A connection's place is free when the connection is gone, and none is given to it after that."""
        ssh = FakeSSH()
        entrance = TunnelSlot(self.places)
        entrance.attach(ssh)
        self.assertIs(entrance.enter("alpha", "k"), None)
        self.assertEqual(self.places._counts, {"alpha": 1})
        reason = ConnectionError("cut")
        ssh.lost.callback(reason)
        self.assertIs(self.successResultOf(ssh.lost), reason)
        self.assertEqual(self.places._counts, {})
        self.assertIs(entrance.enter("alpha", "k"), None)
        self.assertEqual(self.places._counts, {})
