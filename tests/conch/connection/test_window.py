"""Tests of `tower.conch.connection.window` and `tower.net.budget`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.network_path import Path
from tower.conch.connection.fairness import LEAST
from tower.conch.connection.window import ALONE, BASE, QUIET, SHARED, Window, WindowOverrun
from tower.net.budget import Budget

MB = 1e6
GIGABIT = 125 * MB  # B/s


class BudgetTests(SynchronousTestCase):
    """Lends the available budget."""

    def test_all_or_nothing(self) -> None:
        """A loan that does not fit is refused whole."""
        budget = Budget(100)
        self.assertTrue(budget.borrow(60))
        self.assertFalse(budget.borrow(41))
        self.assertEqual(budget.lent, 60)
        self.assertTrue(budget.borrow(40))
        budget.give_back(100)
        self.assertEqual(budget.lent, 0)

    def test_overdrawn(self) -> None:
        """When others took everything at once, there is no share left, and never a negative one."""
        budget = Budget(100)
        budget.borrow(100)
        self.assertEqual(budget.share(0), 0)
        self.assertEqual(budget.share(5), 0)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 12), st.integers(1 << 20, 1 << 30))
    def test_shares(self, borrowers: int, capacity: int) -> None:
        """Borrowers become equal in any order of arrival, and an eighth is left for newcomers."""
        budget = Budget(capacity)
        loans = [0] * borrowers
        for _ in range(60):
            for i in range(borrowers):
                share = budget.share(loans[i])
                budget.give_back(loans[i])
                self.assertTrue(budget.borrow(share))
                loans[i] = share
                self.assertLessEqual(budget.lent, capacity - capacity // 8)
        fair = (capacity - capacity // 8) * 2 / (2 * borrowers + 1)
        for loan in loans:
            self.assertLess(abs(loan / fair - 1.0), 0.1)


class WindowTests(SynchronousTestCase):
    """Grants, grows and shrinks."""

    def setUp(self) -> None:
        """Create a window and an ample budget."""
        self.budget = Budget(100 << 20)
        self.window = Window(self.budget)
        self.now = 1000.0

    def use(self, *, every: float = 0.01, round_trip: float = 0.01, near: int = ALONE) -> int:
        """Let the peer send all it may and consume it; return the grant."""
        self.now += every
        size = self.window.granted
        self.window.arrived(size)
        self.assertTrue(self.window.consumed(size))
        return self.window.renew(self.now, round_trip, near)

    def test_overrun(self) -> None:
        """One byte too many is the end."""
        self.window.arrived(BASE - 1)
        self.window.arrived(1)
        self.assertRaises(WindowOverrun, self.window.arrived, 1)

    def test_half(self) -> None:
        """It is time to renew when half of the window has left us."""
        self.window.arrived(BASE)
        self.assertFalse(self.window.consumed(BASE // 2 - 1))
        self.assertTrue(self.window.consumed(1))

    def test_larger_parts(self) -> None:
        """A larger window is renewed after an eighth, so that the peer need not wait for the rest."""
        while self.window.size < ALONE:
            self.use()
        self.window.arrived(ALONE)
        self.assertFalse(self.window.consumed(ALONE // 8 - 1))
        self.assertTrue(self.window.consumed(1))

    def test_grows(self) -> None:
        """A peer that uses it up in two round trips gets twice as much, near by up to a limit."""
        self.use(every=10)
        sizes = [self.use(round_trip=0.0) for _ in range(8)]
        self.assertEqual(sizes, [min(BASE << i, ALONE) for i in range(1, 9)])
        self.assertEqual(self.budget.lent, ALONE - BASE)

    def test_slow_peer(self) -> None:
        """A peer that takes longer does not."""
        for _ in range(5):
            self.assertEqual(self.use(every=0.1), BASE)

    def test_not_alone(self) -> None:
        """While others are active the limit is lower, and what is over it is given back."""
        for _ in range(10):
            self.use(round_trip=0.0)
        self.use(round_trip=0.0, near=SHARED)
        self.assertEqual(self.window.size, SHARED)
        for _ in range(5):
            self.use(round_trip=0.0, near=SHARED)
        self.assertEqual((self.window.size, self.budget.lent), (SHARED, SHARED - BASE))

    def test_little_for_each(self) -> None:
        """A channel with a small share has less than at first, and starts again after a pause."""
        for _ in range(3):
            self.use(near=LEAST, round_trip=0.0)
        self.assertEqual((self.window.size, self.budget.lent), (LEAST, 0))
        self.window.arrived(LEAST)
        self.assertFalse(self.window.consumed(LEAST // 2 - 1))
        self.assertTrue(self.window.consumed(1))
        self.window.consumed(LEAST // 2)
        self.now += QUIET + 0.1
        self.window.renew(self.now, 0.0, LEAST)
        self.assertEqual((self.window.size, self.budget.lent), (BASE, 0))

    def test_on_loan_while_it_may_come(self) -> None:
        """A window that must shrink counts as borrowed while the peer may still use its credit."""
        for _ in range(10):
            self.use(round_trip=0.0)
        part = ALONE // 8
        for i in range(1, 7):
            self.now += 0.01
            self.window.arrived(part)
            self.assertTrue(self.window.consumed(part))
            self.assertEqual(self.window.renew(self.now, 0.0, SHARED), 0)
            self.assertEqual(self.window.granted, ALONE - i * part)
            self.assertEqual(self.budget.lent, ALONE - i * part - BASE)

    def test_quiet(self) -> None:
        """An unused window is halved each time, down to the base."""
        for _ in range(10):
            self.use()
        for _ in range(10):
            self.use(every=QUIET + 0.1)
        self.assertEqual((self.window.size, self.budget.lent), (BASE, 0))

    def test_no_budget(self) -> None:
        """Without budget every window still has the base."""
        self.budget.borrow(self.budget.capacity)
        for _ in range(5):
            self.assertEqual(self.use(), BASE)
        self.assertEqual((self.window.size, self.budget.lent), (BASE, self.budget.capacity))

    def test_makes_room(self) -> None:
        """When others come to need the budget, a large window becomes smaller."""
        self.budget = Budget(4 << 20)
        self.window = Window(self.budget)
        for _ in range(10):
            self.use()
        before = self.window.size
        others = [Window(self.budget) for _ in range(3)]
        windows = [self.window, *others]
        for _ in range(30):
            for window in windows:
                self.window = window
                self.use(every=0.001)
        sizes = [window.size for window in windows]
        self.assertLess(max(sizes), before)
        self.assertLess(max(sizes), 1.2 * min(sizes))

    def test_close(self) -> None:
        """Borrowed bytes are returned, once."""
        for _ in range(5):
            self.use()
        self.window.close()
        self.window.close()
        self.assertEqual(self.budget.lent, 0)

    def test_slow_consumer(self) -> None:
        """Bytes held by a slow receiver count: no more than the window waits."""
        waiting, most = 0, 0
        for _ in range(200):
            size = self.window.granted
            self.window.arrived(size)
            waiting += size
            most = max(most, waiting)
            piece = min(waiting, BASE // 2)
            waiting -= piece
            self.now += 0.5
            if self.window.consumed(piece):
                self.window.renew(self.now, 0.01, ALONE)
        self.assertEqual(most, BASE)


class PathTests(SynchronousTestCase):
    """Fills a path and no more; everything here happens in simulated time."""

    def test_alone(self) -> None:
        """A bulk stream fills a gigabit at 100 ms."""
        path = Path(GIGABIT, 0.1)
        path.run(3.0)
        self.assertGreater(path.use(1.0), 0.99)

    def test_soon(self) -> None:
        """From its first byte, half of the path is used within a second."""
        path = Path(GIGABIT, 0.1)
        path.run(1.0)
        self.assertGreater(path.use(0.3), 0.5)

    def test_not_alone(self) -> None:
        """A stream that is not alone does too, and the queue that it causes for others stays short."""
        path = Path(GIGABIT, 0.1, near=SHARED)
        path.run(2.5)
        self.assertGreater(path.use(1.0), 0.99)
        self.assertLess(path.longest_queue, 0.1 / 2 + SHARED / GIGABIT)

    def test_many(self) -> None:
        """Many streams fill it together, within the budget, and none is left behind."""
        path = Path(GIGABIT, 0.1, streams=16, near=SHARED)
        path.run(4.0)
        self.assertGreater(path.use(2.0), 0.95)
        self.assertGreater(min(path.delivered), max(path.delivered) / 4)

    def test_many_and_small_packets(self) -> None:
        """Enough channels with the least share fill it, too."""
        path = Path(GIGABIT, 0.1, streams=64, near=LEAST, budget=1 << 30)
        path.run(4.0)
        self.assertGreater(path.use(2.0), 0.95)

    def test_near(self) -> None:
        """Between processes near each other no window is needed beyond what they start from."""
        path = Path(500 * MB, 0.0003, near=SHARED)
        path.run(0.5)
        self.assertGreater(path.use(0.3), 0.95)
        self.assertLess(path.largest, 2.5 * SHARED)

    def test_slow(self) -> None:
        """On a slow path no window is large, alone or not: it would only be a queue."""
        path = Path(1.25 * MB, 0.03)
        path.run(5.0)
        self.assertGreater(path.use(3.0), 0.95)
        self.assertLessEqual(path.largest, 2 * BASE)

    def test_becomes_slow(self) -> None:
        """When a path becomes slower, the window follows."""
        path = Path(GIGABIT, 0.1, near=SHARED)
        path.run(2.0)
        path.rate = GIGABIT / 5
        path.run(4.0)
        self.assertLess(path.windows[0].size, 0.4 * 0.1 * GIGABIT + SHARED)
        self.assertGreater(path.use(1.0), 0.99)

    def test_little_budget(self) -> None:
        """The budget bounds them all, at any distance."""
        path = Path(GIGABIT, 0.3, streams=8, budget=4 << 20)
        path.run(3.0)
        self.assertGreater(path.lent, 3 << 20)
        self.assertLessEqual(path.lent, 4 << 20)
        self.assertGreater(min(path.delivered), max(path.delivered) / 2)

    @settings(max_examples=25, deadline=None)
    @given(st.floats(5 * MB, 300 * MB), st.floats(0.001, 0.3), st.sampled_from((ALONE, SHARED)))
    def test_any_path(self, rate: float, round_trip: float, near: int) -> None:
        """At any rate and distance the path is filled, if the budget allows it."""
        path = Path(rate, round_trip, near=near, budget=1 << 30)
        path.run(4.0 + 20 * round_trip)
        self.assertGreater(path.use(2.0), 0.9)


class WindowMachine(RuleBasedStateMachine):
    """Peers and receivers that do anything their windows allow."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(40 * BASE)
        self.windows = [Window(self.budget) for _ in range(3)]
        self.peer_may = [BASE] * 3
        self.waiting = [0] * 3
        self.now = 50.0

    @rule(i=st.integers(0, 2), part=st.floats(0, 1))
    def send(self, i: int, part: float) -> None:
        """Send some of the granted bytes."""
        size = int(self.peer_may[i] * part)
        self.windows[i].arrived(size)
        self.peer_may[i] -= size
        self.waiting[i] += size

    @rule(
        i=st.integers(0, 2),
        part=st.floats(0, 1),
        pause=st.sampled_from((0.0, 0.0001, 0.01, 0.2, 3.0)),
        round_trip=st.sampled_from((0.0, 0.0003, 0.1, 0.6)),
        near=st.sampled_from((ALONE, SHARED, BASE, LEAST)),
    )
    def consume(self, i: int, part: float, pause: float, round_trip: float, near: int) -> None:
        """Consume some of the received bytes."""
        size = int(self.waiting[i] * part)
        self.waiting[i] -= size
        self.now += pause
        if self.windows[i].consumed(size):
            grant = self.windows[i].renew(self.now, round_trip, near)
            assert grant >= 0
            self.peer_may[i] += grant

    @rule(i=st.integers(0, 2))
    def consume_all(self, i: int) -> None:
        """Take everything: then the peer must be able to go on."""
        self.consume(i, 1.0, 0.0, 0.1, ALONE)
        assert self.peer_may[i] > 0

    @rule(i=st.integers(0, 2))
    def close(self, i: int) -> None:
        """Start again."""
        self.windows[i].close()
        self.windows[i] = Window(self.budget)
        self.peer_may[i], self.waiting[i] = BASE, 0

    @invariant()
    def bounded(self) -> None:
        """The sides agree, and what the peer may have beyond the base is borrowed."""
        for window, peer_may, waiting in zip(self.windows, self.peer_may, self.waiting, strict=True):
            assert (window.granted, window.held) == (peer_may, waiting)
            assert peer_may + waiting <= window.size
            assert window.size >= LEAST
        assert self.budget.lent == sum(max(0, window.size - BASE) for window in self.windows)
        assert self.budget.lent <= self.budget.capacity


class AnyOrderTests(SynchronousTestCase):
    """Keeps its books."""

    def test_machine(self) -> None:
        """For any peers and receivers the accounts are right and no peer is stuck for good."""
        run_state_machine_as_test(
            WindowMachine, settings=settings(max_examples=80, stateful_step_count=50, deadline=None)
        )
