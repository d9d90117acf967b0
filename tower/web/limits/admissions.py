"""Admissions of requests by the limits of the door, until their ends."""

from __future__ import annotations

from attrs import define, field

from tower.web.limits.caps import Cap
from tower.web.limits.seat_pool import Ticket

#: Longest time that a long-running request other than a watch has its seat without an answer, s.  The log of
#: a silent container and a long poll through a proxy have no head; other requests must not wait for these.
SILENT = 3.0


@define(eq=False, slots=True)
class Place:
    """The admission of one request; `leave` is idempotent.

    :ivar counts: the caps that count it, and its names there.
    :ivar ticket: the seat, or a position in a queue; None: it needs none, or has given it back.
    """

    counts: list[tuple[Cap, str]]
    ticket: Ticket | None = None
    _age: int = 0

    def leave(self) -> None:
        """Give up all that the request has."""
        counts, self.counts = self.counts, []
        for cap, name in counts:
            cap.leave(name)
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


@define(eq=False, slots=True)
class StreamPlace(Place):
    """The admission of a stream, which takes a seat until its answer begins.

    :ivar stream: the cap of streams, until the end; None: there is none.
    :ivar is_long_running: whether any answer makes it a stream; else only a 101 does.
    :ivar patience: longest time for which it has its seat, s.
    """

    stream: tuple[Cap, str] | None = field(kw_only=True)
    is_long_running: bool = field(kw_only=True)
    patience: float = field(kw_only=True)

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
