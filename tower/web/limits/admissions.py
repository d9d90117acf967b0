"""Admissions of requests by the limits of the door, until their ends."""

from __future__ import annotations

from math import inf
from typing import Final

from tower.web.limits.caps import Cap, ClusterCap
from tower.web.limits.seat_pool import Ticket

#: Longest time that a long-running request other than a watch has its seat without an answer, s.  The log of
#: a silent container and a long poll through a proxy have no head; other requests must not wait for these.
SILENT: Final = 3.0


class ClusterShare:
    """A request's share of its cluster's cap, counted once it has a seat."""

    __slots__ = ("_cap", "_cluster", "_is_counted", "_user")

    def __init__(self, cap: ClusterCap, cluster: str, user: str) -> None:
        self._cap = cap
        self._cluster = cluster
        self._user = user
        self._is_counted = False

    def enter(self) -> None:
        """Count the request.

        :raise StatusError: 429: see `ClusterCap.enter`.
        """
        self._cap.enter(self._cluster, self._user)
        self._is_counted = True

    def leave(self) -> None:
        """Count it no longer; idempotent."""
        if self._is_counted:
            self._is_counted = False
            self._cap.leave(self._cluster, self._user)


class Place:
    """The admission of one request; `leave` is idempotent.

    :ivar count: the cap of its user, and the user's name; None: there is none.
    :ivar share: the part in the cap of its cluster; None: there is none.
    :ivar ticket: the seat, or a position in a queue; None: it needs none, or has given it back.
    """

    __slots__ = ("_age", "count", "share", "ticket")

    def __init__(self, ticket: Ticket | None = None) -> None:
        self.count: tuple[Cap, str] | None = None
        self.share: ClusterShare | None = None
        self.ticket = ticket
        self._age = 0

    def seated(self) -> None:
        """Count the request, which has waited for its seat, in its cluster.

        :raise StatusError: 429: see `ClusterCap.enter`.
        """
        share = self.share
        if share is not None:
            share.enter()

    def leave(self) -> None:
        """Give up all that the request has."""
        count, self.count = self.count, None
        if count is not None:
            cap, name = count
            cap.leave(name)
        share, self.share = self.share, None
        if share is not None:
            share.leave()
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.leave()

    def tick(self, limit: float) -> None:
        """Give the seat back after *limit* s, but not the counts; called once a second.

        So neither a client that hardly reads nor a cluster that hardly sends keeps seats from others.
        """
        ticket = self.ticket
        if ticket is not None and not ticket.waits:
            self._age += 1
            if self._age > limit:
                self.ticket = None
                ticket.leave()

    def answered(self, code: int) -> None:
        """Handle the head of a 101, or of another answer whose body is incomplete."""


class StreamPlace(Place):
    """The admission of a stream, which takes a seat until its answer begins.

    :ivar stream: the cap of streams, until the end; None: there is none.
    :ivar is_long_running: whether any answer makes it a stream; else only a 101 does.
    :ivar patience: longest time for which it has its seat, s.
    """

    __slots__ = ("is_long_running", "patience", "stream")

    def __init__(
        self, stream: tuple[Cap, str] | None, *, is_long_running: bool = True, patience: float = inf
    ) -> None:
        super().__init__()
        self.stream = stream
        self.is_long_running = is_long_running
        self.patience = patience

    def leave(self) -> None:
        """Give up all that the request has."""
        stream, self.stream = self.stream, None
        if stream is not None:
            cap, name = stream
            cap.leave(name)
        super().leave()

    def tick(self, limit: float) -> None:
        """Give the seat back after *limit* s, or after `patience`."""
        super().tick(min(limit, self.patience))

    def answered(self, code: int) -> None:
        """Count as a stream only: the rest of the answer does not need a seat."""
        if code == 101 or self.is_long_running:
            super().leave()
