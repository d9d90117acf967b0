"""Tests of `tower.conch.window` and `tower.budget`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from tower.budget import Budget
from tower.conch.window import ALONE, BASE, QUIET, SHARED, Window, WindowOverrun


class BudgetTests(SynchronousTestCase):
    """Lends what there is."""

    def test_all_or_nothing(self) -> None:
        """A loan that does not fit is refused whole."""
        budget = Budget(100)
        self.assertTrue(budget.borrow(60))
        self.assertFalse(budget.borrow(41))
        self.assertEqual(budget.lent, 60)
        self.assertTrue(budget.borrow(40))
        budget.give_back(100)
        self.assertEqual(budget.lent, 0)


class WindowTests(SynchronousTestCase):
    """Grants, grows and shrinks."""

    def setUp(self) -> None:
        """Have a window and ample budget."""
        self.budget = Budget(100 << 20)
        self.window = Window(self.budget)
        self.now = 1000.0

    def use(self, *, every: float = 0.01, round_trip: float = 0.02, alone: bool = True) -> int:
        """Have the peer send all it may and consume it; return the grant."""
        self.now += every
        size = self.window.granted
        self.window.arrived(size)
        self.assertTrue(self.window.consumed(size))
        return self.window.renew(self.now, round_trip, alone=alone)

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

    def test_grows(self) -> None:
        """A peer that uses it up in two round trips gets twice as much, up to a limit."""
        self.use(every=10)
        sizes = [self.use() for _ in range(8)]
        self.assertEqual(sizes, [min(BASE << i, ALONE) for i in range(1, 9)])
        self.assertEqual(self.budget.lent, ALONE - BASE)

    def test_slow_peer(self) -> None:
        """A peer that takes longer does not."""
        for _ in range(5):
            self.assertEqual(self.use(every=0.1), BASE)

    def test_not_alone(self) -> None:
        """While others are active the limit is lower, and what is over it is given back."""
        for _ in range(10):
            self.use()
        self.use(alone=False)
        self.assertEqual(self.window.size, SHARED)
        for _ in range(5):
            self.use(alone=False)
        self.assertEqual((self.window.size, self.budget.lent), (SHARED, SHARED - BASE))

    def test_quiet(self) -> None:
        """What was not used for a while halves each time, down to the base."""
        for _ in range(10):
            self.use()
        for _ in range(10):
            self.use(every=QUIET + 0.1)
        self.assertEqual((self.window.size, self.budget.lent), (BASE, 0))

    def test_no_budget(self) -> None:
        """Without budget it stays as it is."""
        self.budget.borrow(self.budget.capacity - BASE)
        for _ in range(5):
            self.use()
        self.assertEqual((self.window.size, self.budget.lent), (2 * BASE, self.budget.capacity))

    def test_close(self) -> None:
        """What was borrowed is given back, once."""
        for _ in range(5):
            self.use()
        self.window.close()
        self.window.close()
        self.assertEqual(self.budget.lent, 0)

    def test_slow_consumer(self) -> None:
        """What a receiver holds up counts: however slowly it takes bytes, no more than the window waits."""
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
                self.window.renew(self.now, 0.01, alone=True)
        self.assertEqual(most, BASE)


class WindowMachine(RuleBasedStateMachine):
    """A peer and a receiver that do anything the window allows."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(4 * BASE)
        self.window = Window(self.budget)
        self.peer_may = BASE
        self.waiting = 0
        self.now = 50.0

    @rule(part=st.floats(0, 1))
    def send(self, part: float) -> None:
        """Send some of what is allowed."""
        size = int(self.peer_may * part)
        self.window.arrived(size)
        self.peer_may -= size
        self.waiting += size

    @rule(part=st.floats(0, 1), pause=st.floats(0, 3), alone=st.booleans())
    def consume(self, part: float, pause: float, alone: bool) -> None:
        """Take some of what came."""
        size = int(self.waiting * part)
        self.waiting -= size
        self.now += pause
        if self.window.consumed(size):
            self.peer_may += self.window.renew(self.now, 0.1, alone=alone)

    @rule()
    def consume_all(self) -> None:
        """Take everything: then the peer must be able to go on."""
        self.consume(1.0, 0.0, alone=True)
        assert self.peer_may > 0

    @invariant()
    def bounded(self) -> None:
        """No more is on its way and waiting than was ever allowed, and the sides agree."""
        assert self.window.granted == self.peer_may
        assert self.window.held == self.waiting
        assert self.peer_may + self.waiting <= 5 * BASE
        assert self.budget.lent == self.window.size - BASE


class AnyOrderTests(SynchronousTestCase):
    """Keeps its books."""

    def test_machine(self) -> None:
        """Whatever peer and receiver do, the books are right and the peer is never stuck for good."""
        run_state_machine_as_test(
            WindowMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
        )


class ManyWindowsTests(SynchronousTestCase):
    """Share one budget."""

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
    def test_never_over(self, steps: list[tuple[int, bool]]) -> None:
        """However many grow and close, no more is lent than there is, and all comes back."""
        budget = Budget(10 * BASE)
        windows = [Window(budget) for _ in range(5)]
        for step, (number, close) in enumerate(steps):
            window = windows[number]
            if close:
                window.close()
                windows[number] = Window(budget)
                continue
            size = window.granted
            window.arrived(size)
            window.consumed(size)
            window.renew(100 + step / 1000, 1.0, alone=True)
            self.assertLessEqual(budget.lent, budget.capacity)
        for window in windows:
            window.close()
        self.assertEqual(budget.lent, 0)
