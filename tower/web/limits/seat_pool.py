"""Seats for the requests of one kind, shared fairly between users and clusters.  Sans-IO.

The idea is that of kube-apiserver's API Priority and Fairness.  A request takes a seat until its answer is
complete.  A user gets a further seat only while it has fewer seats than are free, and a cluster while it has
fewer than three times as many (dynamic thresholds, as in `tower.net.budget`).  So one user alone has at most
half of the seats, and one cluster three quarters; the next one finds free ones at once, also while the seats
of a slow cluster stay taken.  While several users are active, `tower.web.limits.active_users` limits them
further.

Other requests wait in queues.  Shuffle sharding gives each user a few of the queues, and each pair of user
and cluster, a flow, some of the user's; a request waits in the shortest of these.  So one user leaves most
queues to others, however many clusters its requests are for.  A free seat goes to the user and cluster with
the fewest seats, and among equal ones to the first request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from tower.web.limits.active_users import LIGHT, ActiveUsers
from tower.web.limits.caps import count_down

#: Number of queues and the part of them that one flow uses: upstream's defaults.
QUEUES: Final = 64
HAND: Final = 6

#: Number of queues that one user's flows share.  A hash of 62 bits deals 10 of 64, but not 11, about evenly.
USER_HAND: Final = 10

#: Most requests that wait in one queue; a user's connection has at most one.
QUEUE_LENGTH: Final = 256

#: Longest wait, as a part of the timeout of requests; upstream's.
PATIENCE: Final = 1 / 4


class Seated(Protocol):
    """A request that waits."""

    def seated(self) -> None:
        """Continue: the request has a seat now.  Never raises."""


_Queue: TypeAlias = "deque[Ticket]"


class Ticket:
    """The seat of a request, or its position in a queue; `leave` must be called once."""

    __slots__ = ("_pool", "_queue", "cluster", "number", "since", "user", "waiter")

    def __init__(self, pool: SeatPool, number: int, user: str, cluster: str) -> None:
        self._pool = pool
        self.number = number  # in the order of arrival
        self._queue: _Queue | None = None
        self.user = user
        self.cluster = cluster
        self.waiter: Seated | None = None
        self.since = 0.0  # when it got its seat, monotonic, s

    @property
    def waits(self) -> bool:
        """Whether the request has no seat yet."""
        return self._queue is not None

    def leave(self) -> None:
        """Give up the seat or the position."""
        self._pool.leave(self, self._queue)
        self._queue = None

    def wait_in(self, queue: _Queue | None) -> None:
        """Set the queue, or None when the request gets its seat."""
        self._queue = queue


class SeatPool:
    """The seats for one kind of requests.

    :param limit: number of seats.
    :param active: the active users; None: all have the same seats whether others are active or not.
    :param mix: returns a number for a user or a flow; its bits decide on the queues.
    :ivar used: seats that are taken.
    :ivar waiting: requests that wait.
    :ivar refused: requests for which no queue had room.
    """

    def __init__(
        self, limit: int, active: ActiveUsers | None = None, *, mix: Callable[[tuple[str, ...]], int] = hash
    ) -> None:
        self.limit = limit
        self.used = self.waiting = self.refused = 0
        self._active = active
        self._mix = mix
        self._users: dict[str, int] = {}
        self._requests: dict[str, int] = {}  # of users, with those that wait
        self._clusters: dict[str, int] = {}
        self._queues: list[_Queue] = [deque() for _ in range(QUEUES)]
        self._busy: set[int] = set()  # numbers of queues that are not empty
        self._entered = 0
        self._is_seating = False

    def enter(self, user: str, cluster: str) -> Ticket | None:
        """Return the ticket of a request, with a seat or a position in a queue; None: its queues are full."""
        self._entered += 1
        ticket = Ticket(self, self._entered, user, cluster)
        if self._active is not None:
            self._active.entered(user)
        self._requests[user] = self._requests.get(user, 0) + 1
        if self._has_seat_for(user, cluster):
            self._take(ticket)
            return ticket
        number = min(self._hand(user, cluster), key=lambda each: len(self._queues[each]))
        queue = self._queues[number]
        if len(queue) >= QUEUE_LENGTH:
            self.refused += 1
            count_down(self._requests, user)
            return None
        queue.append(ticket)
        ticket.wait_in(queue)
        self._busy.add(number)
        self.waiting += 1
        return ticket

    def leave(self, ticket: Ticket, queue: _Queue | None) -> None:
        """See `Ticket.leave`."""
        active = self._active
        if queue is not None:
            queue.remove(ticket)
            self.waiting -= 1
        else:
            self.used -= 1
            if active is not None and self._requests[ticket.user] > LIGHT:
                active.took(ticket.user, active.seconds() - ticket.since)
            count_down(self._users, ticket.user)
            count_down(self._clusters, ticket.cluster)
        count_down(self._requests, ticket.user)
        if self.waiting and not self._is_seating:
            self._seat()

    def _has_seat_for(self, user: str, cluster: str) -> bool:
        free = self.limit - self.used
        if free <= 0:
            return False
        count = self._users.get(user, 0)
        if count and count >= free:
            return False
        active, requests = self._active, self._requests[user]
        if (
            requests > LIGHT
            and active is not None
            and active.has_several()
            and count >= active.seats_of(user, requests)
        ):
            return False
        count = self._clusters.get(cluster, 0)
        return not count or count < 3 * free

    def _take(self, ticket: Ticket) -> None:
        self.used += 1
        if self._active is not None:
            ticket.since = self._active.seconds()
        self._users[ticket.user] = self._users.get(ticket.user, 0) + 1
        self._clusters[ticket.cluster] = self._clusters.get(ticket.cluster, 0) + 1

    def _hand(self, user: str, cluster: str) -> list[int]:
        """Return the numbers of a flow's queues, which are some of the user's."""
        queues = _deal(self._mix((user,)), list(range(QUEUES)), USER_HAND)
        return _deal(self._mix((user, cluster)), queues, HAND)

    def _seat(self) -> None:
        """Give free seats to requests that wait.  A request that ends at once frees its seat in this loop."""
        self._is_seating = True
        try:
            while self.waiting and self.used < self.limit:
                queue = self._next()
                if queue is None:
                    break
                ticket = queue.popleft()
                self.waiting -= 1
                ticket.wait_in(None)
                self._take(ticket)
                if ticket.waiter is not None:
                    ticket.waiter.seated()
        finally:
            self._is_seating = False

    def _next(self) -> _Queue | None:
        """Return the queue whose first request gets the next seat, or None."""
        best: tuple[int, int, int] | None = None
        found: _Queue | None = None
        for number in list(self._busy):
            queue = self._queues[number]
            if not queue:
                self._busy.discard(number)
                continue
            first = queue[0]
            rank = self._users.get(first.user, 0), self._clusters.get(first.cluster, 0), first.number
            if (best is None or rank < best) and self._has_seat_for(first.user, first.cluster):
                best, found = rank, queue
        return found


def _deal(number: int, queues: list[int], count: int) -> list[int]:
    """Move *count* of the *queues* to the result, by the lowest 62 bits of *number*."""
    rest = number & (1 << 62) - 1
    hand = []
    for left in range(len(queues), len(queues) - count, -1):
        rest, index = divmod(rest, left)
        hand.append(queues.pop(index))
    return hand
