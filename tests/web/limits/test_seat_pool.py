"""Tests of `tower.web.limits.seat_pool`."""

from __future__ import annotations

from collections import Counter

from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.web.limits.active_users import LIGHT, PERIOD, ActiveUsers
from tower.web.limits.seat_pool import HAND, QUEUE_LENGTH, QUEUES, USER_HAND, SeatPool, Ticket


@define(eq=False)
class Guest:
    """A request; one that *leaves* ends as soon as it has a seat."""

    ticket: Ticket
    served: list[str]
    leaves: bool = False

    def seated(self) -> None:
        """Record the user."""
        self.served.append(self.ticket.user)
        if self.leaves:
            self.ticket.leave()


class SeatPoolTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a pool of 30 seats."""
        self.pool = SeatPool(30, mix=lambda flow: hash(flow) * 0x9E3779B97F4A7C15)
        self.served: list[str] = []

    def enter(self, user: str, cluster: str = "alpha", *, leaves: bool = False) -> Ticket:
        """Return the ticket of a request."""
        ticket = self.pool.enter(user, cluster)
        assert ticket is not None
        ticket.waiter = Guest(ticket, self.served, leaves)
        return ticket

    def seated(self, tickets: list[Ticket]) -> int:
        """Return how many of the requests have a seat."""
        return sum(not ticket.waits for ticket in tickets)

    def test_one_user(self) -> None:
        """One user has at most half of the seats; the next one gets free ones at once."""
        hog = [self.enter("hog", f"c{number}") for number in range(100)]
        self.assertEqual((self.seated(hog), self.pool.waiting), (15, 85))
        other = [self.enter("jane", "beta") for _ in range(3)]
        self.assertEqual(self.seated(other), 3)

    def test_one_cluster(self) -> None:
        """The requests of all users to a slow cluster have at most three quarters of the seats."""
        slow = [self.enter(f"user{number}", "slow") for number in range(100)]
        self.assertEqual(self.seated(slow), 23)
        self.assertFalse(self.enter("user1", "alpha").waits)

    def test_fair_shares(self) -> None:
        """Users who always have more requests end with equal numbers of seats."""
        tickets = [self.enter("hog", "alpha") for _ in range(200)]
        for user, cluster in (("jane", "beta"), ("joe", "gamma")):
            tickets += [self.enter(user, cluster) for _ in range(50)]
        for _ in range(2000):
            first = next(ticket for ticket in tickets if not ticket.waits)
            tickets.remove(first)
            first.leave()
            tickets.append(self.enter(first.user, first.cluster))
        seats = Counter(ticket.user for ticket in tickets if not ticket.waits)
        self.assertLessEqual(max(seats.values()) - min(seats.values()), 4, seats)

    def test_several_active_users(self) -> None:
        """While another user is active, a user has few seats, unless the requests take long."""
        clock = Clock()
        self.pool = SeatPool(400, ActiveUsers(clock.seconds))
        hog = [self.enter("hog") for _ in range(300)]
        self.assertEqual(self.seated(hog), 200)
        jane = self.enter("jane")
        self.assertFalse(jane.waits)
        for ticket in hog[:199]:
            ticket.leave()
        left = len(hog) - 199
        self.assertEqual(self.seated(hog[199:]), LIGHT**2 // left)
        jane.leave()
        clock.advance(2 * PERIOD)
        self.enter("hog")
        clock.advance(2 * PERIOD)
        self.enter("hog")
        hog[-101].leave()
        self.assertEqual(self.pool.waiting, 0)

    def test_light_user(self) -> None:
        """A user with few requests has a seat for each, also while another user has a thousand requests."""
        self.pool = SeatPool(400, ActiveUsers(Clock().seconds))
        hog = [self.enter("hog") for _ in range(1000)]
        jane = [self.enter("jane") for _ in range(LIGHT)]
        for _ in range(1000):
            first = next(ticket for ticket in hog if not ticket.waits)
            hog.remove(first)
            first.leave()
            hog.append(self.enter("hog"))
        self.assertEqual((self.seated(jane), self.seated(hog)), (LIGHT, 1))
        more = [self.enter("jane") for _ in range(LIGHT)]
        self.assertEqual(self.seated(more), 0)

    def test_long_requests(self) -> None:
        """Requests that take long have more seats while several users are active."""
        clock = Clock()
        self.pool = SeatPool(400, ActiveUsers(clock.seconds))
        self.enter("jane")
        slow = [self.enter("hog") for _ in range(100)]
        self.assertEqual(self.seated(slow), LIGHT)
        for number in range(40):
            clock.advance(1.0)
            self.enter("jane").leave()
            slow[number].leave()
        self.assertEqual(self.pool.waiting, 0)

    def test_smallest_limits(self) -> None:
        """A single seat is used, and served in the order of the requests of one user."""
        self.pool = SeatPool(1)
        tickets = [self.enter(user) for user in ("a", "b", "b")]
        self.assertEqual(self.seated(tickets), 1)
        tickets[0].leave()
        self.assertEqual([ticket.waits for ticket in tickets[1:]], [False, True])
        tickets[1].leave()
        tickets[2].leave()
        self.assertEqual((self.pool.used, self.pool.waiting), (0, 0))

    def test_full_queues(self) -> None:
        """A flow waits in a few of the queues only; when they are full, its further requests are refused."""
        tickets = [self.enter("hog") for _ in range(15 + HAND * QUEUE_LENGTH)]
        self.assertEqual(self.seated(tickets), 15)
        self.assertIsNone(self.pool.enter("hog", "alpha"))
        self.assertEqual(self.pool.refused, 1)
        self.assertLess(HAND, QUEUES)
        self.assertFalse(self.enter("jane", "beta").waits)

    def test_queues_of_a_user(self) -> None:
        """One user's requests for many clusters wait in a few of the queues only."""
        tickets = [self.pool.enter("hog", f"c{number % QUEUES}") for number in range(QUEUES * QUEUE_LENGTH)]
        self.assertEqual(self.pool.waiting, USER_HAND * QUEUE_LENGTH)
        self.assertEqual(self.pool.refused, tickets.count(None))
        self.assertLess(USER_HAND, QUEUES / 4)

    def test_slow_cluster_and_many_requests(self) -> None:
        """A user with 3,000 requests for 64 clusters does not keep others waiting for a slow cluster."""
        self.pool = SeatPool(400, ActiveUsers(Clock().seconds))
        slow = [ticket for number in range(330) if not (ticket := self.enter(f"user{number}", "slow")).waits]
        self.assertEqual(len(slow), 300)
        for number in range(3000):
            self.pool.enter("hog", f"c{number % 64}")
        jane = self.enter("jane", "slow")
        self.assertTrue(jane.waits)
        for freed in range(300):
            if not jane.waits:
                break
            slow[freed].leave()
        self.assertFalse(jane.waits)
        self.assertLessEqual(freed, 64)

    def test_requests_that_end_at_once(self) -> None:
        """Thousands of requests that fail when they get their seat are served without recursion."""
        first = [self.enter("hog") for _ in range(15)]
        waiting = [self.enter("hog", leaves=True) for _ in range(1000)]
        first[0].leave()
        self.assertEqual(len(self.served), len(waiting))
        self.assertEqual((self.pool.used, self.pool.waiting), (14, 0))

    def test_position_given_up(self) -> None:
        """A request that waits can be given up, and the others keep their positions."""
        for _ in range(15):
            self.enter("hog")
        first, second = self.enter("hog"), self.enter("hog")
        first.leave()
        self.assertEqual(self.pool.waiting, 1)
        self.assertTrue(second.waits)

    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 30)), max_size=200)
    )
    def test_any_order(self, steps: list[tuple[str, str, int]]) -> None:
        """Seats are never exceeded, no request waits while it could have one, and all are free at the end."""
        pool = SeatPool(5)
        tickets: list[Ticket] = []
        for user, cluster, leaving in steps:
            ticket = pool.enter(user, cluster)
            assert ticket is not None
            tickets.append(ticket)
            if leaving < len(tickets):
                tickets.pop(leaving).leave()
            self.assertLessEqual(pool.used, 5)
            self.assertEqual(pool.used, self.seated(tickets))
            self.assertEqual(pool.waiting, len(tickets) - self.seated(tickets))
        while tickets:
            tickets.pop(0).leave()
        self.assertEqual((pool.used, pool.waiting), (0, 0))
